#include <shardgrad/fsdp/step/flat_grad.h>

#include <algorithm>

#include <shardgrad/core/rng.h>
#include <shardgrad/dist/transports/transport.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::fsdp {

const char* name_of(GradState state) {
  constexpr const char* names[] = {"empty", "open", "reducing", "reduced"};
  return names[int(state)];
}

FlatGrad::FlatGrad(const FlatLayout& layout, const Config& config)
    : layout_(layout),
      keeps_full_(config.strategy == Strategy::zero1 && layout.reduce_dtype == layout.dtype),
      to_host_(config.grads_to_cpu() && layout.has_own_memory()),
      written_{{}, Flags(layout.slices.size())},
      sum_{{}, Flags(layout.slices.size())},
      sums_([this](Tensor& sum, const Tensor& more) { add(sum, more); }),
      has_(layout.slices.size()),
      host_(layout) {}

void FlatGrad::transition(GradState to) {
  using enum GradState;
  bool legal = (to == open && (state_ == empty || state_ == reduced)) || (to == reducing && state_ == open) ||
               (to == reduced && (state_ == reducing || state_ == open)) ||
               (to == empty && (state_ == open || state_ == reduced));
  SG_ASSERT(legal, "the gradient of unit '", layout_.unit, "' cannot go from ", name_of(state_), " to ", name_of(to));
  state_ = to;
}

Out FlatGrad::open(size_t i) {
  finish_reduce();  // of a pass that failed
  if (!is_open()) transition(GradState::open);
  if (!written_.full.defined()) {
    written_.full = layout_.buffer(layout_.padded, layout_.param_dtype, Category::full_gradient);
    layout_.zero_gaps(written_.full);
  }
  float beta = written_.of[i] ? 1 : 0;
  written_.of.set(i, true);
  return out(layout_.slice_of(written_.full, i).view(layout_.slices[i].shape), beta);
}

void FlatGrad::zero_unset(const Full& open) const {
  for (size_t i = 0; i < open.of.size(); ++i)
    if (!open.of[i]) fill_with_zeros(layout_.slice_of(open.full, i));
}

void FlatGrad::hold() {
  if (!written_.full.defined() || layout_.param_dtype == layout_.dtype) return;
  zero_unset(written_);
  bool first = !sum_.full.defined();
  if (first)
    sum_.full = layout_.buffer(layout_.padded, layout_.dtype, Category::full_gradient);
  else
    zero_unset(sum_);
  convert(written_.full, out(sum_.full, first ? 0 : 1));
  for (size_t i = 0; i < sum_.of.size(); ++i) sum_.of.set(i, is_open(i));
  written_.take();
}

// All that is open, in reduce_dtype.
Tensor FlatGrad::take_open() {
  if (sum_.full.defined()) hold();
  Full& open = sum_.full.defined() ? sum_ : written_;
  zero_unset(open);
  Tensor full = open.take();
  if (full.dtype() == layout_.reduce_dtype) return full;
  Tensor converted = layout_.buffer(layout_.padded, layout_.reduce_dtype, Category::full_gradient);
  convert(full, out(converted));
  return converted;
}

// Which slices have a gradient from this reduction (1), an earlier one (2) or both (3); else ranks that used different
// parameters of the unit would add up different sums.
std::string FlatGrad::sources() const {
  std::string digits;
  for (size_t i = 0; i < has_.size(); ++i) {
    digits += char('0' + is_open(i) + 2 * has_[i]);
  }
  constexpr size_t kShown = 20;
  return "gradients " + (digits.size() <= kShown ? digits : concat('#', hash_of(digits))) + layout_.part;
}

void FlatGrad::note_sources() {
  for (size_t i = 0; i < has_.size(); ++i) has_.set(i, has_[i] || is_open(i));
}

// Of slices that were given up while others of the buffer were kept.
void FlatGrad::zero_given_up() {
  std::vector<Tensor> sums = sums_.tensors();
  if (grad_.defined()) sums.push_back(grad_);
  for (size_t i = 0; i < has_.size() && !sums.empty(); ++i) {
    if (has_[i]) continue;
    wait();
    Owned mine = layout_.owned(i);
    for (const Tensor& sum : sums) fill_with_zeros(sum.rows(mine.at, mine.at + mine.padded));
  }
}

// Along the row into the shard, then the shard along the column.
void FlatGrad::start_reduce(std::optional<int64_t> pass) {
  dist::CollectiveOptions options({layout_.unit, "backward"});
  options.detail = sources();
  zero_given_up();
  note_sources();
  sent_ = take_open();
  pass_ = pass;
  bool is_kept = pass ? !sums_.adds_to_last(*pass) : !grad_.defined();
  bool becomes_grad = is_kept && !to_host_ && sent_.dtype() == layout_.dtype;
  bool keeps_full = keeps_full_ && !pass;  // each of several sums would
  frees_ = !becomes_grad || (layout_.mesh.reductions() && !keeps_full);
  bool goes = layout_.mesh.reductions() || layout_.mesh.replica() || to_host_;
  Event arrived = goes ? layout_.compute().record() : Event();
  options.after = arrived;
  if (dist::ProcessGroup* group = layout_.mesh.reductions()) {
    arriving_ = keeps_full ? layout_.part_of(sent_)
                           : layout_.buffer(layout_.shard_numel(), sent_.dtype(),
                                            becomes_grad ? Category::gradient_shard : Category::communication,
                                            &group->stream());
    scatter_ = group->reduce_scatter(arriving_, sent_, options);
    options.after = arrived = scatter_.event();
  } else {
    arriving_ = sent_;
  }
  if (dist::ProcessGroup* group = layout_.mesh.replica()) {
    reduce_ = group->all_reduce(arriving_, options);
    arrived = reduce_.event();
  }
  transition(GradState::reducing);
  // What is added to nothing leaves at once; compute need not come by.
  bool leaves = to_host_ && !pass && !grad_.defined() && arriving_.dtype() == layout_.dtype;
  if (leaves) host_.download(grad_, std::exchange(arriving_, Tensor()), arrived);
}

void FlatGrad::finish_reduce() {
  if (state_ != GradState::reducing) return;
  transition(GradState::reduced);
  scatter_.wait(layout_.compute());
  reduce_.wait(layout_.compute());
  sent_ = Tensor();
  Tensor arrived = std::exchange(arriving_, Tensor());
  if (!arrived.defined()) return;
  if (!pass_) return add(grad_, arrived);
  SG_CHECK(sums_.follows(*pass_),
           "PairwiseSum: two backward passes have brought a gradient since begin_pass(); call it before each");
  sums_.take(*pass_, arrived);
}

void FlatGrad::join_passes() {
  finish_reduce();
  sums_.join(grad_);
}

// What comes first becomes the sum.
void FlatGrad::add(Tensor& sum, const Tensor& more) {
  bool first = !sum.defined();
  if (first && on_host(more) == to_host_ && more.dtype() == layout_.dtype) {
    sum = more;
    return;
  }
  if (first ? to_host_ : on_host(sum)) return host_.add(sum, more);
  if (first) sum = layout_.buffer(more.numel(), layout_.dtype, Category::gradient_shard);
  convert(on_host(more) ? host_.taken_back(more) : more, out(sum, first ? 0 : 1));
}

void FlatGrad::zero(size_t i) {
  finish_reduce();  // of a pass that failed
  has_.set(i, false);
  if (!has_.any()) {
    torn_ = nullptr;
    wait();
    grad_ = Tensor();
    sums_.clear();
  }
  for (Full* open : {&written_, &sum_}) {
    open->of.set(i, false);
    if (!open->of.any()) open->take();
  }
  forget_open();
}

// Where nothing is open any more: what it is then.
void FlatGrad::forget_open() {
  GradState now = written_.full.defined() || sum_.full.defined() ? GradState::open
                  : grad_.defined() || !sums_.empty()            ? GradState::reduced
                                                                 : GradState::empty;
  if (now != state_) transition(now);
}

void FlatGrad::check_whole() const {
  SG_CHECK(!torn_, "unit '", layout_.unit, "': ", torn_, ", so its gradients are incomplete; call zero_grad() and ",
           "repeat the step");
}

void FlatGrad::move(bool to_host) {
  check_whole();
  SG_CHECK(!is_open() && state_ != GradState::reducing, "unit '", layout_.unit,
           "' has gradients that were not reduced over the ranks; ",
           "run the last backward before the step outside the scope of fsdp::NoSync");
  SG_CHECK(sums_.empty(), "unit '", layout_.unit, "' has gradients of a PairwiseSum that was not finished; call its ",
           "finish() after the last backward");
  if (!grad_.defined()) return;
  check_captured();
  if (on_host(grad_) == to_host) return;
  wait();
  int64_t count = grad_.numel();
  Tensor moved = to_host ? layout_.host_buffer(count, layout_.dtype)
                         : layout_.buffer(count, layout_.dtype, Category::gradient_shard);
  copy_into(moved, grad_);
  grad_ = moved;
}

void FlatGrad::tear(const char* why) {
  note_sources();
  if (!torn_ && has_.any()) torn_ = why;
}

void FlatGrad::abandon() {
  tear(kPassFailed);
  finish_reduce();
  for (Full* open : {&written_, &sum_}) open->take();
  forget_open();
}

}  // namespace shardgrad::fsdp
