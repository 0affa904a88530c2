#pragma once
// How fast is an operation on a device, and how fast could it be? Its large cases of the registry are timed with cold
// caches (cold_timing.h), beside the two limits of the same device, measured in turns with it: a copy of as many bytes
// as the operation must move at least, and the library's own matrix product.

#include <string>
#include <vector>

#include <shardgrad/certify/registry.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad {

/// One large case in one dtype; medians in seconds, 0 where there is nothing to time.
struct Speed {
  std::string shapes;
  DType dtype = DType::f32;
  int calls = 0;
  double forward = 0, backward = 0;
  double built_in_forward = 0, built_in_backward = 0;  ///< with the kernels that were replaced
  double bytes = 0;                                    ///< that forward moves at least: inputs and results, once
  double copy = 0;                                     ///< a copy that moves as many bytes
  double flops = 0;                                    ///< of forward (flops_of)
  double peak = 0;                                     ///< flops of the library's matrix product in a second

  /// The least time that memory and arithmetic leave to forward.
  double roof() const;
  bool limited_by_arithmetic() const { return peak > 0 && flops / peak > copy; }
};

struct SpeedReport {
  std::string why_not;  ///< nothing was measured; empty otherwise
  std::string wrong;    ///< a result or gradient of a large case that is not right; empty otherwise
  std::vector<Speed> speeds;
};

/// Times one case, after it has checked that results and gradients are finite and, with `built_in`, are those of the
/// kernels that stood in that table; throws Error(internal) when they are not.
Speed measure_speed(const OpCase& op, DType dtype, Device device, const TableCopy* built_in = nullptr);

/// Times the large cases of an operation in f32 and bf16. Slow is no error, and neither is a device whose times say
/// nothing, or a measurement that fails: the report says why. It says apart what is wrong.
SpeedReport measure_speeds(const std::string& op, Device device, const TableCopy* built_in = nullptr);

/// Floating-point operations in a second that the library's own product of large matrices reaches on a device: the best
/// of a few calls, with as many threads as the context has.
double product_rate(DType dtype, Device device);

/// Floating-point operations of a case's forward, as its kernels' slots say (kernels/table.h); 0 where it cannot be
/// called on device meta.
double flops_of(const OpCase& op);

/// The inputs of a large case, drawn on the device.
std::vector<Tensor> make_large_inputs(const OpCase& op, DType dtype, Device device);

}  // namespace shardgrad
