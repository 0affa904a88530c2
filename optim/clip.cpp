#include <shardgrad/optim/clip.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <shardgrad/autograd/node.h>

namespace shardgrad::optim {
namespace {

template <class T> double block_square(const T* values, int64_t count) {
  std::array<double, kNormBlock> squares{};
  for (int64_t i = 0; i < count; ++i) {
    double value;
    if constexpr (sizeof(T) == 2)
      value = float(values[i]);
    else
      value = double(values[i]);
    squares[size_t(i)] = value * value;
  }
  for (size_t width = kNormBlock; width > 1; width /= 2)
    for (size_t i = 0; i < width / 2; ++i) squares[i] = squares[2 * i] + squares[2 * i + 1];
  return squares[0];
}

}  // namespace

std::vector<double> block_squares(const Tensor& tensor) {
  SG_CHECK(is_floating(tensor.dtype()), "block_squares: needs a floating dtype, got ", tensor);
  std::vector<double> squares;
  dispatch(tensor.dtype(), [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      std::vector<T> values = tensor.to_vector<T>();
      int64_t count = tensor.numel();
      for (int64_t begin = 0; begin < count; begin += kNormBlock)
        squares.push_back(block_square(values.data() + begin, std::min(kNormBlock, count - begin)));
    }
  });
  return squares;
}

double tree_sum(std::vector<double> parts) {
  if (parts.empty()) return 0;
  while (parts.size() > 1) {
    size_t pairs = parts.size() / 2, odd = parts.size() % 2;
    for (size_t i = 0; i < pairs; ++i) parts[i] = parts[2 * i] + parts[2 * i + 1];
    if (odd) parts[pairs] = parts.back();
    parts.resize(pairs + odd);
  }
  return parts[0];
}

double grad_norm(std::span<const NamedParameter> parameters, const std::function<double(double)>& reduce) {
  std::vector<NamedParameter> sorted(parameters.begin(), parameters.end());
  std::ranges::sort(sorted, {}, &NamedParameter::name);
  std::vector<double> squares;
  for (const NamedParameter& parameter : sorted) {
    if (!parameter.tensor.requires_grad()) continue;
    SG_CHECK(!leaf_of(parameter.tensor).sink(), "grad_norm: the gradient of '", parameter.name,
             "' is spread over the ranks; use the norm of the sharded model (fsdp)");
    if (Tensor grad = parameter.tensor.grad(); grad.defined()) squares.push_back(tree_sum(block_squares(grad)));
  }
  double total = tree_sum(std::move(squares));
  return std::sqrt(reduce ? reduce(total) : total);
}

double clip_factor(double norm, double max_norm) {
  SG_CHECK(std::isfinite(norm), "clip_factor: the gradient norm is ", norm,
           "; a gradient overflowed or is not a number");
  SG_CHECK(std::isfinite(max_norm) && max_norm > 0, "clip_factor: max_norm = ", max_norm, " is not possible");
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace shardgrad::optim
