// An operation is tested because it is registered: every check below runs over all cases of certify/registry.h.

#include <algorithm>
#include <set>

#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/registry.h>

#include <tests/autograd/declared_operations.h>
#include <tests/autograd/support.h>
#include <tests/devices.h>

namespace shardgrad::test {
namespace {

bool differentiable(const InputSpec& spec) { return spec.kind == InputSpec::Kind::differentiable; }

struct Outcome {
  std::vector<Tensor> results, grads;
};

// Backward through every result that has a gradient, from fixed upstream gradients.
void run_backward(const std::vector<Tensor>& results) {
  std::vector<Tensor> roots, upstream;
  for (size_t k = 0; k < results.size(); ++k) {
    if (!results[k].requires_grad()) continue;
    roots.push_back(results[k]);
    bool meta = results[k].device() == kMeta;
    upstream.push_back(meta ? empty_like(results[k]) : upstream_like(results[k], k));
  }
  if (!roots.empty()) backward(roots, upstream);
}

void require_grad(const OpCase& op, std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (differentiable(op.inputs[i])) inputs[i].set_requires_grad();
}

Outcome run_on(const OpCase& op, std::vector<Tensor> inputs) {
  require_grad(op, inputs);
  Outcome outcome;
  outcome.results = op.call(inputs);
  run_backward(outcome.results);
  for (const Tensor& input : inputs) outcome.grads.push_back(input.grad());
  return outcome;
}

Outcome run(const OpCase& op, DType dtype, Device device) { return run_on(op, op.make_inputs(dtype, device)); }

void expect_same_bits(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.results.size(), b.results.size());
  for (size_t k = 0; k < a.results.size(); ++k) EXPECT_EQ(bits(a.results[k]), bits(b.results[k])) << "result " << k;
  for (size_t i = 0; i < a.grads.size(); ++i) {
    ASSERT_EQ(a.grads[i].defined(), b.grads[i].defined()) << "gradient " << i;
    if (!a.grads[i].defined()) continue;
    EXPECT_EQ(bits(a.grads[i]), bits(b.grads[i])) << "gradient " << i;
  }
}

// To a part of the largest element, or of 1, the size of inputs and upstream, where the case says that results cancel.
void expect_close_outcomes(const OpCase& op, const Outcome& a, const Outcome& b, double tolerance,
                           const std::string& where) {
  for (size_t k = 0; k < b.results.size(); ++k)
    expect_close(values(a.results[k]), values(b.results[k]), tolerance, concat("result ", k, where), op.cancels);
  for (size_t i = 0; i < b.grads.size(); ++i)
    if (b.grads[i].defined())
      expect_close(values(a.grads[i]), values(b.grads[i]), tolerance, concat("gradient ", i, where), op.cancels);
}

void expect_parity(const OpCase& op, DType dtype, double tolerance) {
  expect_close_outcomes(op, run(op, dtype, kCpu), run(op, DType::f64, kCpu), tolerance, concat(" in ", dtype));
}

// Calls check with every case; an exception fails that case and the others go on.
template <class Check> void for_every_case(Check check, Purpose purpose = Purpose::promises) {
  for (const OpCase& op : op_cases(purpose)) {
    SCOPED_TRACE(op.name());
    EXPECT_NO_THROW(check(op));
  }
}

// What is made of numbers in the source, what has a shape that values give, what refuses special values, and what only
// sets something, has tests of its own.
const std::set<std::string> kTestedElsewhere{"tensor",    "from_blob",   "nonzero",    "masked_select",
                                             "bernoulli", "multinomial", "manual_seed"};

TEST(OpRegistry, EveryDeclaredOperationHasACase) {
  std::set<std::string> registered;
  for (const OpCase& op : op_cases()) registered.insert(op.op);
  std::set<std::string> declared = declared_operations();
  EXPECT_GE(declared.size(), 120u);
  for (const std::string& name : kTestedElsewhere) EXPECT_EQ(declared.erase(name), 1u) << name;
  EXPECT_EQ(registered, declared);
}

TEST(OpRegistry, EveryOperationHasCasesOfOddSizesBeyondABlockAndUnaligned) {
  std::set<std::string> registered, beyond_a_block, unaligned;
  for (const OpCase& op : op_cases()) registered.insert(op.op);
  Context context;
  for (const OpCase& op : op_cases(Purpose::sizes)) {
    std::vector<Tensor> operands = op.make_inputs(DType::f32, kMeta), results = op.call(operands);
    operands.insert(operands.end(), results.begin(), results.end());
    if (std::ranges::any_of(operands, [](const Tensor& x) { return x.numel() > 1024; })) beyond_a_block.insert(op.op);
    if (op.unaligned) unaligned.insert(op.op);
  }
  EXPECT_EQ(beyond_a_block, registered);
  EXPECT_EQ(unaligned, registered);
}

TEST(OpRegistry, ACaseCallsTheOperationThatItIsNamedAfter) {
  const std::set<std::string> made_of_others{"gelu: gelu_tanh", "mean: affine", "to_device: leaf",
                                             "transpose: permute"};
  Context context;
  for (const OpCase& op : op_cases()) {
    if (op.made_of_others) continue;
    std::vector<Tensor> inputs = op.make_inputs(DType::f32, kMeta);
    require_grad(op, inputs);
    for (const Tensor& result : op.call(inputs)) {
      if (!result.requires_grad()) continue;
      std::string name = node_of(result)->name();
      EXPECT_TRUE(name == op.op || made_of_others.contains(op.op + ": " + name)) << op.name() << " calls " << name;
    }
  }
}

TEST(OpRegistry, CaseNamesAreUnique) {
  std::set<std::string> names;
  for (Purpose purpose : {Purpose::promises, Purpose::sizes})
    for (const OpCase& op : op_cases(purpose)) EXPECT_TRUE(names.insert(op.name()).second) << op.name();
}

TEST(OpRegistry, UnalignedInputsBeginOneElementAfterAnAlignedAddress) {
  Context context;
  for (const OpCase& op : op_cases(Purpose::sizes))
    for (DType dtype : {DType::f32, DType::bf16})
      for (const Tensor& input : op.make_inputs(dtype, kCpu))
        EXPECT_EQ(reinterpret_cast<uintptr_t>(input.in().data) % 16, op.unaligned ? size_of(input.dtype()) : 0)
            << op.name();
}

TEST(OpRegistry, I16_GradientsAgreeWithCentralDifferences) {
  Context context;
  for_every_case([](const OpCase& op) { gradcheck_case(op, kCpu); });
}

TEST(OpRegistry, F32AgreesWithF64) {
  Context context;
  for_every_case([](const OpCase& op) { expect_parity(op, DType::f32, 2e-6); });
}

TEST(OpRegistry, HalfPrecisionAgreesWithF64) {
  Context context;
  for_every_case([](const OpCase& op) {
    expect_parity(op, DType::bf16, 1e-2);
    expect_parity(op, DType::f16, 0x1p-9);
  });
}

TEST(OpRegistry, OverwritesAPoisonedGradientAndAddsToAGivenOne) {
  Context context;
  for_every_case([](const OpCase& op) {
    if (!op.differentiable()) return;
    Outcome expected = run(op, DType::f64, kCpu);
    std::vector<Tensor> inputs = op.make_inputs(DType::f64, kCpu);
    require_grad(op, inputs);
    std::vector<std::shared_ptr<PoisonedSink>> sinks(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (differentiable(op.inputs[i]))
        leaf_of(inputs[i]).set_sink(sinks[i] = std::make_shared<PoisonedSink>(inputs[i]));
    run_backward(op.call(inputs));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (sinks[i]) {
        EXPECT_EQ(bits(inputs[i].grad()), bits(expected.grads[i])) << "gradient " << i;
        EXPECT_EQ(sinks[i]->opened, 1);
        EXPECT_EQ(sinks[i]->made_ready, 1);
        leaf_of(inputs[i]).set_sink(nullptr);
      }
    // Twice into the same leaf.
    run_backward(op.call(inputs));
    run_backward(op.call(inputs));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (sinks[i]) expect_close(values(inputs[i].grad()), values(affine(expected.grads[i], 2, 0)), 1e-14, "twice");
  });
}

TEST(OpRegistry, LeavesItsInputsAsTheyWere) {
  Context context;
  for_every_case([](const OpCase& op) {
    std::vector<Tensor> inputs = op.make_inputs(DType::f32, kCpu), copies = op.make_inputs(DType::f32, kCpu);
    run_on(op, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(bits(inputs[i]), bits(copies[i])) << "input " << i;
  });
}

TEST(OpRegistry, GivesTheSameBitsTwice) {
  Context context;
  for_every_case([](const OpCase& op) { expect_same_bits(run(op, DType::f32, kCpu), run(op, DType::f32, kCpu)); });
}

TEST(OpRegistry, GivesTheSameBitsOnAnAsynchronousDevice) {
  Context context;
  for_every_case([](const OpCase& op) { expect_same_bits(run(op, DType::f32, kCpu), run(op, DType::f32, kAcc)); });
}

// The kernels of kernels/cuda, on every device that runs them here, against those of the CPU.
TEST(OpRegistry, DevicesAgreeWithTheCpu) {
  Context context;
  for (Device device : kernel_devices())
    for (auto [dtype, tolerance] :
         {std::pair(DType::f32, 1e-5), {DType::f64, 1e-12}, {DType::bf16, 1e-2}, {DType::f16, 1e-2}})
      for_every_case([&, dtype = dtype, tolerance = tolerance](const OpCase& op) {
        expect_close_outcomes(op, run(op, dtype, device), run(op, dtype, kCpu), tolerance,
                              concat(" in ", dtype, " on ", device));
      });
}

TEST(OpRegistry, DevicesGiveTheSameBitsTwice) {
  Context context;
  for (Device device : kernel_devices())
    for_every_case(
        [&](const OpCase& op) { expect_same_bits(run(op, DType::f32, device), run(op, DType::f32, device)); });
}

TEST(OpRegistry, SpecialValuesComeOutAsTheReferenceHasThem) {
  Context context;
  for_every_case([](const OpCase& op) { try_special_values(op, kCpu); });
}

TEST(OpRegistrySlow, SpecialValuesComeOutAsTheReferenceHasThemOnEveryDevice) {
  Context context;
  for (Device device : kernel_devices()) {
    SCOPED_TRACE(device);
    for_every_case([&](const OpCase& op) { try_special_values(op, device); });
  }
}

// A minute of loops in f64 to compare with: scripts/test has it in its second half.
TEST(OpRegistrySizes, PromisesHoldAtOddSizes) {
  Context context;
  for_every_case([](const OpCase& op) { try_size_case(op, kCpu); }, Purpose::sizes);
}

// On the simulator it takes minutes: a quarter of the operations each, so that several run beside each other.
class OpRegistryQuarterSlow : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Each, OpRegistryQuarterSlow, testing::Range(0, 4));

TEST_P(OpRegistryQuarterSlow, PromisesHoldAtOddSizesOnEveryDevice) {
  Context context;
  for (Device device : kernel_devices()) {
    SCOPED_TRACE(device);
    int number = 0;
    for_every_case(
        [&](const OpCase& op) {
          if (number++ % 4 == GetParam()) try_size_case(op, device);
        },
        Purpose::sizes);
  }
}

TEST(OpRegistry, RandomDelaysChangeNothing) {
  for (uint64_t seed : {1, 2, 3}) {
    Context context({.delay_seed = seed});
    for_every_case([](const OpCase& op) { expect_same_bits(run(op, DType::f32, kCpu), run(op, DType::f32, kAcc)); });
  }
}

TEST(OpRegistry, ComputesShapesWithoutMemoryOnMeta) {
  Context context;
  for_every_case([](const OpCase& op) {
    Outcome real = run(op, DType::f32, kCpu), shapes = run(op, DType::f32, kMeta);
    ASSERT_EQ(real.results.size(), shapes.results.size());
    auto expect_like = [](const Tensor& a, const Tensor& b) {
      ASSERT_EQ(a.defined(), b.defined());
      if (!a.defined()) return;
      EXPECT_EQ(a.shape(), b.shape());
      EXPECT_EQ(a.dtype(), b.dtype());
      EXPECT_EQ(b.device(), kMeta);
    };
    for (size_t k = 0; k < real.results.size(); ++k) expect_like(real.results[k], shapes.results[k]);
    for (size_t i = 0; i < real.grads.size(); ++i) expect_like(real.grads[i], shapes.grads[i]);
  });
}

bool of_tried_dtype(const InputSpec& spec) {
  return spec.kind == InputSpec::Kind::differentiable || spec.kind == InputSpec::Kind::constant;
}

// Calls the operation with input `changed` put in another dtype or on another device.
void expect_refused(const OpCase& op, size_t changed, const Tensor& by, std::initializer_list<std::string> parts) {
  std::vector<Tensor> inputs = op.make_inputs(DType::f32, kCpu);
  inputs[changed] = by;
  std::string message = refusal([&] { op.call(inputs); });
  EXPECT_EQ(message.rfind(op.op + ": ", 0), 0u) << "input " << changed << " as " << by << ": '" << message << "'";
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
  auto names_shape = [&](const Tensor& x) { return message.find(concat(x.shape())) != std::string::npos; };
  EXPECT_TRUE(names_shape(by)) << "'" << message << "' lacks " << by.shape();
  if (size_t at = message.find(concat(by.shape())); at != std::string::npos)
    message.erase(at, concat(by.shape()).size());
  int others = 0;
  for (size_t i = 0; i < inputs.size(); ++i) others += i != changed && names_shape(inputs[i]);
  EXPECT_TRUE(others > 0 || inputs.size() == 1) << "'" << message << "' lacks the shape of another operand than " << by;
}

TEST(OpRegistry, RefusesAnOperandOfAnotherDtypeNamingBothAndTheRemedy) {
  Context context;
  int tried = 0;
  for_every_case([&](const OpCase& op) {
    if (op.made_of_others) return;
    std::vector<Tensor> inputs = op.make_inputs(DType::f32, kCpu);
    for (size_t i = 0; i < inputs.size(); ++i) {
      bool free = of_tried_dtype(op.inputs[i]);  // an operation on one tensor of any dtype has nothing to disagree with
      if (free && std::ranges::count_if(op.inputs, of_tried_dtype) < 2) continue;
      DType wrong = free ? DType::f64 : DType::i32;
      expect_refused(op, i, inputs[i].to(wrong), {name_of(wrong), name_of(inputs[i].dtype()), ".to(dtype)"});
      ++tried;
    }
  });
  EXPECT_GT(tried, 250);
}

TEST(OpRegistry, RefusesAnOperandOnAnotherDeviceNamingBothAndTheRemedy) {
  Context context;
  int tried = 0;
  for_every_case([&](const OpCase& op) {
    if (op.made_of_others) return;
    std::vector<Tensor> inputs = op.make_inputs(DType::f32, kCpu), shapes = op.make_inputs(DType::f32, kMeta);
    for (size_t i = 0; inputs.size() > 1 && i < inputs.size(); ++i) {
      expect_refused(op, i, inputs[i].to(kAcc), {"cpu", "acc", ".to(device)"});
      expect_refused(op, i, shapes[i], {"cpu", "meta", ".to(device)"});
      ++tried;
    }
  });
  EXPECT_GT(tried, 250);
}

}  // namespace
}  // namespace shardgrad::test
