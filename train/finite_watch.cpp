#include <shardgrad/train/finite_watch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>

namespace shardgrad::train {

// None goes to another device, for which the host would wait: gradients in host memory stay there.
static std::vector<Tensor> joined(std::span<const Tensor> numbers) {
  std::vector<Tensor> all;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    while (end < numbers.size() && numbers[end].device() == numbers[begin].device()) ++end;
    all.push_back(cat(numbers.subspan(begin, end - begin), 0));
  }
  return all;
}

FiniteWatch::Look FiniteWatch::look(const Tensor& loss) const {
  NoGrad no_grad;
  TagScope owner(Category::other);
  Look look;
  std::vector<Tensor> numbers{reshape(loss.detach(), {1}).to(DType::f64)};
  for (const auto& [unit, values] : fsdp::grad_maxima(sharded_)) {
    numbers.push_back(values);
    look.units.emplace_back(unit, values.numel());
  }
  look.numbers = joined(numbers);
  return look;
}

void FiniteWatch::keep(int64_t step, Look look) {
  if (!finding_) steps_.push_back({step, std::move(look)});
}

std::optional<FiniteWatch::Finding> FiniteWatch::look_at(const Step& step) {
  std::vector<double> numbers;
  for (const Tensor& part : step.look.numbers) {
    std::vector<double> read = part.to_vector<double>();
    numbers.insert(numbers.end(), read.begin(), read.end());
  }
  auto finite = [](double number) { return std::isfinite(number); };
  auto next = numbers.begin() + 1;
  std::string bad;
  for (const auto& [unit, pieces] : step.look.units) {
    auto end = next + std::ptrdiff_t(pieces);
    if (bad.empty() && !std::all_of(next, end, finite)) bad = unit;
    next = end;
  }
  if (finite(numbers[0]) && bad.empty()) return {};
  return Finding{step.number, !finite(numbers[0]), bad};
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
