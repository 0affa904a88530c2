#include <shardgrad/train/evaluation.h>

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>

namespace shardgrad::train {

Evaluation evaluate(Task& task, data::DataLoader& samples, dist::ProcessGroup& world) {
  NoGrad no_grad;
  task.module().eval();
  Sums sums;
  for (const data::Batch& batch : samples.epoch(0)) task.evaluate(batch, sums);
  task.module().train();
  std::vector<double> values;
  for (const auto& [name, value] : sums.values()) values.push_back(value);
  Tensor total = from_vector<double>(values, {int64_t(values.size())}, {DType::f64, kCpu});
  world.all_reduce(total, dist::Label{"", "evaluate"}).host_wait();
  values = total.to_vector<double>();
  size_t i = 0;
  for (auto& [name, value] : sums.values()) value = values[i++];
  return {task.scores(sums), samples.dataset().size()};
}

bool is_better(const Score& score, std::optional<Best>& best) {
  bool better = std::isfinite(score.value) &&
                (!best || (score.higher_is_better ? score.value > best->value : score.value < best->value));
  if (better)
    best = Best{score.value};
  else if (best)
    ++best->worse;
  return better;
}

}  // namespace shardgrad::train
