#include <shardgrad/train/trained.h>

#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/weights.h>

namespace shardgrad::train {

// On every rank, as rank 0 sees it.
static std::string named_on(dist::ProcessGroup& world, UsedCheckpoint& used) {
  std::string folder;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() == 0) folder = used.named();
  });
  return dist::same_text(world, {"", "start"}, folder);
}

static std::unique_ptr<Task> make_task_of(const Config& config, std::optional<DType> dtype) {
  std::unique_ptr<Task> task = make_task(config);
  if (dtype) task->module().to(*dtype);
  return task;
}

Trained::Trained(const Config& config, const std::string& from, dist::ProcessGroup& world, std::optional<DType> dtype)
    : task(make_task_of(config, dtype)), sharded(make_sharded(config, *task, world)) {
  bool only_weights = from.ends_with(".safetensors") || hf::is_model_folder(from);
  if (only_weights) {
    load_model(from, task->module(), *sharded);
    check_same_weights(from, task->module(), world);
  } else {
    UsedCheckpoint used(from);
    auto load = [&](const std::string& folder) { return load_weights(folder, task->module(), *sharded); };
    LoadedWeights loaded = read_used([&] { return named_on(world, used); }, load);
    step = loaded.step;
    metadata = std::move(loaded.metadata);
  }
  task->module().eval();
}

}  // namespace shardgrad::train
