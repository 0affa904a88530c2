#include <shardgrad/nn/init.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/part.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::nn {
namespace {

double fan_of(Init::Fan fan, const Shape& shape, std::string_view name) {
  if (fan == Init::Fan::none) return 1;
  SG_CHECK(shape.ndim() >= 2, "initialiser of '", name,
           "': kaiming and xavier need a weight of shape (out, in, …), not ", shape);
  double receptive = 1;
  for (int d = 2; d < shape.ndim(); ++d) receptive *= double(shape[d]);
  double in = receptive * double(shape[1]), out = receptive * double(shape[0]);
  double chosen = fan == Init::Fan::in ? in : fan == Init::Fan::out ? out : (in + out) / 2;
  return chosen > 0 ? chosen : 1;
}

kernels::RandomArgs random(const Init& init, std::string_view name, int64_t begin, double a, double b) {
  return {.seed = init.seed.value_or(context().seed()), .stream = stream_of(name), .begin = begin, .a = a, .b = b};
}

/// Host numbers from the library's own generator.
std::vector<double> draw_uniform(const kernels::RandomArgs& args, int64_t count) {
  Tensor numbers = empty({count}, {DType::f64, kCpu});
  launch(kernels::random_uniform, numbers, out(numbers), args);
  return numbers.to_vector<double>();
}

void store(const Tensor& destination, const std::vector<double>& values, int64_t begin) {
  Tensor exact = from_bytes(values.data() + begin, destination.shape(), {DType::f64, destination.device()});
  launch(kernels::cast, exact, out(destination), exact);
}

double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

/// The x with normal_cdf(x) = p: a rational start (Abramowitz and Stegun 26.2.23), then Newton steps.
double normal_quantile(double p) {
  if (p <= 0 || p >= 1) return p <= 0 ? -40 : 40;
  double tail = std::sqrt(-2 * std::log(std::min(p, 1 - p)));
  double x = tail - (2.515517 + tail * (0.802853 + tail * 0.010328)) /
                        (1 + tail * (1.432788 + tail * (0.189269 + tail * 0.001308)));
  if (p < 0.5) x = -x;
  for (int i = 0; i < 3; ++i) x -= (normal_cdf(x) - p) * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
  return x;
}

void fill_truncated(const Init& init, const Tensor& destination, int64_t begin, std::string_view name) {
  double side = init.low > init.a ? -1 : 1;  // mirrored: above the mean probabilities near 1 have no digits left
  double a = side * (init.low - init.a) / init.b, b = side * (init.high - init.a) / init.b;
  double p_low = normal_cdf(std::min(a, b)), p_high = normal_cdf(std::max(a, b));
  std::vector<double> values = draw_uniform(random(init, name, begin, p_low, p_high), destination.numel());
  for (double& value : values) value = std::clamp(init.a + side * init.b * normal_quantile(value), init.low, init.high);
  store(destination, values, 0);
}

/// Gram-Schmidt, each row against the rows before it, twice for accuracy.
void orthonormalise_one_by_one(double* m, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    double* row = m + r * columns;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t before = 0; before < r; ++before) {
        const double* other = m + before * columns;
        double dot = 0;
        for (int64_t c = 0; c < columns; ++c) dot += row[c] * other[c];
        for (int64_t c = 0; c < columns; ++c) row[c] -= dot * other[c];
      }
    double square = 0;
    for (int64_t c = 0; c < columns; ++c) square += row[c] * row[c];
    for (int64_t c = 0; c < columns; ++c) row[c] /= std::sqrt(square);
  }
}

/// The same by blocks of rows, so that most of it is matrix products.
void orthonormalise_rows(const Tensor& m) {
  constexpr int64_t kBlock = 32;
  for (int64_t begin = 0; begin < m.size(0); begin += kBlock) {
    Tensor block = m.rows(begin, std::min(begin + kBlock, m.size(0)));
    for (int pass = 0; pass < 2 && begin > 0; ++pass) {
      Tensor before = m.rows(0, begin), along = empty({block.size(0), begin}, {DType::f64, kCpu});
      kernels::MatmulArgs transposed{.trans_b = true};
      launch(kernels::matmul, block, out(along), unwanted(), block, before, Tensor(), transposed);
      launch(kernels::neg, along, out(along), along);
      launch(kernels::matmul, along, out(block, 1), unwanted(), along, before, Tensor(), kernels::MatmulArgs{});
    }
    orthonormalise_one_by_one(block.data<double>(), block.size(0), block.size(1));
  }
}

void fill_orthogonal(const Init& init, const Tensor& destination, int64_t begin, const Shape& shape,
                     std::string_view name) {
  SG_CHECK(shape.ndim() >= 2, "initialiser of '", name, "': orthogonal needs at least two dimensions, not ", shape);
  int64_t rows = shape[0], columns = rows ? shape.numel() / rows : 0;
  int64_t few = std::min(rows, columns), many = std::max(rows, columns);
  Tensor numbers = empty({few, many}, {DType::f64, kCpu});
  launch(kernels::random_normal, numbers, out(numbers), random(init, name, 0, 0, 1));
  orthonormalise_rows(numbers);
  const double* m = numbers.data<double>();
  std::vector<double> whole(size_t(shape.numel()));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      whole[size_t(r * columns + c)] = init.a * m[rows <= columns ? r * many + c : c * many + r];
  store(destination, whole, begin);
}

}  // namespace

void Init::fill(const Tensor& destination, int64_t begin, const Shape& shape, std::string_view full_name) const {
  SG_CHECK(begin >= 0 && begin + destination.numel() <= shape.numel(), "initialiser of '", full_name, "': elements [",
           begin, ", ", begin + destination.numel(), ") are not within shape ", shape);
  double scale = 1 / std::sqrt(fan_of(fan, shape, full_name));
  if (destination.numel() == 0 || destination.device().kind == DeviceKind::meta) return;
  switch (kind) {
    case Kind::constant:
      return launch(kernels::fill, destination, out(destination), a);
    case Kind::uniform:
      return launch(kernels::random_uniform, destination, out(destination),
                    random(*this, full_name, begin, a * scale, b * scale));
    case Kind::normal:
      return launch(kernels::random_normal, destination, out(destination),
                    random(*this, full_name, begin, a, b * scale));
    case Kind::truncated_normal:
      return fill_truncated(*this, destination, begin, full_name);
    case Kind::orthogonal:
      return fill_orthogonal(*this, destination, begin, shape, full_name);
  }
}

void Init::fill_part(const Tensor& destination, int64_t begin, const Shape& shape, const Part& part,
                     std::string_view full_name) const {
  if (part.extent == 0) return fill(destination, begin, shape, full_name);
  check_part(concat("initialiser of '", full_name, "'"), shape, part);
  Shape whole = whole_shape(shape, part);
  Tensor flat = destination.detach().view({destination.numel()});
  Tensor all;  // what is computed whole is computed once, not for each run
  if (kind == Kind::orthogonal && destination.device().kind != DeviceKind::meta) {
    all = empty({whole.numel()}, {destination.dtype(), destination.device()});
    fill(all, 0, whole, full_name);
  }
  for (auto [in_part, in_whole, count] : runs_of(shape, part, begin, destination.numel())) {
    Tensor to = flat.rows(in_part - begin, in_part - begin + count);
    if (all.defined())
      copy_into(to, all.rows(in_whole, in_whole + count));
    else
      fill(to, in_whole, whole, full_name);
  }
}

namespace init {

static double gain_of(double slope) { return std::sqrt(2 / (1 + slope * slope)); }

Init constant(double value) { return {.kind = Init::Kind::constant, .a = value}; }
Init zeros() { return constant(0); }
Init ones() { return constant(1); }
Init uniform(double low, double high) {
  SG_CHECK(low <= high && std::isfinite(high - low), "uniform: needs finite low <= high, got ", low, ", ", high);
  return {.kind = Init::Kind::uniform, .a = low, .b = high};
}
Init normal(double mean, double deviation) {
  SG_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0,
           "normal: needs a finite mean and deviation >= 0, got ", mean, ", ", deviation);
  return {.kind = Init::Kind::normal, .a = mean, .b = deviation};
}
Init trunc_normal(double mean, double deviation, double low, double high) {
  SG_CHECK(std::isfinite(mean) && deviation > 0 && low < high, "trunc_normal: needs deviation > 0 and low < high, got ",
           deviation, ", ", low, ", ", high);
  return {.kind = Init::Kind::truncated_normal, .a = mean, .b = deviation, .low = low, .high = high};
}
Init kaiming_uniform(double slope, Init::Fan fan) {
  double bound = gain_of(slope) * std::sqrt(3.0);
  return {.kind = Init::Kind::uniform, .fan = fan, .a = -bound, .b = bound};
}
Init kaiming_normal(double slope, Init::Fan fan) {
  return {.kind = Init::Kind::normal, .fan = fan, .a = 0, .b = gain_of(slope)};
}
Init xavier_uniform(double gain) {
  double bound = gain * std::sqrt(3.0);
  return {.kind = Init::Kind::uniform, .fan = Init::Fan::both, .a = -bound, .b = bound};
}
Init xavier_normal(double gain) { return {.kind = Init::Kind::normal, .fan = Init::Fan::both, .a = 0, .b = gain}; }
Init orthogonal(double gain) { return {.kind = Init::Kind::orthogonal, .a = gain}; }

}  // namespace init
}  // namespace shardgrad::nn
