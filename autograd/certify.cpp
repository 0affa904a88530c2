#include <shardgrad/autograd/certify.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include <shardgrad/autograd/gradcheck.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/rng.h>

namespace shardgrad {
namespace {

struct Outcome {
  std::vector<Tensor> results, grads;
};

/// A case, and what it gave before anything was replaced.
struct Subject {
  OpCase op;
  Outcome exact, built_in;  // f64 on the CPU, f32 on the device
};

bool differentiable(const InputSpec& spec) { return spec.kind == InputSpec::Kind::differentiable; }

Tensor upstream_like(const Tensor& result, uint64_t stream) {
  std::vector<double> numbers(static_cast<size_t>(result.numel()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = double(philox(3, stream, i)[0] % 128) / 64 - 1;
  return from_vector(numbers, result.shape(), {DType::f64, kCpu}).to(result.dtype()).to(result.device());
}

std::vector<Tensor> make_leaves(const OpCase& op, DType dtype, Device device) {
  std::vector<Tensor> inputs = op.make_inputs(dtype, device);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (differentiable(op.inputs[i])) inputs[i].set_requires_grad();
  return inputs;
}

Outcome run(const OpCase& op, const std::vector<Tensor>& inputs) {
  Outcome outcome{op.call(inputs), {}};
  std::vector<Tensor> roots, upstream;
  for (size_t k = 0; k < outcome.results.size(); ++k) {
    if (!outcome.results[k].requires_grad()) continue;
    roots.push_back(outcome.results[k]);
    upstream.push_back(upstream_like(outcome.results[k], k));
  }
  if (!roots.empty()) backward(roots, upstream);
  for (const Tensor& input : inputs) outcome.grads.push_back(input.grad());
  return outcome;
}
Outcome run(const OpCase& op, DType dtype, Device device) { return run(op, make_leaves(op, dtype, device)); }

std::vector<double> values(const Tensor& tensor) { return tensor.to(kCpu).to(DType::f64).to_vector<double>(); }

// Empty, or the first element outside the tolerance: a part of the largest one, or of `scale` where that is larger.
std::string difference(const char* what, size_t number, const Tensor& actual, const std::vector<double>& expected,
                       double tolerance, double scale = 0) {
  std::vector<double> numbers = values(actual);
  for (double value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    bool same = numbers[i] == expected[i] || (std::isnan(numbers[i]) && std::isnan(expected[i]));
    if (!same && !(std::abs(numbers[i] - expected[i]) <= tolerance * scale))
      return concat(what, " ", number, " of shape ", actual.shape(), ", element ", i, ", is ", numbers[i],
                    ", expected ", expected[i], " within ", tolerance * scale);
  }
  return "";
}

std::string difference(const Outcome& actual, const Outcome& expected, double tolerance, double scale = 0) {
  for (size_t k = 0; k < expected.results.size(); ++k)
    if (std::string found = difference("result", k, actual.results[k], values(expected.results[k]), tolerance, scale);
        !found.empty())
      return found;
  for (size_t i = 0; i < expected.grads.size(); ++i) {
    if (!expected.grads[i].defined()) continue;
    std::string found = difference("gradient", i, actual.grads[i], values(expected.grads[i]), tolerance, scale);
    if (!found.empty()) return found;
  }
  return "";
}

std::string check_gradient(const Subject& subject, Device device) {
  gradcheck_case(subject.op, device);
  return "";
}

constexpr double kF64Tolerance = 1e-12;

std::string check_oracle(const Subject& subject, Device device) {
  constexpr std::pair<DType, double> kTolerances[] = {
      {DType::f32, 1e-5}, {DType::f64, kF64Tolerance}, {DType::bf16, 1e-2}, {DType::f16, 0x1p-9}};
  for (auto [dtype, tolerance] : kTolerances) {
    std::string found = difference(run(subject.op, dtype, device), subject.exact, tolerance, subject.op.cancels);
    if (!found.empty()) return concat("in ", dtype, ", ", found);
  }
  return "";
}

std::string check_built_in(const Subject& subject, Device device) {
  if (subject.built_in.results.empty()) return "";  // nothing was replaced
  return difference(run(subject.op, DType::f32, device), subject.built_in, 1e-5, subject.op.cancels);
}

/// Owns a leaf's gradient, as well aligned as the leaf: NaN before the first write, which overwrites; later ones add.
class PoisonedSink final : public GradSink {
 public:
  PoisonedSink(const Tensor& leaf, bool unaligned)
      : buffer_(unaligned ? empty_unaligned(leaf.shape(), {leaf.dtype(), leaf.device()}) : empty_like(leaf)) {}
  Out open() override {
    if (beta_ == 0) fill_(buffer_, NAN);
    return out(buffer_, std::exchange(beta_, 1.0f));
  }
  void ready() override {}
  Tensor grad() const override { return buffer_; }
  void clear() override {}
  DType dtype() const override { return buffer_.dtype(); }
  std::span<const LocalRange> local_ranges() override { return {}; }
  void written() override {}

 private:
  Tensor buffer_;
  float beta_ = 0;
};

std::string check_beta(const Subject& subject, Device device) {
  const OpCase& op = subject.op;
  Outcome once = run(op, DType::f64, device);
  std::vector<Tensor> inputs = make_leaves(op, DType::f64, device);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (differentiable(op.inputs[i]))
      leaf_of(inputs[i]).set_sink(std::make_shared<PoisonedSink>(inputs[i], op.unaligned));
  // A library may sum in another order where the destination is aligned otherwise.
  double same = op.unaligned ? kF64Tolerance : 0, added = op.unaligned ? kF64Tolerance : 1e-14;
  std::string found = difference(run(op, inputs), once, same);
  if (!found.empty()) return concat("over NaN with beta 0, ", found);
  Outcome twice = run(op, inputs);
  for (size_t i = 0; i < once.grads.size(); ++i) {
    if (!once.grads[i].defined()) continue;
    std::vector<double> expected = values(once.grads[i]);
    for (double& value : expected) value *= 2;
    found = difference("gradient", i, twice.grads[i], expected, added);
    if (!found.empty()) return concat("added to itself with beta 1, ", found);
  }
  return "";
}

std::string check_inputs(const Subject& subject, Device device) {
  std::vector<Tensor> inputs = make_leaves(subject.op, DType::f32, device);
  std::vector<Tensor> before = subject.op.make_inputs(DType::f32, device);
  run(subject.op, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string found = difference("input", i, inputs[i], values(before[i]), 0);
    if (!found.empty()) return found;
  }
  return "";
}

std::string check_determinism(const Subject& subject, Device device) {
  Outcome first = run(subject.op, DType::f32, device);
  return difference(run(subject.op, DType::f32, device), first, 0);
}

using Check = std::string (*)(const Subject&, Device);

// All but central differences, which take two calls per element. The oracle's tolerances do for thousands of summands
// too: n of them lose about sqrt(n) roundings, 64 · 2^-24 for 4099 in f32.
std::string check_sizes(const Subject& subject, Device device) {
  for (Check check : {check_oracle, check_built_in, check_beta, check_inputs, check_determinism})
    if (std::string found = check(subject, device); !found.empty()) return found;
  return "";
}

Certificate::Property try_all(const char* name, Check check, const std::vector<Subject>& subjects, Device device) {
  if (subjects.empty())
    return {name, "the registry has no case of odd sizes; add_size_case of registry_cases.h adds one"};
  for (const Subject& subject : subjects) {
    std::string failure;
    try {
      failure = check(subject, device);
    } catch (const Error& error) {
      failure = error.what();
    }
    if (!failure.empty()) return {name, concat("case '", subject.op.name(), "': ", failure)};
  }
  return {name, ""};
}

std::vector<Subject> subjects_of(const std::string& op, Purpose purpose) {
  std::vector<Subject> subjects;
  for (OpCase& each : op_cases(purpose))
    if (each.op == op) subjects.push_back({each, run(each, DType::f64, kCpu), {}});
  return subjects;
}

}  // namespace

void gradcheck_case(const OpCase& op, Device device) {
  if (!op.differentiable()) return;
  // Constants are closed over: only differentiable inputs are moved.
  std::vector<Tensor> all = op.make_inputs(DType::f64, device), moved;
  for (size_t i = 0; i < all.size(); ++i)
    if (differentiable(op.inputs[i])) moved.push_back(all[i]);
  auto call = [&](std::span<const Tensor> in) {
    std::vector<Tensor> inputs = all;
    for (size_t i = 0, next = 0; i < inputs.size(); ++i)
      if (differentiable(op.inputs[i])) inputs[i] = in[next++];
    return op.call(inputs);
  };
  gradcheck_all(call, moved);
}

void try_size_case(const OpCase& op, Device device) {
  std::string failure = check_sizes({op, run(op, DType::f64, kCpu), {}}, device);
  SG_CHECK(failure.empty(), failure);
}

bool Certificate::holds() const {
  return std::ranges::all_of(properties, [](const Property& property) { return property.failure.empty(); });
}

Certificate certify(const std::string& op, Device device, const std::function<void()>& replace) {
  std::vector<Subject> subjects = subjects_of(op, Purpose::promises), sizes = subjects_of(op, Purpose::sizes);
  SG_CHECK(!subjects.empty(), "certify: the registry has no operation '", op,
           "'; its names are those of autograd/ops.h, and those that a library adds with OfferCases");
  if (replace) {
    for (std::vector<Subject>* all : {&subjects, &sizes})
      for (Subject& subject : *all) subject.built_in = run(subject.op, DType::f32, device);
    replace();
  }
  Certificate certificate;
  certificate.cases = int(subjects.size() + sizes.size());
  auto add = [&](const char* name, Check check) {
    certificate.properties.push_back(try_all(name, check, subjects, device));
  };
  add("gradient", check_gradient);
  add("oracle", check_oracle);
  if (replace) add("built-in", check_built_in);
  add("beta", check_beta);
  add("inputs", check_inputs);
  add("determinism", check_determinism);
  certificate.properties.push_back(try_all("sizes", check_sizes, sizes, device));
  return certificate;
}

}  // namespace shardgrad
