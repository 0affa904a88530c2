#include <shardgrad/train/evaluation.h>

#include <cmath>
#include <limits>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/dist/group/together.h>

namespace shardgrad::train {

// Sums are added in the order of their names.
static void check_names(dist::ProcessGroup& world, const std::string& names) {
  std::string first = dist::same_text(world, {"", "evaluate"}, names);
  dist::together(world, {"", "evaluate"}, [&] {
    SG_CHECK(names == first, "the sums of an evaluation are", names, ", and those of rank 0", first,
             "; add every sum on every rank, 0 where there is nothing");
  });
}

static Sums sums_of(Task& task, data::DataLoader& samples, std::optional<DType> dtype,
                    const std::function<void(int64_t batches)>& tell) {
  NoGrad no_grad;
  Autocast precision(dtype);
  task.module().eval();
  Sums sums;
  Progress training = progress();
  for (const data::Batch& batch : samples.epoch(0)) {
    progress() = {uint64_t(batch.step), batch.first};  // what is drawn at random is the same in every evaluation
    task.evaluate(batch, sums);
    if (tell) tell(batch.step + 1);
  }
  progress() = training;
  task.module().train();
  return sums;
}

Evaluation evaluate(Task& task, data::DataLoader& samples, dist::ProcessGroup& world, std::optional<DType> dtype,
                    const std::function<void(int64_t batches)>& tell) {
  Sums sums = sums_of(task, samples, dtype, tell);
  std::vector<double> values;
  std::string names;
  for (const auto& [name, value] : sums.values()) {
    values.push_back(value);
    names += " " + name;
  }
  check_names(world, names);
  Tensor total = from_vector<double>(values, {int64_t(values.size())}, {DType::f64, kCpu});
  world.all_reduce(total, dist::Label{"", "evaluate"}).host_wait();
  values = total.to_vector<double>();
  size_t i = 0;
  for (auto& [name, value] : sums.values()) value = values[i++];
  std::vector<Score> scores = task.scores(sums);
  SG_CHECK(!scores.empty(), "the task gives no score");
  return {scores, samples.dataset().size()};
}

bool is_better(const Score& score, int64_t patience, std::optional<Best>& best) {
  if (!best) best = Best{(score.higher_is_better ? -1 : 1) * std::numeric_limits<double>::max()};
  if (std::isfinite(score.value) && (score.higher_is_better ? score.value > best->value : score.value < best->value)) {
    *best = {score.value, 0, best->plateaus};
    return true;
  }
  if (++best->worse % patience == 0) ++best->plateaus;
  return false;
}

}  // namespace shardgrad::train
