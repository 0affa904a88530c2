// Random programs of operations give what PyTorch gives, results and gradients: programs.py wrote them with PyTorch's
// numbers in f64. SHARDGRAD_PROGRAMS names another file of it.

#include <cstdlib>
#include <fstream>
#include <functional>

#include <nlohmann/json.hpp>

#include <source_folder.h>
#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

using nlohmann::json;
using Args = std::vector<Tensor>;
using Step = std::function<Tensor(const Args&, const json&)>;

Shape shape_of(const json& extents) { return Shape(std::span<const int64_t>(extents.get<std::vector<int64_t>>())); }

using Unary = Tensor (*)(const Tensor&);
using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Along = Tensor (*)(const Tensor&, int);

void add_unaries(std::map<std::string, Step>& steps) {
  const std::pair<const char*, Unary> functions[] = {{"neg", neg},
                                                     {"exp", exp},
                                                     {"log", log},
                                                     {"sqrt", sqrt},
                                                     {"tanh", tanh},
                                                     {"sigmoid", sigmoid},
                                                     {"relu", relu},
                                                     {"abs", abs},
                                                     {"silu", silu},
                                                     {"sin", sin},
                                                     {"cos", cos},
                                                     {"rsqrt", rsqrt},
                                                     {"reciprocal", reciprocal},
                                                     {"square", square},
                                                     {"log1p", log1p},
                                                     {"expm1", expm1},
                                                     {"erf", erf},
                                                     {"softplus", softplus},
                                                     {"floor", floor},
                                                     {"ceil", ceil},
                                                     {"trunc", trunc},
                                                     {"round", round},
                                                     {"sign", sign},
                                                     {"sum", sum},
                                                     {"mean", mean},
                                                     {"max", max},
                                                     {"min", min},
                                                     {"norm", [](const Tensor& x) { return norm(x); }},
                                                     {"prod", prod},
                                                     {"squeeze", squeeze},
                                                     {"t", t},
                                                     {"clone", clone},
                                                     {"gelu", [](const Tensor& x) { return gelu(x); }},
                                                     {"elu", [](const Tensor& x) { return elu(x); }},
                                                     {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); }},
                                                     {"var", [](const Tensor& x) { return var(x); }},
                                                     {"std", [](const Tensor& x) { return std(x); }},
                                                     {"tril", [](const Tensor& x) { return tril(x); }},
                                                     {"triu", [](const Tensor& x) { return triu(x); }},
                                                     {"flatten", [](const Tensor& x) { return flatten(x); }}};
  for (auto [name, f] : functions) steps[name] = [f = f](const Args& a, const json&) { return f(a[0]); };
}

void add_binaries(std::map<std::string, Step>& steps) {
  const std::pair<const char*, Binary> functions[] = {
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"div", div},
      {"maximum", maximum},
      {"minimum", minimum},
      {"pow", pow},
      {"outer", outer},
      {"remainder", remainder},
      {"floor_divide", floor_divide},
      {"matmul", [](const Tensor& a, const Tensor& b) { return matmul(a, b); }},
      {"mse_loss", [](const Tensor& a, const Tensor& b) { return mse_loss(a, b); }}};
  for (auto [name, f] : functions) steps[name] = [f = f](const Args& a, const json&) { return f(a[0], a[1]); };
}

void add_along(std::map<std::string, Step>& steps) {
  const std::pair<const char*, Along> functions[] = {
      {"sum_dim", [](const Tensor& x, int d) { return x.sum(d); }},
      {"mean_dim", [](const Tensor& x, int d) { return x.mean(d); }},
      {"var_dim", [](const Tensor& x, int d) { return var(x, d); }},
      {"std_dim", [](const Tensor& x, int d) { return std(x, d); }},
      {"prod_dim", [](const Tensor& x, int d) { return prod(x, d); }},
      {"logsumexp", [](const Tensor& x, int d) { return logsumexp(x, d); }},
      {"cumsum", cumsum},
      {"softmax", softmax},
      {"log_softmax", log_softmax},
      {"max_dim", [](const Tensor& x, int d) { return max(x, d).values; }},
      {"min_dim", [](const Tensor& x, int d) { return min(x, d).values; }},
      {"sort", [](const Tensor& x, int d) { return sort(x, d).values; }},
      {"sort_down", [](const Tensor& x, int d) { return sort(x, d, true).values; }},
      {"top2", [](const Tensor& x, int d) { return topk(x, 2, d).values; }},
      {"unsqueeze", unsqueeze},
      {"flip", [](const Tensor& x, int d) { return flip(x, {d}); }},
      {"roll", [](const Tensor& x, int d) { return roll(x, 1, d); }},
      {"select", [](const Tensor& x, int d) { return select(x, d, -1); }},
      {"stack_self",
       [](const Tensor& x, int d) {
         return stack({x, 2 * x}, d);
       }},
      {"cat_self",
       [](const Tensor& x, int d) {
         return cat({x, -x}, d);
       }},
      {"chunk", [](const Tensor& x, int d) { return chunk(x, 2, d)[0]; }},
      {"steps", [](const Tensor& x, int d) { return slice(x, d, 0, x.size(d), 2); }},
      {"order", [](const Tensor& x, int d) { return gather(x, d, argsort(x, d)); }},
      {"at_largest", [](const Tensor& x, int d) { return gather(x, d, argmax(x, d, true)); }},
      {"share_above", [](const Tensor& x, int d) { return mean((x > mean(x, d, true)).to(x.dtype()), d); }},
      {"rare", [](const Tensor& x, int d) { return any(x > 1, d).to(x.dtype()) + 2 * all(x > -1, d).to(x.dtype()); }}};
  for (auto [name, f] : functions)
    steps[name] = [f = f](const Args& a, const json& n) { return f(a[0], n.at("dim").get<int>()); };
}

Tensor permuted(const Tensor& x, const json& order) {  // which takes its dimensions in braces
  std::vector<int> left = order.get<std::vector<int>>();
  Tensor y = x;
  std::vector<int> now;
  for (int d = 0; d < x.ndim(); ++d) now.push_back(d);
  for (int d = 0; d < x.ndim(); ++d) {
    int from = int(std::ranges::find(now, left[size_t(d)]) - now.begin());
    y = y.transpose(d, from);
    std::swap(now[size_t(d)], now[size_t(from)]);
  }
  return y;
}

Tensor repeated(const Tensor& x, const json& times) {
  std::vector<int64_t> n = times.get<std::vector<int64_t>>();
  n.insert(n.begin(), 4 - n.size(), 1);
  Tensor y = repeat(x, {n[0], n[1], n[2], n[3]});
  while (y.ndim() > int(times.size())) y = y.squeeze(0);
  return y;
}

Tensor picked(const Tensor& x) {
  Tensor rows = arange(x.size(0));
  return x[{rows, remainder(rows, double(x.size(1)))}];
}

Tensor summed(const Tensor& x, const json& dims) {
  return dims.size() == 1 ? sum(x, dims[0].get<int>(), true) : sum(x, {dims[0].get<int>(), dims[1].get<int>()}, true);
}

void add_others(std::map<std::string, Step>& steps) {
  steps["affine"] = [](const Args& a, const json& n) { return double(n["scale"]) * a[0] + double(n["shift"]); };
  steps["rdiv"] = [](const Args& a, const json& n) { return double(n["value"]) / a[0]; };
  steps["power"] = [](const Args& a, const json& n) { return a[0].pow(n["exponent"]); };
  steps["rpow"] = [](const Args& a, const json& n) { return pow(double(n["value"]), a[0]); };
  steps["clamp"] = [](const Args& a, const json& n) { return a[0].clamp(n["low"], n["high"]); };
  steps["where"] = [](const Args& a, const json&) { return where(a[0] > a[1], a[0], 2 * a[1]); };
  steps["masked"] = [](const Args& a, const json& n) { return masked_fill(a[0], (a[0] < 0) | (a[0] > 2), n["value"]); };
  steps["kept"] = [](const Args& a, const json&) { return a[0][(a[0] >= 0) & ~(a[0] == 1)]; };
  steps["reshape"] = [](const Args& a, const json& n) { return reshape(a[0], shape_of(n["shape"])); };
  steps["expand"] = [](const Args& a, const json& n) { return expand(a[0], shape_of(n["shape"])); };
  steps["permute"] = [](const Args& a, const json& n) { return permuted(a[0], n["order"]); };
  steps["repeat"] = [](const Args& a, const json& n) { return repeated(a[0], n["times"]); };
  steps["index"] = [](const Args& a, const json&) { return a[0][{Ellipsis, None, Slice(1)}]; };
  steps["picked"] = [](const Args& a, const json&) { return picked(a[0]); };
  steps["put"] = [](const Args& a, const json&) { return index_put(a[0], {0}, a[1]); };
  steps["layer_norm"] = [](const Args& a, const json&) { return layer_norm(a[0], Tensor(), Tensor()); };
  steps["cross_entropy"] = [](const Args& a, const json&) {
    return cross_entropy(a[0], remainder(arange(a[0].size(0)), double(a[0].size(1))));
  };
  steps["sum_dims"] = [](const Args& a, const json& n) { return summed(a[0], n["dims"]); };
}

std::map<std::string, Step> all_steps() {
  std::map<std::string, Step> steps;
  add_unaries(steps), add_binaries(steps), add_along(steps), add_others(steps);
  return steps;
}

Tensor weights(const Shape& shape) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < shape.numel(); ++i) numbers.push_back(double((i * 7 + 3) % 11 - 5) / 8);
  return from_vector(numbers, shape, DType::f64);
}

// To 1e-12 of the largest number, or of 1.
void expect_program(const std::map<std::string, Step>& steps, const json& program) {
  Args tensors;
  for (const json& input : program["inputs"]) {
    Tensor x = from_vector(input["values"].get<std::vector<double>>(), shape_of(input["shape"]), DType::f64);
    tensors.push_back(x.set_requires_grad());
  }
  size_t inputs = tensors.size();
  Tensor loss = zeros({}, DType::f64);
  for (const json& step : program["steps"]) {
    Args given;
    for (size_t i : step[1]) given.push_back(tensors[i]);
    tensors.push_back(steps.at(step[0].get<std::string>())(given, step[2]));
    loss = loss + (tensors.back() * weights(tensors.back().shape())).sum();
  }
  size_t first = tensors.size() - program["expected"].size();
  for (size_t k = first; k < tensors.size(); ++k) {
    const json& expected = program["expected"][k - first];
    EXPECT_EQ(tensors[k].shape(), shape_of(expected["shape"])) << program["steps"][k - inputs];
    expect_close(values(tensors[k]), expected["values"].get<std::vector<double>>(), 1e-12,
                 concat("result of ", program["steps"][k - inputs].dump()), 1);
  }
  if (loss.requires_grad()) loss.backward();
  for (size_t i = 0; i < inputs; ++i) {
    auto expected = program["gradients"][i].get<std::vector<double>>();
    Tensor grad = tensors[i].grad();
    expect_close(grad.defined() ? values(grad) : std::vector<double>(expected.size()), expected, 1e-12,
                 concat("gradient ", i), 1);
  }
}

TEST(Programs, GiveWhatPyTorchGives) {
  Context context;
  const char* other = std::getenv("SHARDGRAD_PROGRAMS");
  std::ifstream file(other ? std::string(other) : std::string(kSourceFolder) + "/tests/autograd/programs.json");
  json programs = json::parse(file);
  EXPECT_GE(programs.size(), 50u);
  std::map<std::string, Step> steps = all_steps();
  for (const json& program : programs) {
    SCOPED_TRACE(program["steps"].dump());
    expect_program(steps, program);
    if (testing::Test::HasFailure()) return;  // the first one is enough to read
  }
}

}  // namespace
}  // namespace shardgrad::test
