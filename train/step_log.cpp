#include <shardgrad/train/step_log.h>

#include <utility>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/grains.h>

namespace shardgrad::train {

void StepLog::add(Metrics line, const Tensor& losses) {
  NoGrad no_grad;
  TagScope owner(Category::other);  // not part of what a step is predicted to need
  losses_.push_back(clone(losses));
  lines_.push_back(std::move(line));
}

void StepLog::add_scores(const std::vector<Score>& scores, int64_t count) {
  if (lines_.empty()) return;
  lines_.back().scores = scores;
  lines_.back().test_count = count;
}

std::vector<Metrics> StepLog::take(dist::ProcessGroup& world) {
  if (lines_.empty()) return {};
  int64_t passes = losses_[0].numel(), count = std::ssize(lines_);
  std::vector<float> mine(size_t(passes * count));  // a row for each pass
  for (size_t i = 0; i < lines_.size(); ++i) {
    std::vector<float> of_line = losses_[i].to_vector<float>();
    for (size_t pass = 0; pass < of_line.size(); ++pass) mine[pass * lines_.size() + i] = of_line[pass];
  }
  Tensor losses = from_vector<float>(mine, {passes, count}, {DType::f32, kCpu});
  std::vector<double> all = sums_over_ranks(losses, count, world, {"", "report"});
  for (size_t i = 0; i < all.size(); ++i) lines_[i].loss = all[i];
  losses_.clear();
  return std::exchange(lines_, {});
}

}  // namespace shardgrad::train
