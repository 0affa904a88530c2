#include <shardgrad/train/evaluation.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/evaluation_mode.h>
#include <shardgrad/train/grains.h>
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

namespace {

struct ProgressKept {
  ~ProgressKept() { progress() = kept; }
  Progress kept = progress();
};

}  // namespace

void evaluate_batches(Task& task, int64_t count, const std::function<data::Batch(int64_t number)>& next,
                      std::optional<DType> dtype, std::vector<Sums>& sums) {
  NoGrad no_grad;
  Autocast precision(dtype);
  EvaluationMode mode(task.module());
  ProgressKept training;
  for (int64_t i = 0; i < count; ++i) {
    data::Batch batch = next(i);
    for (size_t k = 0; k < sums.size(); ++k) {
      data::Batch part = batch.micro_batch(int64_t(k), std::ssize(sums));
      progress() = {uint64_t(part.step), part.first};  // what is drawn at random is the same in every evaluation
      TagScope owner(Category::evaluation);
      task.evaluate(part, sums[k]);
    }
  }
}

// The sums of all grains, one after the other, and their names.
static std::pair<std::vector<double>, std::string> in_a_row(std::vector<Sums>& parts) {
  std::vector<double> values;
  std::string all, first;
  for (Sums& part : parts) {
    std::string names;
    for (const auto& [name, value] : part.values()) {
      values.push_back(value);
      names += " " + name;
    }
    if (&part == &parts[0]) first = names;
    SG_CHECK(names == first, "the sums of an evaluation are", first, " for the first grain of a batch, and", names,
             " for another; add every sum always, 0 where there is nothing");
    all += names;
  }
  return {values, all};
}

Evaluation evaluate(Task& task, data::DataLoader& samples, dist::ProcessGroup& world, std::optional<DType> dtype,
                    const std::function<void(int64_t batches)>& tell, int64_t most) {
  const data::DataLoader::Options& options = samples.options();
  std::vector<Sums> parts(options.grains > 0 ? size_t(options.grains / options.world_size) : 1);
  int64_t count = 0, batches = std::min(most, samples.batches());
  auto next = [&](int64_t i) {
    if (i > 0 && tell) tell(i);
    data::Batch batch = samples.get(0, i);
    count += batch.global_count;
    return batch;
  };
  evaluate_batches(task, batches, next, dtype, parts);
  if (tell) tell(batches);
  TagScope owner(Category::other);
  auto [values, names] = in_a_row(parts);
  check_names(world, "sums", names, "; add every sum on every rank, 0 where there is nothing");  // added in this order
  Sums sums = parts[0];
  int64_t kinds = std::ssize(sums.values());
  Tensor all = from_vector<double>(values, {std::ssize(values)}, {DType::f64, kCpu});
  std::vector<double> totals = sums_over_ranks(all, kinds, world, {"", "evaluate"});
  size_t i = 0;
  for (auto& [name, value] : sums.values()) value = totals[i++];
  std::vector<Score> scores = task.scores(sums);
  SG_CHECK(!scores.empty(), "the task gives no score");
  check_scores(world, scores);
  std::string before = names_of(task.scores({})), now = names_of(scores);
  SG_CHECK(now == before, "the task's scores are", now, ", and were", before,
           " before there were sums; give the same ones always, as numbers or NaN");
  return {scores, count};
}

bool is_better(const Score& score, int64_t step, int64_t patience, std::optional<Best>& best) {
  if (!best) best.emplace();
  if (best->step == 0) best->value = (score.higher_is_better ? -1 : 1) * std::numeric_limits<double>::max();
  if (std::isfinite(score.value) && (score.higher_is_better ? score.value > best->value : score.value < best->value)) {
    *best = {score.value, 0, best->plateaus, step};
    return true;
  }
  if (++best->worse % patience == 0) ++best->plateaus;
  return false;
}

}  // namespace shardgrad::train
