#include <shardgrad/optim/ema.h>

#include <algorithm>
#include <utility>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/workspace.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/optim/ranges.h>

namespace shardgrad::optim {
namespace {

bool alike(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.device() == b.device() && a.shape() == b.shape();
}

// Memory for the change of the largest of these, of each dtype and device.
class Rooms {
 public:
  Tensor of(const Tensor& values) {
    auto fits = [&](const Tensor& room) { return room.dtype() == values.dtype() && room.device() == values.device(); };
    auto found = std::ranges::find_if(rooms_, fits);
    if (found == rooms_.end()) found = rooms_.insert(found, Tensor());
    TagScope owner(Category::workspace);
    if (!found->defined() || found->numel() < values.numel())
      *found = Tensor(), *found = empty({values.numel()}, {values.dtype(), values.device()});
    return found->rows(0, values.numel()).view(values.shape());
  }

 private:
  std::vector<Tensor> rooms_;
};

}  // namespace

EMA::EMA(std::vector<NamedParameter> parameters, double decay)
    : parameters_(std::move(parameters)), averages_(parameters_.size()), decay_(decay) {
  check_option("EMA", "decay", decay, decay >= 0 && decay < 1);
  SG_CHECK(!parameters_.empty(), "EMA: there are no parameters to average");
  for (const NamedParameter& parameter : parameters_) {
    owners_.push_back(owner_of(parameter.tensor));
    check_wide("EMA", parameter, owners_.back());
  }
}

std::vector<EMA::Piece> EMA::pieces() const {
  std::vector<Piece> found;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const NamedParameter& parameter = parameters_[i];
    check_owner("EMA", "average", parameter, owners_[i]);
    size_t part = 0;
    if (!owners_[i]) {
      SG_CHECK(parameter.tensor.storage()->resident(), "EMA: '", parameter.name,
               "' has no values yet; call the model once, or materialize()");
      found.push_back({parameter.tensor.detach(), Tensor(), i, part});
    } else {
      owners_[i]->wait();
      for (const LocalRange& range : owners_[i]->owned_ranges())
        found.push_back({range.values.detach(), range.copy, i, part++});
    }
  }
  for (const Piece& piece : found)
    SG_CHECK(!begun_ || alike(piece.values, averages_[piece.index].at(piece.part)), "EMA: '",
             parameters_[piece.index].name,
             "' went to another device or dtype after the first update; make the EMA anew");
  return found;
}

void EMA::update() {
  SG_CHECK(!swapped_, "EMA: the averages are in the model; swap() back before update()");
  NoGrad no_grad;
  std::vector<std::vector<Tensor>> first(parameters_.size());  // all of them, or none where memory ends
  std::vector<Piece> all = pieces();
  if (Capture::current()) repeat_in_replays(all);
  Rooms rooms;  // before an average changes: memory may end
  for (const Piece& piece : all)
    if (begun_) rooms.of(piece.values);
  for (const Piece& piece : all) {
    TagScope owner(Tag{Category::optimizer_state, piece.values.storage()->tag().unit});
    if (!begun_) {
      first[piece.index].push_back(clone(piece.values));
    } else {
      const Tensor &average = averages_[piece.index][piece.part], change = rooms.of(piece.values);
      launch(kernels::sub, change, out(change), piece.values, average);
      launch(kernels::affine, average, out(average, 1), change, 1 - decay_, 0.0);
    }
  }
  if (!begun_) averages_ = std::move(first);
  begun_ = true;
}

// Of the same memory, while this lives, and not while the averages are in the model.
void EMA::repeat_in_replays(std::vector<Piece> pieces) const {
  if (!begun_) refuse_in_capture("EMA's first update, which makes the averages,", "update once before");
  Capture::current()->check_replay([this, weak = std::weak_ptr(self_), were = std::move(pieces)] {
    SG_CHECK(!weak.expired(), "EMA: the averages of a captured step (StepGraph) are gone; keep them as long as the ",
             "step is called");
    SG_CHECK(!swapped_, "EMA: the averages are in the model; swap() back before a step that updates them");
    std::vector<Piece> are = this->pieces();
    for (size_t i = 0; i < are.size(); ++i)
      SG_CHECK(are[i].values.storage() == were[i].values.storage(), "EMA: '", parameters_[are[i].index].name,
               "' was moved since the step was captured; make a new StepGraph");
  });
}

void EMA::swap() {
  if (Capture::current()) refuse_in_capture("EMA::swap()", "swap before the step or after it");
  SG_CHECK(begun_, "EMA: there is no average yet; call update() after a step");
  NoGrad no_grad;
  std::vector<Piece> all = pieces();
  std::vector<Tensor> values;  // all of them before any changes: memory may end
  for (const Piece& piece : all) {
    TagScope owner(Tag{Category::optimizer_state, piece.values.storage()->tag().unit});
    values.push_back(clone(piece.values));
  }
  auto tell_owners = [this](void (GradSink::*event)()) {
    reach_all(owners_, [event](GradSink* owner) {
      if (owner) (owner->*event)();
    });
  };
  tell_owners(&GradSink::before_write);
  for (size_t i = 0; i < all.size(); ++i) {
    const Piece& piece = all[i];
    Tensor& average = averages_[piece.index][piece.part];
    copy_into(piece.values, average);
    copy_into(average, values[i]);
    if (piece.copy.defined()) launch(kernels::cast, piece.values, out(piece.copy), piece.values);
  }
  swapped_ = !swapped_;
  tell_owners(&GradSink::written);
}

}  // namespace shardgrad::optim
