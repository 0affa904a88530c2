#include <shardgrad/train/evaluation.h>

#include <cmath>
#include <limits>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {

static void check_names(dist::ProcessGroup& world, const char* what, const std::string& names, const char* remedy) {
  std::string first = dist::same_text(world, {"", "evaluate"}, names);
  dist::together(world, {"", "evaluate"}, [&] {
    SG_CHECK(names == first, "the ", what, " of an evaluation are", names, ", and those of rank 0", first, remedy);
  });
}

static std::string names_of(const std::vector<Score>& scores) {
  std::string names;
  for (const Score& score : scores) names += " " + score.name;
  return names;
}

// What every rank decides by them must be the same: which weights are the best, the learning rate, the end of the run.
static void check_scores(dist::ProcessGroup& world, const std::vector<Score>& scores) {
  std::vector<double> mine;
  for (const Score& score : scores) mine.push_back(score.value);
  check_names(world, "scores", names_of(scores), "; give the same ones on every rank");
  std::vector<double> all = world.share<double>(mine, {"", "evaluate"});
  for (size_t i = 0; i < all.size(); ++i) {
    double value = all[i], first = all[i % mine.size()];
    SG_CHECK(value == first || (std::isnan(value) && std::isnan(first)), "the task's score ",
             scores[i % mine.size()].name, " is ", format("%.17g", value), " on rank ", i / mine.size(), " and ",
             format("%.17g", first), " on rank 0; scores follow from the sums, which are the same on every rank");
  }
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
  check_names(world, "sums", names, "; add every sum on every rank, 0 where there is nothing");  // added in this order
  Tensor total = from_vector<double>(values, {int64_t(values.size())}, {DType::f64, kCpu});
  world.all_reduce(total, dist::Label{"", "evaluate"}).host_wait();
  values = total.to_vector<double>();
  size_t i = 0;
  for (auto& [name, value] : sums.values()) value = values[i++];
  std::vector<Score> scores = task.scores(sums);
  SG_CHECK(!scores.empty(), "the task gives no score");
  check_scores(world, scores);
  std::string before = names_of(task.scores({})), now = names_of(scores);
  SG_CHECK(now == before, "the task's scores are", now, ", and were", before,
           " before there were sums; give the same ones always, as numbers or NaN");
  return {scores, samples.dataset().size()};
}

bool is_better(const Score& score, int64_t step, int64_t patience, std::optional<Best>& best) {
  if (!best) best = Best{(score.higher_is_better ? -1 : 1) * std::numeric_limits<double>::max()};
  if (std::isfinite(score.value) && (score.higher_is_better ? score.value > best->value : score.value < best->value)) {
    *best = {score.value, 0, best->plateaus, step};
    return true;
  }
  if (++best->worse % patience == 0) ++best->plateaus;
  return false;
}

}  // namespace shardgrad::train
