#include <shardgrad/train/cli/run_job.h>

#include <iostream>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::cli {

Device choose_device(const std::string& wish, bool says_so) {
  if (wish != "auto") return parse_device(wish);
  if (cuda_device_count() > 0) return kCuda;
  if (says_so) std::cerr << "shardgrad: no CUDA device; training on the CPU\n";
  return kCpu;
}

int run_job(const RunOptions& options, const std::function<int(const train::Config&, dist::Job&)>& body) {
  train::Config config;
  auto configure = [&](const dist::Bootstrap& bootstrap) {
    config = train::read_config(options.config, options.overrides, *options.registry);
    for (const auto& [op, kernel] : config.kernels) use_kernels(op, kernel);
    dist::JobOptions job;
    job.context.seed = uint64_t(config.seed);
    job.context.device = choose_device(config.device, bootstrap.rank() == 0);
    job.group.kind = options.group;
    job.when_told = options.when_told;
    job.watch.stall_limit = std::chrono::seconds(config.stall_limit);
    return job;
  };
  return dist::run_job([&](dist::Job& job) { return body(config, job); }, configure);
}

}  // namespace shardgrad::cli
