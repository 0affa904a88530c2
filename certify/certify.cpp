#include <shardgrad/certify/certify.h>

#include <algorithm>
#include <utility>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/certify_outcome.h>
#include <shardgrad/certify/gradcheck.h>

namespace shardgrad {
namespace {

std::string check_gradient(const Subject& subject, Device device) {
  gradcheck_case(subject.op, device);
  return "";
}

constexpr double kF64Tolerance = 1e-12;
constexpr std::pair<DType, double> kTolerances[] = {
    {DType::f32, 1e-5}, {DType::f64, kF64Tolerance}, {DType::bf16, 1e-2}, {DType::f16, 0x1p-9}};

std::string check_oracle(const Subject& subject, Device device) {
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

std::string check_beta(const Subject& subject, Device device) {
  const OpCase& op = subject.op;
  Outcome once = run(op, DType::f64, device);
  std::vector<Tensor> inputs = as_leaves(op, op.make_inputs(DType::f64, device));
  poison_gradients(op, inputs);
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
  return check_forward_adds(subject, device);
}

std::string check_inputs(const Subject& subject, Device device) {
  std::vector<Tensor> inputs = as_leaves(subject.op, subject.op.make_inputs(DType::f32, device));
  std::vector<Tensor> before = subject.op.make_inputs(DType::f32, device);
  run(subject.op, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::string found = difference("input", i, inputs[i], values(before[i]), 0);
    if (!found.empty()) return found;
  }
  return check_kernels_inputs(subject, device);
}

std::string check_determinism(const Subject& subject, Device device) {
  Outcome first = run(subject.op, DType::f32, device);
  return difference(run(subject.op, DType::f32, device), first, 0);
}

using Check = std::string (*)(const Subject&, Device);

// All but central differences, which take two calls per element. The oracle's tolerances do for thousands of summands
// too: n of them lose about sqrt(n) roundings, 64 · 2^-24 for 4099 in f32.
std::string check_sizes(const Subject& subject, Device device) {
  for (Check check : {check_oracle, check_built_in, check_beta, check_inputs, check_determinism, check_special_values})
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

std::vector<OpCase> cases_of(const std::string& op, Purpose purpose) {
  std::vector<OpCase> cases = op_cases(purpose);
  std::erase_if(cases, [&](const OpCase& each) { return each.op != op; });
  return cases;
}

std::vector<Subject> subjects_of(const std::string& op, Purpose purpose) {
  std::vector<Subject> subjects;
  for (OpCase& each : cases_of(op, purpose)) subjects.push_back({each, run_reference(each, DType::f64), {}});
  return subjects;
}

// Whose word the oracle is, where it is not the reference kernels' alone.
std::string word_of(const std::string& kernels, Device device) {
  if (kernels.empty()) return "";
  bool themselves = device.kind == DeviceKind::cpu || device.kind == DeviceKind::acc;
  return concat("by the word of ",
                themselves ? "these kernels themselves, in f64: " : "the library's CPU kernels: ", kernels);
}

// What special values were not tried in.
std::string left_out_of(const std::vector<Subject>& subjects) {
  std::string dtypes = dtypes_without_reference(subjects);
  return dtypes.empty() ? "" : concat("not tried in ", dtypes, ", in which the CPU has no kernel to compare with");
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
  std::string failure = check_sizes({op, run_reference(op, DType::f64), {}}, device);
  SG_CHECK(failure.empty(), failure);
}

void try_special_values(const OpCase& op, Device device) {
  std::string failure = check_special_values({op, {}, {}}, device);
  SG_CHECK(failure.empty(), failure);
}

bool Certificate::holds() const {
  return std::ranges::all_of(properties, [](const Property& property) { return property.failure.empty(); });
}

std::string missing_kernels(const std::string& op, DeviceKind device) {
  return kernels_without_reference(cases_of(op, Purpose::promises), device);
}

Certificate certify(const std::string& op, Device device, const std::function<void()>& replace) {
  std::vector<Subject> subjects = subjects_of(op, Purpose::promises), sizes = subjects_of(op, Purpose::sizes);
  SG_CHECK(!subjects.empty(), "certify: the registry has no operation '", op,
           "'; its names are those of autograd/ops.h, and those that a library adds with OfferCases");
  std::string kernels = kernels_without_reference(cases_of(op, Purpose::promises));
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
  certificate.properties.back().note = word_of(kernels, device);
  if (replace) add("built-in", check_built_in);
  add("beta", check_beta);
  add("inputs", check_inputs);
  add("determinism", check_determinism);
  add("special values", check_special_values);
  certificate.properties.back().note = left_out_of(subjects);
  certificate.properties.push_back(try_all("sizes", check_sizes, sizes, device));
  return certificate;
}

}  // namespace shardgrad
