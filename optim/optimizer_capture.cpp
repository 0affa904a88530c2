// A step that is captured, to be run again (core/capture.h): what the host does in each replay.

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

void Optimizer::check_capture(std::span<const Piece> pieces) const {
  if (!can_be_captured())
    refuse_in_capture(concat("a step of ", name_, ", whose launches hold its learning rate,"),
                      "use SGD, Adam or AdamW");
  for (const Piece& piece : pieces) {
    const std::string& name = parameters_[piece.index].name;
    if (Device device = piece.range.values.device(); device != Capture::current()->device())
      refuse_in_capture(concat("the update of '", name, "', which is on ", device, ","),
                        "keep parameters and gradients on the device");
  }
  for (size_t i = 0; i < slots_.size() && !state_names_.empty(); ++i) {
    LocalRange whole;
    if (trains(i) && slots_[i].states.empty() && !ranges_of(i, Gradients::unused, whole).empty())
      refuse_in_capture(concat(name_, "'s state of '", parameters_[i].name, "', which a first step makes,"),
                        "make a step that is not captured before");
  }
}

// The numbers of all that is updated together must stay alike.
std::function<Optimizer::Now()> Optimizer::later_of(std::span<const Piece> pieces) const {
  std::vector<size_t> together;
  for (const Piece& piece : pieces) together.push_back(piece.index);
  size_t first = together[0];
  Capture::current()->check_replay([this, first, together = std::move(together)] {
    for (size_t i : together)
      SG_CHECK(lr_of(i) == lr_of(first) && slots_[i].steps == slots_[first].steps, name_, ": '",
               parameters_[first].name, "' and '", parameters_[i].name,
               "' were updated together when the step was captured, and have learning rates or counts of steps that ",
               "differ now; make a new StepGraph");
  });
  return [this, first] {
    int64_t step = slots_[first].steps + 1;
    return Now{lr_of(first), step, random_of(first, step)};
  };
}

void Optimizer::check_not_moved(std::span<const Place> places) const {
  for (const auto& [i, part, storage, at] : places) {
    LocalRange whole;
    const Tensor& now = ranges_of(i, Gradients::unused, whole)[part].values;
    SG_CHECK(now.storage() == storage && storage->resident() && now.out().data == at, name_, ": '", parameters_[i].name,
             "' was moved since the step was captured; make a new StepGraph");
  }
}

// A step that is refused is not made, nor counted.
void Optimizer::begin_capture() {
  Capture& capture = *Capture::current();
  if (!capture.is_first(this)) return;
  capture.on_give_up([weak = std::weak_ptr(self_), before = slots_, calls = calls_] {
    std::shared_ptr<Optimizer> self = weak.lock();
    if (!self) return;
    self->slots_ = before;
    self->calls_ = calls;
  });
  capture.check_replay([weak = std::weak_ptr(self_), name = name_] {
    SG_CHECK(!weak.expired(), name, ": this optimizer of a captured step (StepGraph) is gone; keep it as long as the ",
             "step is called");
  });
}

// Before the replay it is counted, after it its values are new. What is not trained may be read by the step.
void Optimizer::repeat_in_replays(std::span<const Piece> pieces) {
  std::vector<Place> places;
  std::vector<bool> counted(slots_.size());
  for (const Piece& piece : pieces) counted[piece.index] = true;
  for (size_t i = 0; i < slots_.size(); ++i) {
    LocalRange whole;
    size_t part = 0;
    for (const LocalRange& range : ranges_of(i, Gradients::unused, whole)) {
      const Tensor& values = range.values;
      if (values.storage()->resident()) places.push_back({i, part, values.storage(), values.out().data});
      ++part;
    }
  }
  Capture& capture = *Capture::current();
  capture.check_replay([this, places = std::move(places)] { check_not_moved(places); });
  std::vector<bool> trained(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) trained[i] = trains(i);
  capture.check_replay([this, trained = std::move(trained)] {
    for (size_t i = 0; i < slots_.size(); ++i)
      SG_CHECK(trains(i) == trained[i], name_, ": '", parameters_[i].name, "' was ", trained[i] ? "trained" : "frozen",
               " when the step was captured, and is ", trained[i] ? "frozen" : "trained", " now; make a new StepGraph");
  });
  capture.before_replay([this, counted] {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].has_gradient = counted[i];
    tell_owners(&GradSink::before_write);
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].steps += counted[i] ? 1 : 0;
  });
  capture.after_replay([this, counted] {
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].has_gradient = counted[i];
    tell_owners(&GradSink::written);
    end_step();
  });
}

}  // namespace shardgrad::optim
