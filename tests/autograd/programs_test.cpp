// Random programs of all operations give what PyTorch gives, results and gradients: programs.py wrote them with
// PyTorch's numbers in f64. SHARDGRAD_PROGRAMS names another file of it.

#include <cstdlib>
#include <fstream>
#include <functional>

#include <tests/autograd/declared_operations.h>
#include <tests/autograd/program_layers.h>

namespace shardgrad::test::programs {
namespace {

json whole_file() {
  const char* other = std::getenv("SHARDGRAD_PROGRAMS");
  std::ifstream file(other ? std::string(other) : std::string(kSourceFolder) + "/tests/autograd/programs.json");
  return json::parse(file);
}
json all_programs() { return whole_file()["programs"]; }

Tensor weights(const Tensor& y) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < y.numel(); ++i) numbers.push_back(double((i * 7 + 3) % 11 - 5) / 8);
  return from_vector(numbers, y.shape(), DType::f64).to(y.dtype());
}

// The inputs, and what each step makes, after backward of the sum of all results times their weights.
Args run(const Steps& steps, const json& program, DType dtype) {
  Args tensors;
  for (const json& input : program["inputs"]) {
    Tensor x = from_vector(input["values"].get<std::vector<double>>(), shape_of(input["shape"]), DType::f64);
    tensors.push_back(x.to(dtype).set_requires_grad());
  }
  Tensor loss = zeros({}, DType::f64);
  for (const json& step : program["steps"]) {
    Args given;
    for (size_t i : step[1]) given.push_back(tensors[i]);
    Tensor y = steps.at(step[0].get<std::string>())(given, step[2]).to(dtype);
    tensors.push_back(y);
    loss = loss + (y * weights(y)).sum().to(DType::f64);
  }
  if (loss.requires_grad()) loss.backward();
  return tensors;
}

// How far a result or gradient may be from PyTorch in f64, by its number, results first, and by its elements there.
using Allowed = std::function<double(size_t, const std::vector<double>&)>;

// The largest difference, as a part of what is allowed.
double expect_program(const Steps& steps, const json& program, DType dtype, const Allowed& allowed) {
  Args tensors = run(steps, program, dtype);
  double most = 0;
  size_t number = 0;
  auto expect = [&](const std::vector<double>& actual, const std::vector<double>& expected, const std::string& what) {
    double bound = allowed(number++, expected);
    expect_close(actual, expected, bound / std::max(1., largest(expected)), what, 1);
    for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i)
      if (actual[i] != expected[i]) most = std::max(most, std::abs(actual[i] - expected[i]) / bound);
  };
  size_t inputs = program["inputs"].size(), first = tensors.size() - program["expected"].size();
  for (size_t k = first; k < tensors.size(); ++k) {
    const json& expected = program["expected"][k - first];
    EXPECT_EQ(tensors[k].shape(), shape_of(expected["shape"])) << program["steps"][k - inputs];
    EXPECT_EQ(tensors[k].requires_grad(), expected["grad"].get<bool>()) << program["steps"][k - inputs];
    expect(values(tensors[k]), expected["values"].get<std::vector<double>>(),
           concat("result of ", program["steps"][k - inputs].dump()));
  }
  for (size_t i = 0; i < inputs; ++i) {
    auto expected = program["gradients"][i].get<std::vector<double>>();
    Tensor grad = tensors[i].grad();
    expect(grad.defined() ? values(grad) : std::vector<double>(expected.size()), expected, concat("gradient ", i));
  }
  return most;
}

TEST(Programs, GiveWhatPyTorchGives) {
  Context context;
  json programs = all_programs();
  EXPECT_GE(programs.size(), 70u);
  Steps steps = all_steps();
  double most = 0;
  auto allowed = [](size_t, const std::vector<double>& expected) { return 1e-12 * std::max(1., largest(expected)); };
  for (const json& program : programs) {
    SCOPED_TRACE(program["steps"].dump());
    most = std::max(most, expect_program(steps, program, DType::f64, allowed));
    if (testing::Test::HasFailure()) return;  // the first one is enough to read
  }
  RecordProperty("largest_part_of_the_bound", concat(most));
}

// Four times PyTorch's own error, and one rounding of the largest element; four of them in f32, where nothing that is
// wrong is that small.
Allowed beside_pytorch(const json& errors, DType dtype) {
  double rounding = dtype == DType::f32 ? 4 * 0x1p-24 : 0x1p-8;
  return [=](size_t number, const std::vector<double>& expected) {
    return 4 * errors.at(number).get<double>() + rounding * largest(expected);
  };
}

// Left out are programs where rounding changes which way is taken (programs.py, BRANCHING), and those that magnify it,
// by PyTorch's own numbers.
TEST(Programs, AreAsRightAsPyTorchInF32AndBf16) {
  Context context;
  Steps steps = all_steps();
  int tried = 0;
  std::map<DType, double> parts;  // of what is allowed
  for (const json& program : all_programs()) {
    if (program["errors"].is_null()) continue;
    SCOPED_TRACE(program["steps"].dump());
    ++tried;
    for (DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(dtype);
      Allowed allowed = beside_pytorch(program["errors"][concat(dtype)], dtype);
      parts[dtype] = std::max(parts[dtype], expect_program(steps, program, dtype, allowed));
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(tried, 20);
  for (auto [dtype, part] : parts) RecordProperty(concat("part_of_the_bound_in_", dtype), concat(part));
}

TEST(Programs, HaveEveryStepThatDoesNotBranchInF32AndBf16) {
  json file = whole_file();
  std::set<std::string> missing;
  for (const auto& [name, step] : all_steps()) missing.insert(name);
  EXPECT_GE(missing.size(), 170u);
  for (const json& name : file["branching"]) EXPECT_EQ(missing.erase(name), 1u) << name;
  EXPECT_GE(missing.size(), 110u);
  for (const json& program : file["programs"])
    for (const json& step : program["steps"])
      if (!program["errors"].is_null()) missing.erase(step[0]);
  EXPECT_EQ(missing, std::set<std::string>{});
}

TEST(Programs, HaveEveryOperationThatIsDeclared) {
  const std::map<std::string, std::string> without{
      {"tensor", "is of numbers in the source"},
      {"from_blob", "is of memory that somebody else made"},
      {"fill_", "is in place, outside of autograd"},
      {"to_device", "is of another device"},
      {"attention_cached", "has no gradient, and writes to its caches"},
      {"add_layer_norm", "has the bits of two operations, which add_norm_test.cpp compares"},
      {"add_rms_norm", "the same"},
      {"manual_seed", "is of random numbers, as all below"},
      {"rand", ""},
      {"randn", ""},
      {"rand_like", ""},
      {"randn_like", ""},
      {"randint", ""},
      {"randperm", ""},
      {"bernoulli", ""},
      {"multinomial", ""},
      {"dropout", ""},
  };
  std::set<std::string> missing = declared_operations();
  EXPECT_GE(missing.size(), 120u);
  for (const json& program : all_programs())
    for (const json& step : program["steps"]) {
      auto name = step[0].get<std::string>();
      auto other = kOperationOf.find(name);
      missing.erase(other == kOperationOf.end() ? name : other->second);
    }
  std::set<std::string> expected;
  for (const auto& [name, reason] : without) expected.insert(name);
  EXPECT_EQ(missing, expected);
}

}  // namespace
}  // namespace shardgrad::test::programs
