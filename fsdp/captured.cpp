// Sharded models in a step that is captured (core/capture.h), to be run again.

#include <shardgrad/core/capture.h>
#include <shardgrad/fsdp/step/flat_grad.h>
#include <shardgrad/fsdp/step/schedule.h>

namespace shardgrad::fsdp {

// A capture holds back what its device's allocator gave: ranks' common memory goes another way.
static void check_capture_keeps_memory(const std::vector<std::unique_ptr<Unit>>& units) {
  Device device = Capture::current()->device();
  for (const auto& unit : units)
    for (const auto& flat : unit->flat_params())
      if (flat->mesh().memory() != context().backend(device).memory())
        refuse_in_capture(concat("unit '", unit->name(), "', whose memory is that of a group of kind '",
                                 flat->mesh().world().kind(), "',"),
                          "leave the group's kind out: of one rank it needs none");
}

// It begins as each of its replays does: nothing is gathered that a step does not leave so, converted shards that stay
// are up to date, and there are no gradients, nor at its end.
void Schedule::begin_captured() {
  if (!Capture::current()) return;
  Capture& capture = *Capture::current();
  if (!capture.is_first(this)) return;
  check_capture_keeps_memory(units_);
  for (auto& unit : units_) unit->reshard();
  auto check = [this](const char* when) {
    for (const auto& unit : units_)
      for (const auto& flat : unit->flat_params())
        if (flat->grads().state() != GradState::empty)
          refuse_in_capture(concat("a gradient of unit '", unit->name(), "' ", when),
                            "zero_grad() at the step's end; all passes whose gradients are added up go into one step");
  };
  check("of before the step, to which it adds,");
  capture.at_end([check] { check("that it leaves"); });
  capture.on_give_up([self = shared()] { self->undo_captured(); });
  auto locked = [weak = std::weak_ptr(shared())] {
    std::shared_ptr<Schedule> self = weak.lock();
    SG_CHECK(self, "a sharded model of a captured step (StepGraph) is gone; keep it as long as the step is called");
    return self;
  };
  capture.check_replay([locked] { locked()->check_replay(); });
  capture.before_replay([locked] { locked()->before_replay(); });
}

void Schedule::check_replay() const {
  for (const auto& unit : units_) {
    check_usable(*unit);
    for (const auto& flat : unit->flat_params()) {
      flat->check_not_leased(true);
      SG_CHECK(flat->grads().state() == GradState::empty, "a captured step (StepGraph) begins without gradients, and ",
               "unit '", unit->name(), "' has one, to which the step would add; call zero_grad() before it");
    }
  }
}

// Nothing that was recorded has run: neither gradients nor conversions have values.
void Schedule::undo_captured() {
  Turn::Hold inside(turn_, "a sharded model", kOneThread);
  in_backward_ = true;
  recover();
  for (auto& unit : units_)
    for (const auto& flat : unit->flat_params()) {
      for (size_t i = 0; i < flat->slices().size(); ++i) flat->grads().zero(i);
      flat->shard_written();
    }
}

void Schedule::before_replay() {
  Turn::Hold inside(turn_, "a sharded model", kOneThread);
  for (auto& unit : units_)
    for (const auto& flat : unit->flat_params()) flat->refresh_converted();
}

// A replay would update with what lay there when the step was captured.
void FlatGrad::check_captured() const {
  Capture* capture = Capture::current();
  if (capture && capture->device() == grad_.device() && !capture->has_allocated(*grad_.storage()))
    refuse_in_capture(concat("a gradient of unit '", layout_.unit, "' of before it"),
                      "let backward and step() be in one StepGraph");
}

}  // namespace shardgrad::fsdp
