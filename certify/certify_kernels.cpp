// What a certificate asks of each kernel that an operation launches, by itself.

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/certify_outcome.h>
#include <shardgrad/certify/reference/table.h>

namespace shardgrad {
namespace {

bool overlaps(const Tensor& tensor, const std::vector<Tensor>& others) {
  return std::ranges::any_of(others, [&](const Tensor& other) { return other.storage() == tensor.storage(); });
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Runs each kernel a second time, on its own results, which must double.
class Adding final : public LaunchTrial {
 public:
  std::string failure;
  void launched(const Call& call) override {
    call.run(false);
    bool in_place = std::ranges::any_of(call.outputs, [&](const Tensor& out) { return overlaps(out, call.inputs); });
    // Nobody may have written the rest yet.
    bool writes_a_part = &call.slot == &kernels::paste || &call.slot == &kernels::scatter;
    if (!failure.empty() || !call.may_add || in_place || writes_a_part) return;
    NoGrad scope;
    std::vector<Tensor> before;
    for (const Tensor& out : call.outputs) before.push_back(clone(out.detach()));
    call.run(true);
    for (size_t k = 0; k < before.size() && failure.empty(); ++k) compare(call, k, before[k]);
    for (size_t k = 0; k < before.size(); ++k) copy_into(call.outputs[k], before[k]);
  }

 private:
  void compare(const Call& call, size_t k, const Tensor& before) {
    std::vector<double> old = values(before), sums = values(call.outputs[k].detach());
    for (size_t i = 0; i < old.size(); ++i) {
      if (std::abs(sums[i] - 2 * old[i]) <= 1e-14 * std::abs(old[i]) || same(sums[i], 2 * old[i])) continue;
      failure = concat("kernel ", call.slot.name(), " told to add (beta 1) its output ", k, " of shape ",
                       before.shape(), " to itself: element ", i, " is ", sums[i], ", expected ", 2 * old[i]);
      return;
    }
  }
};

class LeavesInputs final : public LaunchTrial {
 public:
  std::string failure;
  void launched(const Call& call) override {
    std::vector<Tensor> inputs;
    for (const Tensor& input : call.inputs)
      if (!overlaps(input, call.outputs)) inputs.push_back(input.detach());
    std::vector<std::vector<double>> before;
    for (const Tensor& input : inputs) before.push_back(values(input));
    call.run(false);
    for (size_t i = 0; i < inputs.size() && failure.empty(); ++i) {
      std::string found = difference("operand", i, inputs[i], before[i], 0);
      if (!found.empty()) failure = concat("kernel ", call.slot.name(), " changed what it may only read: ", found);
    }
  }
};

class Slots final : public LaunchTrial {
 public:
  std::set<const SlotBase*> slots;
  void launched(const Call& call) override {
    slots.insert(&call.slot);
    call.run(false);
  }
};

// The slots of these cases whose kernels have no reference, hence are a library's own.
std::vector<const SlotBase*> own_slots(std::span<const OpCase> cases) {
  Slots launched;
  for (const OpCase& op : cases) run(op, DType::f64, kCpu);
  reference::ReferenceKernels reference;
  std::vector<const SlotBase*> own;
  for (const SlotBase* slot : launched.slots)
    if (!reference.has(slot->name())) own.push_back(slot);
  std::ranges::sort(own, {}, [](const SlotBase* slot) { return std::string_view(slot->name()); });
  return own;
}

}  // namespace

std::string check_forward_adds(const Subject& subject, Device device) {
  std::vector<Tensor> inputs = as_leaves(subject.op, subject.op.make_inputs(DType::f64, device));
  Adding trial;
  subject.op.call(inputs);
  return trial.failure;
}

std::string check_kernels_inputs(const Subject& subject, Device device) {
  std::vector<Tensor> inputs = as_leaves(subject.op, subject.op.make_inputs(DType::f32, device));
  LeavesInputs trial;
  run(subject.op, inputs);
  return trial.failure;
}

std::string kernels_without_reference(std::span<const OpCase> cases, std::optional<DeviceKind> lacking) {
  std::string names;
  for (const SlotBase* slot : own_slots(cases))
    if (!lacking || !slot->has(*lacking, DType::f32)) names += concat(names.empty() ? "" : ", ", slot->name());
  return names;
}

}  // namespace shardgrad
