#include <iostream>

#include <shardgrad/core/context.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::cli {

int plan_command(const PlanOptions& options) {
  train::Config config = train::read_config(options.config, options.overrides, *options.registry);
  Context context;  // what is read of the data lives in it
  auto fields = config.registry->fields_of(config.data, uint64_t(config.seed));
  fsdp::Plan predicted = train::plan(config, fields, options.ranks, kMeta);
  std::cout << "predicted for " << options.ranks << " ranks, strategy " << config.strategy << ", batch " << config.batch
            << ", one step:\n"
            << predicted.table();
  if (!options.measure) return 0;
  fsdp::Plan measured = train::plan(config, fields, options.ranks, parse_device(config.device));
  std::cout << "\nmeasured with ranks as threads of this process:\n" << measured.table();
  std::cout << (measured == predicted ? "as predicted" : "NOT as predicted; please report this") << std::endl;
  return measured == predicted ? 0 : int(ErrorKind::internal);
}

}  // namespace shardgrad::cli
