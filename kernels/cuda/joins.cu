// The end of a norm, where its values are: a list of joins, and the factor that keeps the norm within its bound. Some
// thousand values and one; the host waits for none of it.

#include <shardgrad/kernels/cuda/map.h>
#include <shardgrad/kernels/cuda/reduce.h>

namespace shardgrad::SG_DEVICE {
namespace {

constexpr int kJoiners = 1024;

template <class Op> __device__ double joined(const double* values, int32_t a, int32_t b) {
  if (b >= 0) return Op()(values[a], values[b]);
  return a >= 0 ? values[a] : 0;
}

// One thread block, for a level waits for the one before.
template <class Op>
__global__ void join_values_kernel(double* values, const int32_t* joins, const int32_t* levels, int count) {
  for (int level = 0; level < count; ++level) {
    int begin = level == 0 ? 0 : levels[level - 1];
    for (int row = begin + int(threadIdx.x); row < levels[level]; row += int(blockDim.x)) {
      const int32_t* join = joins + 3 * row;
      values[join[0]] = joined<Op>(values, join[1], join[2]);
    }
    __syncthreads();
  }
}

void join_values(const Launch& how, OutView values, View joins, View levels, double p) {
  int count = int(levels.numel());
  if (count == 0) return;
  Config one{1, kJoiners};
  if (std::isinf(p))
    launch<join_values_kernel<Max>>(how, one, values.as<double>(), joins.as<int32_t>(), levels.as<int32_t>(), count);
  else
    launch<join_values_kernel<Sum>>(how, one, values.as<double>(), joins.as<int32_t>(), levels.as<int32_t>(), count);
}

__global__ void clip_scale_kernel(double* scale, const double* power, double max_norm) {
  double factor = max_norm / (sqrt(*power) + 1e-6);
  bool finite = *power <= std::numeric_limits<double>::max();
  *scale = finite && factor < 1 ? factor : 1;
}

void clip_scale(const Launch& how, OutView scale, View power, double max_norm) {
  launch<clip_scale_kernel>(how, {1, 1}, scale.as<double>(), power.as<double>(), max_norm);
}

constexpr DType kDouble[] = {DType::f64};
const Registered registered[] = {
    add_kernel<join_values>(kernels::join_values, kDouble),
    add_kernel<clip_scale>(kernels::clip_scale, kDouble),
};

}  // namespace
}  // namespace shardgrad::SG_DEVICE
