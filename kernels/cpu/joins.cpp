// The end of a norm: a list of joins, and the factor that keeps the norm within its bound.

#include <algorithm>
#include <cmath>

#include <shardgrad/kernels/cpu/register.h>

namespace shardgrad::cpu {
namespace {

double join(double a, double b, bool largest) {
  if (!largest) return a + b;
  return b > a || std::isnan(b) ? b : a;
}

void join_values(const Launch&, OutView values, View joins, View levels, double p) {
  SG_ASSERT(values.dtype == DType::f64 && joins.dtype == DType::i32 && levels.dtype == DType::i32, "join_values");
  auto* v = values.as<double>();
  const auto* rows = joins.as<int32_t>();
  for (const int32_t *row = rows, *end = rows + joins.numel(); row < end; row += 3)
    v[row[0]] = row[2] >= 0 ? join(v[row[1]], v[row[2]], std::isinf(p)) : row[1] >= 0 ? v[row[1]] : 0;
}

void clip_scale(const Launch&, OutView scale, View power, double max_norm) {
  double square = *power.as<double>();
  *scale.as<double>() = std::isfinite(square) ? std::min(1.0, max_norm / (std::sqrt(square) + 1e-6)) : 1;
}

const Register registered_joins(kernels::join_values, DeviceKind::cpu, DType::f64, join_values);
const Register registered_scale(kernels::clip_scale, DeviceKind::cpu, DType::f64, clip_scale);

}  // namespace
}  // namespace shardgrad::cpu
