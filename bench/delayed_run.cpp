// `shardgrad train` on ranks that a slow group connects, where each collective is held up by so many microseconds; for
// bench/compare_plan_time.py:
//
//     shardgrad launch -n 2 --by local delayed_run MICROSECONDS CONFIG [KEY=VALUE …]

#include <chrono>
#include <cstdlib>
#include <iostream>

#include <shardgrad/dist/launch/job.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/trainer.h>

using namespace shardgrad;

int main(int argc, char** argv) {
  train::Registry registry;
  train::Config config;
  auto configure = [&](const dist::Bootstrap&) {
    SG_CHECK(argc >= 3, "delayed_run needs MICROSECONDS CONFIG [KEY=VALUE …]");
    config = train::read_config(argv[2], {argv + 3, argv + argc}, registry);
    dist::JobOptions job;
    job.context.seed = uint64_t(config.seed);
    job.group.delay = dist::fixed_delay(std::chrono::microseconds(std::atol(argv[1])));
    return job;
  };
  auto body = [&](dist::Job& job) {
    train::train(config, job.world(), std::cout);
    return 0;
  };
  return dist::run_job(body, configure);
}
