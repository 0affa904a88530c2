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
      sums_([this](Tensor& sum, const Tensor& more) { add(sum, more); }),
      written_of_(layout.slices.size()),
      summed_of_(layout.slices.size()),
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
  if (!written_.defined()) {
    written_ = layout_.buffer(layout_.padded, layout_.param_dtype, Category::full_gradient);
    written_of_.clear();
    layout_.zero_gaps(written_);
  }
  float beta = written_of_[i] ? 1 : 0;
  written_of_.set(i, true);
  return out(layout_.slice_of(written_, i).view(layout_.slices[i].shape), beta);
}

void FlatGrad::zero_unset(const Tensor& full, const Flags& set) const {
  for (size_t i = 0; i < set.size(); ++i)
    if (!set[i]) fill_with_zeros(layout_.slice_of(full, i));
}

void FlatGrad::hold() {
  if (!written_.defined() || layout_.param_dtype == layout_.dtype) return;
  zero_unset(written_, written_of_);
  bool first = !sum_.defined();
  if (first)
    sum_ = layout_.buffer(layout_.padded, layout_.dtype, Category::full_gradient);
  else
    zero_unset(sum_, summed_of_);
  convert(written_, out(sum_, first ? 0 : 1));
  for (size_t i = 0; i < summed_of_.size(); ++i) summed_of_.set(i, (summed_of_[i] && !first) || written_of_[i]);
  written_ = Tensor();
}

// All that is open, in reduce_dtype.
Tensor FlatGrad::take_open() {
  if (sum_.defined()) hold();
  const Flags& set = sum_.defined() ? summed_of_ : written_of_;
  Tensor full = std::exchange(sum_.defined() ? sum_ : written_, Tensor());
  zero_unset(full, set);
  if (full.dtype() == layout_.reduce_dtype) return full;
  Tensor converted = layout_.buffer(layout_.padded, layout_.reduce_dtype, Category::full_gradient);
  convert(full, out(converted));
  return converted;
}

bool FlatGrad::is_open(size_t i) const {
  return (written_.defined() && written_of_[i]) || (sum_.defined() && summed_of_[i]);
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
  Event arrived = layout_.compute().record();
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
  if (leaves) download(grad_, std::exchange(arriving_, Tensor()), arrived);
}

void FlatGrad::finish_reduce() {
  if (state_ != GradState::reducing) return;
  transition(GradState::reduced);
  scatter_.wait(layout_.compute());
  reduce_.wait(layout_.compute());
  sent_ = Tensor();
  Tensor arrived = std::exchange(arriving_, Tensor());
  if (!arrived.defined()) return;
  if (pass_)
    sums_.take(*pass_, arrived);
  else
    add(grad_, arrived);
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
  if (first ? to_host_ : on_host(sum)) return add_to_host(sum, more);
  if (first) sum = layout_.buffer(more.numel(), layout_.dtype, Category::gradient_shard);
  convert(on_host(more) ? taken_back(more) : more, out(sum, first ? 0 : 1));
}

// A sum that another one takes in: the host waits, for its memory goes.
Tensor FlatGrad::taken_back(const Tensor& sum) {
  Tensor here = layout_.buffer(sum.numel(), layout_.dtype, Category::communication, &layout_.compute());
  host_.take_back(here, sum).host_wait();
  return here;
}

// The sum is made on the device, so the host waits for nothing but the memory of a sum that another one takes in.
void FlatGrad::add_to_host(Tensor& sum, const Tensor& more) {
  Stream& compute = layout_.compute();
  Tensor total = on_host(more) ? taken_back(more) : more;
  if (total.dtype() != layout_.dtype) {
    total = layout_.buffer(more.numel(), layout_.dtype, Category::communication);
    convert(more, out(total));
  }
  if (sum.defined()) {
    Tensor earlier = layout_.buffer(more.numel(), layout_.dtype, Category::communication, &compute);
    host_.take_back(earlier, sum);
    convert(earlier, out(total, 1));
  }
  download(sum, total, compute.record());
}

void FlatGrad::download(Tensor& sum, const Tensor& total, const Event& ready) {
  if (!sum.defined()) sum = host_.buffer(total.numel(), layout_.dtype);
  host_.download(sum, total, ready);
}

void FlatGrad::zero(size_t i) {
  finish_reduce();  // of a pass that failed
  for (Flags* flags : {&has_, &written_of_, &summed_of_}) flags->set(i, false);
  if (!has_.any()) {
    torn_ = nullptr;
    wait();
    grad_ = Tensor();
    sums_.clear();
  }
  if (!written_of_.any()) written_ = Tensor();
  if (!summed_of_.any()) sum_ = Tensor();
  forget_open();
}

// Where nothing is open any more: what it is then.
void FlatGrad::forget_open() {
  GradState now = written_.defined() || sum_.defined() ? GradState::open
                  : grad_.defined() || !sums_.empty()  ? GradState::reduced
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
  if (!grad_.defined() || on_host(grad_) == to_host) return;
  wait();
  int64_t count = grad_.numel();
  Tensor moved =
      to_host ? host_.buffer(count, layout_.dtype) : layout_.buffer(count, layout_.dtype, Category::gradient_shard);
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
  written_ = sum_ = Tensor();
  forget_open();
}

}  // namespace shardgrad::fsdp
