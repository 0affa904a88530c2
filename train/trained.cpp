#include <shardgrad/train/trained.h>

#include <iostream>

#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/checkpoint.h>

namespace shardgrad::train {

Trained::Trained(const Config& config, const std::string& run, dist::ProcessGroup& world)
    : task(make_task(config)), sharded(fsdp::fully_shard(task->module(), world, make_sharding(config))) {
  Last last;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0) return;
    last = last_checkpoint(run);
    SG_CHECK(last.folder, "nothing is saved in '", run, "'");
    if (!last.note.empty()) std::cerr << last.note << std::endl;
  });
  folder = dist::same_text(world, {"", "start"}, last.folder.value_or(""));
  auto optimizer = make_optimizer(config.optimizer, task->module().named_parameters());
  step = load_weights(folder, {task->module(), *sharded, *optimizer}).reached.step;
  task->module().eval();
}

}  // namespace shardgrad::train
