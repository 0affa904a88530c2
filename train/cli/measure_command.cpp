#include <iostream>

#include <shardgrad/core/context.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/cli/speed_text.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/network.h>

namespace shardgrad::cli {

static void tell(const train::Network& network, const std::string& file) {
  train::replace_file(file, train::to_json(network));
  std::cout << network.from << ": a collective takes " << amount(network.latency / 1e6, "s") << ", and its bytes go at "
            << amount(network.bandwidth * 1e9, "B/s") << "\nwritten to " << file
            << "; plan CONFIG --time --network FILE predicts steps with it" << std::endl;
}

int measure_command(const DoctorOptions& options) {
  auto configure = [&](const dist::Bootstrap& bootstrap) {
    dist::JobOptions job;
    job.context.device = choose_device(options.device, bootstrap.rank() == 0);
    job.group.kind = options.group;
    job.when_told = dist::WhenTold::ends;
    return job;
  };
  auto body = [&](dist::Job& job) {
    dist::ProcessGroup& world = job.world();
    bool alone = world.size() == 1;
    train::Network network = alone ? train::network_here(context().default_device()) : train::measure_network(world);
    if (world.rank() == 0) tell(network, options.file);
    return 0;
  };
  return dist::run_job(body, configure);
}

}  // namespace shardgrad::cli
