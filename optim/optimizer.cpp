#include <shardgrad/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/timeline.h>
#include <shardgrad/core/warning.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/ranges.h>

namespace shardgrad::optim {
namespace {

bool in_memory(const Tensor& tensor) { return tensor.defined() && tensor.storage()->resident(); }

bool adjacent(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() + a.bytes() == b.offset() && a.dtype() == b.dtype();
}

constexpr int64_t kCallsToWarning = 20;

Tensor flat(const Tensor& first, int64_t begin, int64_t count) {
  if (begin == 0 && first.ndim() == 1 && first.numel() == count && !first.requires_grad()) return first;
  return Tensor(first.storage(), first.offset() + size_t(begin) * size_of(first.dtype()), {count}, first.dtype());
}

}  // namespace

void check_option(const char* optimizer, const char* option, double value, bool valid) {
  SG_CHECK(std::isfinite(value) && valid, optimizer, ": ", option, " = ", value, " is not possible");
}

Optimizer::Optimizer(const char* name, std::vector<NamedParameter> parameters, double lr, double weight_decay,
                     Rules rules, std::vector<std::string> state_names, bool stochastic_rounding)
    : name_(name),
      parameters_(std::move(parameters)),
      state_names_(std::move(state_names)),
      lr_(lr),
      stochastic_rounding_(stochastic_rounding) {
  check_option(name, "lr", lr, lr >= 0);
  check_option(name, "weight_decay", weight_decay, weight_decay >= 0);
  SG_CHECK(!parameters_.empty(), name_, ": there are no parameters to optimize");
  std::unordered_set<Tensor::Impl*> seen;
  std::unordered_set<std::string> names;
  for (const NamedParameter& parameter : parameters_) {
    SG_CHECK(parameter.tensor.is_leaf(), name_, ": '", parameter.name,
             "' was computed, and a step would change nothing that is trained; give what it was computed from, or a ",
             "leaf of its values, x.detach()");
    SG_CHECK(seen.insert(&parameter.tensor.impl()).second, name_, ": '", parameter.name, "' is given twice");
    SG_CHECK(
        names.insert(parameter.name).second, name_, ": two parameters have the name '", parameter.name,
        "', by which the state is saved; make the models children of one module and give that one's parameters, or "
        "put a prefix before the names of each");
    slots_.push_back({owner_of(parameter.tensor), weight_decay, 1});
    if (trains(slots_.size() - 1)) check_dtype(slots_.size() - 1);
  }
  apply_rules(rules);
}

void Optimizer::check_dtype(size_t i) const {
  bool is_bf16 = updated_dtype(parameters_[i], slots_[i].owner) == DType::bf16;
  if (is_bf16 && stochastic_rounding_) return;
  check_wide(name_, parameters_[i], slots_[i].owner,
             is_bf16                ? "; SGD, Adam and AdamW take bf16 with stochastic_rounding"
             : stochastic_rounding_ ? "; stochastic_rounding is for bf16"
                                    : "");
}

// State of before the parameter went to another device or dtype.
void Optimizer::check_state(size_t i) const {
  if (slots_[i].owner || slots_[i].states.empty()) return;
  const Tensor &tensor = parameters_[i].tensor, &state = slots_[i].states[0][0];
  bool fits = state.device() == tensor.device() && (state.dtype() == DType::f64) == (tensor.dtype() == DType::f64);
  SG_CHECK(fits, name_, ": '", parameters_[i].name,
           "' went to another device or dtype after a step of this optimizer, ", "whose state is still ", state.dtype(),
           " on ", state.device(), "; make the optimizer after Module::to");
}

// --- a step --------------------------------------------------------------------------------------------------------

// `whole` is room for the only range of a parameter that is not sharded.
std::span<const LocalRange> Optimizer::ranges_of(size_t i, Gradients gradients, LocalRange& whole) const {
  const Tensor& tensor = parameters_[i].tensor;
  GradSink* owner = slots_[i].owner;
  check_owner(name_, "optimizer", parameters_[i], owner);
  bool used = gradients == Gradients::used;
  if (owner) return used ? owner->local_ranges() : owner->owned_ranges();
  whole = {tensor, used ? tensor.grad() : Tensor(), 0, tensor.numel()};
  return {&whole, 1};
}

// Whether the parameter has a gradient, also where this rank holds no part of it.
bool Optimizer::add_pieces(size_t i, std::vector<Piece>& pieces) const {
  if (!trains(i)) return false;
  LocalRange whole;
  size_t part = 0;
  bool found = false;
  for (const LocalRange& range : ranges_of(i, Gradients::used, whole)) {
    bool here = in_memory(range.grad);
    if (here && range.values.numel() > 0) pieces.push_back({range, i, part});
    found = found || here;
    ++part;
  }
  return found;
}

void Optimizer::wait_for(const Piece& piece) const {
  if (GradSink* owner = slots_[piece.index].owner) owner->wait();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> found;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < slots_.size(); ++i) add_pieces(i, pieces);
  for (const Piece& piece : pieces) {
    wait_for(piece);
    const Tensor& grad = piece.range.grad;
    Tensor all = flat(grad, 0, grad.numel());
    if (!found.empty() && adjacent(found.back(), all))
      found.back() = flat(found.back(), 0, found.back().numel() + all.numel());
    else
      found.push_back(all);
  }
  return found;
}

bool Optimizer::follows(const Piece& before, const Piece& after) const {
  const Slot &a = slots_[before.index], &b = slots_[after.index];
  if (before.range.values.dtype() == DType::bf16) return false;  // each is rounded by random bits of its own
  if (a.weight_decay != b.weight_decay || lr_of(before.index) != lr_of(after.index) || a.steps != b.steps) return false;
  if (!adjacent(before.range.values, after.range.values) || !adjacent(before.range.grad, after.range.grad))
    return false;
  const Tensor &copy_before = before.range.copy, &copy_after = after.range.copy;
  if (copy_before.defined() != copy_after.defined()) return false;
  if (copy_before.defined() && !adjacent(copy_before, copy_after)) return false;
  for (size_t s = 0; s < state_names_.size(); ++s)
    if (!adjacent(a.states[before.part][s], b.states[after.part][s])) return false;
  return true;
}

// The first `count` elements of neighbours.
Optimizer::Run Optimizer::run_of(std::span<const Piece> pieces, int64_t count, double grad_scale) const {
  const Piece& first = pieces[0];
  const Slot& slot = slots_[first.index];
  Run run{flat(first.range.values, 0, count),
          flat(first.range.grad, 0, count),
          first.range.copy.defined() ? flat(first.range.copy, 0, count) : Tensor(),
          {},
          lr_of(first.index),
          slot.weight_decay,
          slot.steps + 1,
          grad_scale,
          {},
          {},
          random_of(first.index, slot.steps + 1),
          first.range.begin};
  for (size_t s = 0; s < state_names_.size(); ++s) run.states[s] = flat(slot.states[first.part][s], 0, count);
  return run;
}

Spread Optimizer::spread_of(size_t i) const {
  const Tensor& tensor = parameters_[i].tensor;
  GradSink* owner = slots_[i].owner;
  return owner ? owner->spread() : Spread{.dtype = tensor.dtype(), .device = tensor.device()};
}

void Optimizer::step(double grad_scale) { step(grad_scale, {}); }

void Optimizer::step(const Tensor& grad_scale) {
  SG_CHECK(grad_scale.numel() == 1 && grad_scale.dtype() == DType::f64, name_, ": grad_scale is ", grad_scale,
           "; it must be one number of f64");
  if (Capture::current()) check_capture({});
  takes_scale() ? step(1, grad_scale) : step(grad_scale.device() == kMeta ? 1 : grad_scale.item(), {});
}

void Optimizer::step(double grad_scale, const Tensor& scale) {
  check_option(name_.c_str(), "grad_scale", grad_scale, true);
  if (Capture::current()) begin_capture();
  std::vector<Piece> pieces = take_pieces();
  if (Capture::current()) check_capture(pieces);
  Device device = pieces.empty() ? context().default_device() : pieces[0].range.values.device();
  ComputeSpan span(device, {.op = "step", .phase = "step"});
  allocate_states();
  tell_owners(&GradSink::before_write);
  try {
    update_all(pieces, grad_scale, scale);
    finish(pieces, grad_scale);
  } catch (...) {
    try {
      publish(pieces);  // some of them are new
    } catch (...) {     // the first cause is the one to tell
    }
    throw;
  }
  publish(pieces);
  end_step();
  if (Capture::current()) repeat_in_replays(pieces);
}

void Optimizer::end_step() {
  context().recorder().end_step();
  if (++calls_ == kCallsToWarning) warn_of_untrained();
}

// What a step updates, after all that it refuses.
std::vector<Optimizer::Piece> Optimizer::take_pieces() {
  std::vector<Piece> pieces;
  pieces.reserve(slots_.size());
  bool any = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].has_gradient = add_pieces(i, pieces);
    if (!slots_[i].has_gradient) continue;
    check_dtype(i);
    check_state(i);
    any = slots_[i].had_gradient = true;
  }
  SG_CHECK(any, name_, ": no parameter has a gradient; call backward() before step()");
  return pieces;
}

void Optimizer::publish(std::span<const Piece> pieces) const {
  for (const Piece& piece : pieces) piece.range.values.bump_version();
  tell_owners(&GradSink::written);
}

// Also where this rank holds no part of a parameter: every rank must know that it changed.
void Optimizer::tell_owners(void (GradSink::*event)()) const {
  reach_all(slots_, [event](const Slot& slot) {
    if (slot.owner && slot.has_gradient) (slot.owner->*event)();
  });
}

void Optimizer::warn_of_untrained() const {
  constexpr size_t kShown = 3;
  size_t count = 0;
  std::string names;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (trains(i) && !slots_[i].had_gradient && count++ < kShown)
      names += concat(names.empty() ? "'" : ", '", parameters_[i].name, "'");
  if (count > kShown) names += concat(" and ", count - kShown, " more");
  if (count > 0)
    warn(concat(name_, ": no gradient in ", calls_, " steps for ", names, ", so nothing trains there; use it in ",
                "forward, freeze it with set_requires_grad(false), or leave it out of the optimizer"));
}

void Optimizer::zero_grad() {
  for (const NamedParameter& parameter : parameters_) parameter.tensor.zero_grad();
}

void Optimizer::allocate_states(const IsGiven& given) {
  if (state_names_.empty()) return;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].states.empty() && (trains(i) || is_given(i, given))) {
      LocalRange whole;
      size_t part = 0;
      for (const LocalRange& range : ranges_of(i, Gradients::unused, whole)) pieces.push_back({range, i, part++});
    }
  for (size_t begin = 0, end; begin < pieces.size(); begin = end) {
    for (end = begin + 1; end < pieces.size() && adjacent(pieces[end - 1].range.values, pieces[end].range.values);)
      ++end;
    allocate_run(std::span(pieces).subspan(begin, end - begin));
  }
}

DType Optimizer::state_dtype(const Tensor& values) { return values.dtype() == DType::f64 ? DType::f64 : DType::f32; }

// One storage per state for parameters that lie end to end, so that one kernel can update them all.
void Optimizer::allocate_run(std::span<const Piece> pieces) {
  const Tensor& first = pieces[0].range.values;
  int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.range.values.numel();
  TagScope owner(Tag{Category::optimizer_state, first.storage()->tag().unit});
  States whole;
  for (size_t s = 0; s < state_names_.size(); ++s) {
    whole[s] = empty({count}, {state_dtype(first), first.device()});
    launch(kernels::fill, whole[s], out(whole[s]), 0.0);
  }
  int64_t begin = 0;
  for (const Piece& piece : pieces) {
    int64_t length = piece.range.values.numel();
    States& part = slots_[piece.index].states.emplace_back();
    for (size_t s = 0; s < state_names_.size(); ++s) part[s] = flat(whole[s], begin, length);
    begin += length;
  }
}

}  // namespace shardgrad::optim
