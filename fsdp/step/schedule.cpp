#include <shardgrad/fsdp/step/schedule.h>

#include <algorithm>

namespace shardgrad::fsdp {

// An order of calls that never comes back to where it began is cut after so many.
static constexpr size_t kCallsPerUnit = 16;

// --- forward --------------------------------------------------------------------------------------------------------

bool Schedule::Order::expects(const Unit& unit) const {
  return std::find(last.begin() + std::ptrdiff_t(cursor), last.end(), &unit) != last.end();
}

std::span<Unit* const> Schedule::Order::advance(Unit& unit, int count) {
  current.push_back(&unit);
  auto here = std::find(last.begin() + std::ptrdiff_t(cursor), last.end(), &unit);
  if (here == last.end()) return {};  // not where it was last time: nothing is expected
  cursor = size_t(here - last.begin()) + 1;
  return std::span(last).subspan(cursor, std::min(size_t(count), last.size() - cursor));
}

void Schedule::Order::restart() {
  if (!current.empty()) last = std::exchange(current, {});
  cursor = 0;
}

void Schedule::restart(Order& order) {
  order.restart();
  if (&order == &forward_ && !finished_.empty()) last_finished_ = std::exchange(finished_, {});
}

void Schedule::give_up_ahead() {
  for (Unit* unit : std::exchange(ahead_, {})) release(*unit, "forward");
}

void Schedule::begin_outermost_call() {
  bool backward_failed = in_backward_ && !(shardgrad::in_backward() && pass_ == backward_pass());
  if (forward_failed_ || backward_failed) recover();
  begin_captured();
}

void Schedule::begin_forward() {
  if (recomputing()) return;
  Turn::Hold inside(turn_, "a sharded model", kOneThread);
  if (calls_.empty()) {
    begin_outermost_call();
    restart(eval_);
    if (grad_enabled()) restart(forward_);
  }
  calls_.push_back({nullptr, nn::running_call(), last_sequence()});
  inside.keep();
}

void Schedule::end_forward() {
  if (recomputing()) return;
  pop_call(nullptr);
  Turn::Leave leave(turn_);
  // Units that came next the last time, and were not called this time.
  if (calls_.empty()) give_up_ahead();
}

bool Schedule::running(const Unit& unit) const { return std::ranges::find(calls_, &unit, &Call::unit) != calls_.end(); }

bool Schedule::is_last_call(const Unit* unit) const {
  return !calls_.empty() && calls_.back().unit == unit && calls_.back().number == nn::running_call();
}

Schedule::Call Schedule::pop_call(const Unit* unit) {
  SG_ASSERT(is_last_call(unit), "calls of units return in another order than they began");
  Call call = calls_.back();
  calls_.pop_back();
  return call;
}

void Schedule::forward_failed(Unit* unit) {
  if (!turn_.is_mine() || !is_last_call(unit)) return;  // it failed before or after the call was counted
  calls_.pop_back();
  Turn::Leave leave(turn_);
  if (calls_.empty())
    forward_failed_ = true;
  else if (unit && !running(*unit))
    ahead_.push_back(unit);  // whoever called it has caught the exception, if this is read
}

// Where the root is not called, its children's calls are taken to begin anew with the unit that they began with.
void Schedule::begin_again(const Unit& unit, Order& order) {
  bool first = !order.current.empty() && order.current.front() == &unit && !order.expects(unit);
  if (!first && order.current.size() < kCallsPerUnit * units_.size()) return;
  restart(order);
  give_up_ahead();
}

void Schedule::check_usable(const Unit& unit) const {
  SG_CHECK(!ended_, "unit '", unit.name(), "' is to compute after its context or process group has ended");
  SG_CHECK(!summoned_, "unit '", unit.name(), "' is to compute in a scope of SummonFullParams; leave the scope first");
}

void Schedule::before_forward(Unit& unit) {
  check_usable(unit);
  Turn::Hold inside(turn_, "unit '", unit.name(), "'", kOneThread);
  used_ = true;
  Order& order = grad_enabled() ? forward_ : eval_;
  if (calls_.empty() && !recomputing()) {
    begin_outermost_call();
    begin_again(unit, order);
  }
  calls_.push_back({&unit, nn::running_call(), last_sequence()});
  inside.keep();
  if (recomputing()) {
    begin_backward();
    gather(unit, "backward", backward_);
    return timeline_.begin("recompute", unit.name());
  }
  gather(unit, "forward", order);
  timeline_.begin("forward", unit.name());
}

void Schedule::after_forward(Unit& unit, std::span<const Tensor> outputs) {
  timeline_.end(recomputing() ? "recompute" : "forward", unit.name());
  Call call = pop_call(&unit);
  Turn::Leave leave(turn_);
  bool backward_follows = false;
  for (const Tensor& output : outputs) {
    Node* node = grad_enabled() ? node_of(output) : nullptr;
    if (!node || output.is_leaf()) continue;
    backward_follows = true;
    if (recomputing()) continue;  // the nodes of the first run have the hook
    node->add_pre_hook([self = shared(), call, now = node->sequence()] { self->before_backward(call, now); });
  }
  bool stays = recomputing() ? backward_follows : keep(unit, backward_follows);
  if (stays) return;
  if (!recomputing() && backward_follows && !running(unit)) unit.take_secondary();
  release(unit, recomputing() ? "backward" : "forward");
}

bool Schedule::keep(Unit& unit, bool backward_follows) {
  if (!backward_follows || running(unit)) return false;
  if (unit.is_root()) return true;
  finished_.push_back(&unit);
  bool last = finished_.size() == last_finished_.size() && last_finished_.back() == &unit;
  return last || !unit.reshards_after_forward();
}

// --- backward -------------------------------------------------------------------------------------------------------

void Schedule::bring_back(Unit& unit) {
  if (!shardgrad::in_backward()) return;
  check_usable(unit);
  begin_backward();
  gather(unit, "backward", backward_);
}

void Schedule::before_backward(const Call& call, uint64_t now) {
  Unit& unit = *call.unit;
  check_usable(unit);
  begin_backward();
  release_frozen(now);
  if (unit.has_frozen()) frozen_.push_back(call);
  gather(unit, "backward", backward_);
  timeline_.begin("backward", unit.name());
}

void Schedule::release_frozen(uint64_t now) {
  for (size_t i = 0; i < frozen_.size();) {
    Unit* unit = frozen_[i].unit;
    if (frozen_[i].called_at < now) {
      ++i;
      continue;
    }
    frozen_.erase(frozen_.begin() + std::ptrdiff_t(i));
    bool used = std::ranges::any_of(frozen_, [&](const Call& call) { return call.unit == unit; });
    if (!used && !unit->expects_grads()) release(*unit, "backward");
  }
}

void Schedule::begin_backward() {
  Turn::Hold inside(turn_, "a sharded model", kOneThread);
  if (in_backward_ && pass_ == backward_pass()) return;
  if (in_backward_) recover();  // the last pass failed, and its caller went on with another
  in_backward_ = true;
  pass_ = backward_pass();
  on_backward_end([self = shared()] { self->end_backward(); });
  on_backward_failed([self = shared()] { self->backward_failed(); });
  inside.keep();
  pass_is_inside_ = true;
  backward_.restart();
  if (!backward_.last.empty()) return;
  // The first backward: expect the reverse of the order in which units finished forward.
  if (!units_.empty() && units_[0]->is_root()) backward_.last.push_back(units_[0].get());
  backward_.last.insert(backward_.last.end(), finished_.rbegin(), finished_.rend());
}

void Schedule::after_grads(Unit& unit, FlatParam& flat, bool last) {
  begin_backward();
  if (last) timeline_.end("backward", unit.name());
  reduce_or_hold(unit, flat);
  if (last && !unit.has_frozen()) release(unit, "backward");
}

// What other units hold for their reductions is given back before the next unit writes its gradients.
void Schedule::reduce_or_hold(Unit& unit, FlatParam& flat) {
  if (!sync_) return flat.grads().hold();
  if (!flat.grads().is_open()) return;
  flat.grads().start_reduce(numbered_);
  auto may_go_on = [&](const auto& earlier) {
    return earlier.first == &unit || !earlier.second->grads().frees_when_reduced();
  };
  auto over = std::stable_partition(reducing_.begin(), reducing_.end(), may_go_on);
  for (auto earlier = over; earlier != reducing_.end(); ++earlier) earlier->second->grads().finish_reduce();
  reducing_.erase(over, reducing_.end());
  reducing_.emplace_back(&unit, &flat);
}

void Schedule::end_backward() {
  timeline_.end_all();
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit)
    for (const auto& flat : (*unit)->flat_params()) reduce_or_hold(**unit, *flat);
  for (auto [unit, flat] : std::exchange(reducing_, {})) flat->grads().finish_reduce();
  for (auto& unit : units_) {
    release(*unit, "backward");
    SG_ASSERT(unit->permanent() || unit->state() == UnitState::sharded || running(*unit), "unit '", unit->name(),
              "' is ", name_of(unit->state()), " at the end of backward");
  }
  ahead_.clear();
  frozen_.clear();
  in_backward_ = false;
  if (calls_.empty()) restart(forward_), restart(eval_);
  leave_pass();
}

// --- both -----------------------------------------------------------------------------------------------------------

void Schedule::gather(Unit& unit, const char* phase, Order& order) {
  std::erase(ahead_, &unit);
  std::span<Unit* const> next = order.advance(unit, config_.prefetch);
  unit.unshard(phase);
  size_t bytes = 0;
  for (Unit* started : ahead_) bytes += started->full_bytes();
  for (Unit* candidate : next) {
    if (candidate == &unit || !candidate->needs_gather()) continue;
    bytes += candidate->full_bytes();
    if (config_.prefetch_bytes > 0 && bytes > size_t(config_.prefetch_bytes)) break;
    candidate->unshard(phase);
    ahead_.push_back(candidate);
  }
  unit.wait();
}

void Schedule::gather_ahead(Unit& unit) {
  check_usable(unit);
  Turn::Hold inside(turn_, "unit '", unit.name(), "'", kOneThread);
  if (calls_.empty()) begin_outermost_call();
  if (!unit.needs_gather()) return;
  unit.unshard("forward");
  ahead_.push_back(&unit);
}

void Schedule::give_back(Unit& unit) {
  std::erase(ahead_, &unit);
  release(unit, "forward");
}

// A unit whose module still runs is released by whoever returns from it last: a forward may hold a whole backward pass.
void Schedule::release(Unit& unit, const char* phase) {
  if (unit.state() == UnitState::sharded || running(unit)) return;
  unit.reshard();
  if (unit.permanent()) return;
  timeline_.instant({.op = "reshard", .unit = unit.name(), .phase = phase});
}

// Its caller may go on, or end the program: nothing is waited for before the next use, but no gradient is shown.
void Schedule::backward_failed() {
  in_backward_ = true;  // it may be over for this model, and have failed in another
  for (auto& unit : units_)
    for (const auto& flat : unit->flat_params()) flat->grads().tear(FlatGrad::kPassFailed);
  leave_pass();
}

void Schedule::recover() {
  timeline_.end_all();
  for (auto& unit : units_) {
    for (const auto& flat : unit->flat_params())
      if (in_backward_) flat->grads().abandon();
    if (!running(*unit)) unit->reshard();
  }
  for (Order* order : {&forward_, &eval_, &backward_}) {
    order->current.clear();
    order->cursor = 0;
  }
  finished_.clear();
  ahead_.clear();
  frozen_.clear();
  reducing_.clear();
  forward_failed_ = in_backward_ = false;
}

}  // namespace shardgrad::fsdp
