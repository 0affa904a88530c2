#pragma once
// For optimizers that compute with whole tensors (optim/muon.h): how the elements of a parameter lie on ranks, and who
// brings them together. An optimizer knows nothing of ranks: it asks each parameter's owner (GradSink::spread) and says
// what is to be computed. Of a model without an owner every tensor is whole.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind whole_tensor =
    named<"whole_tensor">;  ///< whole tensors in an optimizer's step, and their parts on the way
}

namespace shardgrad {

class WholeTensors;

/// Consecutive elements of a parameter.
struct Extent {
  int64_t begin = 0, count = 0;
};

/// Where the elements of a parameter are that optimizers update.
struct Spread {
  WholeTensors* ranks = nullptr;   ///< who brings them together; null: this rank has them all
  std::vector<Extent> parts = {};  ///< of each of those ranks, which together have every element once
  DType dtype = DType::f32;
  Device device = kCpu;  ///< where whole tensors are computed with; the parts may wait in host memory
};

/// A tensor of a computation.
struct WholeTensor {
  size_t index;  ///< by which WholeWork knows it
  Spread spread;
  double cost;  ///< of its computation, in any unit
};

/// What is computed of whole tensors.
class WholeWork {
 public:
  virtual ~WholeWork() = default;
  /// This rank's elements of what goes in; asked where it has some.
  virtual Tensor part(size_t index) = 0;
  /// All elements, in one dimension → the result, which has as many. On one of the ranks that share the tensor, or on
  /// each: whoever computes it gives the same bits.
  virtual Tensor compute(size_t index, Tensor whole) = 0;
  /// This rank's elements of the result; called where it has some.
  virtual void take(size_t index, const Tensor& part) = 0;
};

/// Ranks that share tensors.
class WholeTensors {
 public:
  virtual ~WholeTensors() = default;
  /// A collective: every rank calls it with the same tensors, all spread over these ranks.
  virtual void compute(std::span<const WholeTensor> tensors, WholeWork& work) = 0;
};

/// Tensors that are whole on this rank are computed first, one after the other; then the others, by who brings them
/// together. A collective of the ranks that share some.
void compute_whole(std::span<const WholeTensor> tensors, WholeWork& work);

}  // namespace shardgrad
