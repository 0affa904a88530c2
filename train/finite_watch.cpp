#include <shardgrad/train/finite_watch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>

namespace shardgrad::train {
namespace {

bool all_finite(const Tensor& values) {
  return std::ranges::all_of(values.to_vector<double>(), [](double value) { return std::isfinite(value); });
}

}  // namespace

void FiniteWatch::after_update(int64_t step, const Tensor& loss) {
  if (finding_) return;
  NoGrad no_grad;
  TagScope owner(Category::other);
  steps_.push_back({step, clone(loss.detach()), fsdp::grad_maxima(sharded_)});
}

std::optional<FiniteWatch::Finding> FiniteWatch::look_at(const Step& step) {
  bool loss_finite = std::isfinite(step.loss.item());
  auto bad = std::ranges::find_if(step.grads, [](const auto& grad) { return !all_finite(grad.values); });
  if (loss_finite && bad == step.grads.end()) return {};
  return Finding{step.number, !loss_finite, bad == step.grads.end() ? "" : bad->unit};
}

bool FiniteWatch::found() {
  for (const Step& step : steps_)
    if (!finding_) finding_ = look_at(step);
  steps_.clear();
  return finding_.has_value();
}

std::string FiniteWatch::explain() const {
  dist::ProcessGroup& world = sharded_.group();
  const dist::Label kLabel{"", "agree"};
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // For each rank: the step, whether its loss was the trouble, and how late backward came to the unit.
  auto order = [&](const std::string& name) {
    auto same = [&](const auto& unit) { return unit->name() == name; };
    return int64_t(sharded_.units().end() - std::ranges::find_if(sharded_.units(), same));
  };
  std::vector<int64_t> mine{kNever, 0, kNever};
  if (finding_) mine = {finding_->step, finding_->loss, finding_->unit.empty() ? kNever : order(finding_->unit)};
  std::vector<int64_t> all = world.share<int64_t>(mine, kLabel);
  int64_t step = kNever, unit = kNever;
  for (size_t at = 0; at < all.size(); at += 3) step = std::min(step, all[at]);
  std::string ranks;
  for (size_t at = 0; at < all.size(); at += 3) {
    if (all[at] != step) continue;
    unit = std::min(unit, all[at + 2]);
    if (all[at + 1]) ranks += concat(ranks.empty() ? "" : ", ", world.global_rank(int(at / 3)));
  }
  std::string text = concat("step ", step, ": ");
  text += ranks.empty() ? "the losses are finite" : concat("the loss of rank ", ranks, " is not finite");
  if (unit == kNever) return text + "; all gradients are";
  return concat(text, ranks.empty() ? ", but" : ";", " the first gradient that is not", ranks.empty() ? "" : " either",
                " is that of unit '", (*(sharded_.units().end() - unit))->name(), "'");
}

}  // namespace shardgrad::train
