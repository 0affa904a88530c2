#pragma once
// Initial values of parameters. Element i of a parameter is a function of (seed, full name, i), so every number of
// ranks and every way of sharding starts from the same model, and a rank fills only its own part.

#include <cstdint>
#include <optional>
#include <string_view>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::nn {

using shardgrad::Part;

/// How a parameter is filled; made by the functions in nn::init.
struct Init {
  enum class Kind : uint8_t { constant, uniform, normal, truncated_normal, orthogonal };
  enum class Fan : uint8_t { none, in, out, both };  ///< what divides the spread: 1/√fan, or 1/√((in + out) / 2)
  Kind kind = Kind::constant;
  Fan fan = Fan::none;
  double a = 0;              ///< constant: value; uniform: low; normal: mean; orthogonal: gain
  double b = 0;              ///< uniform: high; normal: standard deviation
  double low = 0, high = 0;  ///< truncated normal: bounds
  /// What random numbers follow from; a parameter's is that which the context had when it was made. Without: the
  /// context's.
  std::optional<uint64_t> seed = {};

  /// Fills `destination` with elements [begin, begin + destination.numel()) of a parameter of this shape and name.
  /// Throws Error(input) naming the parameter when its shape does not suit the initialiser.
  void fill(const Tensor& destination, int64_t begin, const Shape& shape, std::string_view full_name) const;
  /// The same for a part of a larger parameter: it gets the values that the larger one has there. `begin` and `shape`
  /// are the part's own.
  void fill_part(const Tensor& destination, int64_t begin, const Shape& shape, const Part& part,
                 std::string_view full_name) const;
};

/// PyTorch's initialisers. Fans are those of a weight (out, in, …): fan_in = size(1) · receptive field.
namespace init {
Init constant(double value);
Init zeros();
Init ones();
Init uniform(double low = 0, double high = 1);
Init normal(double mean = 0, double deviation = 1);
/// A normal distribution cut to [low, high].
Init trunc_normal(double mean = 0, double deviation = 1, double low = -2, double high = 2);
/// Uniform in ±gain · √(3 / fan) with gain = √(2 / (1 + slope²)).
Init kaiming_uniform(double slope = 0, Init::Fan fan = Init::Fan::in);
/// Normal with deviation gain / √fan.
Init kaiming_normal(double slope = 0, Init::Fan fan = Init::Fan::in);
/// Uniform in ±gain · √(6 / (fan_in + fan_out)).
Init xavier_uniform(double gain = 1);
/// Normal with deviation gain · √(2 / (fan_in + fan_out)).
Init xavier_normal(double gain = 1);
/// Orthonormal rows or columns, whichever are fewer, times gain. Computed whole on the host, then cut.
Init orthogonal(double gain = 1);
}  // namespace init

}  // namespace shardgrad::nn
