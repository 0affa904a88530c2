#include <shardgrad/train/task.h>

namespace shardgrad::train {

void Task::prepare(std::span<const data::Field>) {}

double Task::tokens_per_sample() { return 0; }

std::vector<optim::Optimizer*> Optimizers::all() const {
  std::vector<optim::Optimizer*> all{optimizer.get()};
  if (beside) all.push_back(beside.get());
  return all;
}

Optimizers Task::configure_optimizers(std::vector<NamedParameter>) { return {}; }

void Task::evaluate(const data::Batch& batch, Sums& sums) {
  sums.add("loss", double(loss(batch).item()) * double(batch.global_count));
  sums.add("count", double(batch.count));
}

std::vector<Score> Task::scores(const Sums& sums) const { return {{"loss", sums["loss"] / sums["count"], false}}; }

Prediction Task::predict(const Tensor&) { fail("this task has no predict(inputs)"); }

void Task::check(std::span<const data::Field>, const data::Batch& batch) { loss(batch); }

}  // namespace shardgrad::train
