#pragma once
// How a flat parameter's elements lie, and where its buffers live. Trained and frozen parameters of a unit lie in
// different ones, and so do dtypes (plan_flats).
//
// Every slice starts at a multiple of 32 elements, and every shard is a multiple of 32, so that vector kernels and the
// gradient-norm tree never straddle two ranks. Gaps and padding are 0 and stay 0. With weight (5, 7), bias (5), W = 2:
//
//     element   0        35   64    69          128
//               | weight |gap | bias | padding    |         P = roundup(roundup(35,32) + roundup(5,32), 32·2) = 128
//     rank      |------ 0 ----|------- 1 ---------|         shard = P / 2 = 64

#include <span>
#include <string>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/fsdp/setup/categories.h>
#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/fsdp/setup/mesh.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

inline constexpr int64_t kSliceAlignment = 32;  ///< elements

/// Where one parameter lies in its flat parameter.
struct Slice {
  std::string name;  ///< full name, e.g. "layers.0.weight"
  Shape shape;
  int64_t offset = 0;  ///< elements
  Part part = {};      ///< what it is of a larger parameter
  int64_t numel() const { return shape.numel(); }
};

/// What a range of the flat parameter's elements, such as a rank's shard, holds of one parameter.
struct Owned {
  int64_t at;        ///< the first of its elements, counted from the range's begin
  int64_t in_slice;  ///< and counted from the parameter's
  int64_t count;
  int64_t padded;  ///< elements with the gap after them
};

/// What is fixed about a flat parameter, and how its buffers are made.
struct FlatLayout {
  /// For parameters of one dtype and device, all trained or all frozen.
  FlatLayout(std::string unit, std::string part, std::span<nn::Parameter* const> parameters, Mesh& mesh,
             const Config& config);

  std::string unit;
  /// " from W on", by which ranks tell it from the unit's others; empty for the only one.
  std::string part;
  uint16_t unit_id;  ///< in the ledger
  Mesh& mesh;
  Device device;
  DType dtype;         ///< of the shards and of what the optimizer reads
  DType param_dtype;   ///< of the gathered parameters, and so of the gradients that one backward pass writes
  DType reduce_dtype;  ///< of the gradients that are sent
  std::vector<Slice> slices;
  int64_t padded = 0;  ///< elements of all, P above

  int64_t numel() const;  ///< without gaps
  bool split() const { return mesh.parts() > 1; }
  /// Whether what is gathered is a conversion of the shards.
  bool converts() const { return param_dtype != dtype; }
  int64_t shard_numel() const { return padded / mesh.parts(); }
  int64_t shard_begin() const { return mesh.part() * shard_numel(); }
  /// The byte at which each slice begins in a buffer of all elements.
  std::vector<size_t> begins(DType of) const;
  /// What this rank's shard holds of parameter i.
  Owned owned(size_t i) const { return within(i, shard_begin(), shard_numel()); }
  /// What elements [begin, begin + numel) hold of it.
  Owned within(size_t i, int64_t begin, int64_t numel) const;
  /// How parameter i lies on the ranks that share it.
  Spread spread(size_t i) const;
  /// This rank's part of a buffer of all elements.
  Tensor part_of(const Tensor& full) const { return full.rows(shard_begin(), shard_begin() + shard_numel()); }
  Tensor slice_of(const Tensor& full, size_t i) const {
    return full.rows(slices[i].offset, slices[i].offset + slices[i].numel());
  }
  /// Writes zeros to the gaps and the padding of a buffer of all elements.
  void zero_gaps(const Tensor& full) const;

  /// On the device, in memory that the groups send from; first used by `stream` (unset: compute), or later.
  Tensor buffer(int64_t numel, DType dtype, Category::Kind category, Stream* stream = nullptr) const;
  Tensor released_buffer(int64_t numel, DType dtype, Category::Kind category) const;
  /// In host memory that the device copies from and to.
  Tensor host_buffer(int64_t numel, DType dtype) const;
  /// Whether host memory is other memory than the device's.
  bool has_own_memory() const { return shardgrad::has_own_memory(mesh.world().computes_on()); }
  Stream& compute() const { return context().backend(device).compute(); }
};

/// Writes `from` to a tensor of any floating dtype, or adds it.
void convert(const Tensor& from, const Out& to);
void fill_with_zeros(const Tensor& part);

}  // namespace shardgrad::fsdp
