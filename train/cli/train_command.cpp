#include <sysexits.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include <shardgrad/dist/launch/job.h>
#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/trainer.h>

namespace shardgrad::cli {

namespace {

// "auto": a GPU where there is one.
Device choose_device(const std::string& wish, bool first_rank) {
  if (wish != "auto") return parse_device(wish);
  if (cuda_device_count() > 0) return kCuda;
  if (first_rank) std::cerr << "shardgrad: no CUDA device; training on the CPU\n";
  return kCpu;
}

}  // namespace

int train_command(const TrainOptions& options) {
  train::Config config;
  auto configure = [&](const dist::Bootstrap& bootstrap) {
    config = train::read_config(options.config, options.overrides, *options.registry);
    for (const auto& [op, kernel] : config.kernels) use_kernels(op, kernel);
    dist::JobOptions job;
    job.context.seed = uint64_t(config.seed);
    job.context.device = choose_device(config.device, bootstrap.rank() == 0);
    job.group.kind = options.group;
    job.watch.stall_limit = std::chrono::seconds(config.stall_limit);
    return job;
  };
  auto body = [&](dist::Job& job) {
    // mpirun gives every rank a terminal of its own, wherever its own output goes.
    const char* kind = std::getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO) && job.bootstrap().name() != "mpi" && kind && kind != std::string("dumb");
    train::Result result = train::train(config, job.world(), std::cout, terminal);
    return result.stopped ? EX_TEMPFAIL : 0;  // 75
  };
  return dist::run_job(body, configure);
}

}  // namespace shardgrad::cli
