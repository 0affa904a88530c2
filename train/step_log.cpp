#include <shardgrad/train/step_log.h>

#include <utility>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>

namespace shardgrad::train {

void StepLog::add(Metrics line, const Tensor& part) {
  NoGrad no_grad;
  TagScope owner(Category::other);  // not part of what a step is predicted to need
  parts_.push_back(clone(part));
  lines_.push_back(std::move(line));
}

void StepLog::add_scores(const std::vector<Score>& scores, int64_t count) {
  if (lines_.empty()) return;
  lines_.back().scores = scores;
  lines_.back().test_count = count;
}

std::vector<Metrics> StepLog::take(dist::ProcessGroup& world) {
  if (lines_.empty()) return {};
  std::vector<float> mine;
  for (const Tensor& part : parts_) mine.push_back(float(part.item()));
  Tensor losses = from_vector<float>(mine, {std::ssize(mine)}, {DType::f32, kCpu});
  world.all_reduce(losses, dist::Label{"", "report"}).host_wait();
  std::vector<float> all = losses.to_vector<float>();
  for (size_t i = 0; i < all.size(); ++i) lines_[i].loss = all[i];
  parts_.clear();
  return std::exchange(lines_, {});
}

}  // namespace shardgrad::train
