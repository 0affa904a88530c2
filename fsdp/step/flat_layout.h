#pragma once
// How a flat parameter's elements lie, and where its buffers live.
//
// Every slice starts at a multiple of 32 elements, and every shard is a multiple of 32, so that vector kernels and the
// gradient-norm tree never straddle two ranks. Gaps and padding are 0 and stay 0. With weight (5, 7), bias (5), W = 2:
//
//     element   0        35   64    69          128
//               | weight |gap | bias | padding    |         P = roundup(roundup(35,32) + roundup(5,32), 32·2) = 128
//     rank      |------ 0 ----|------- 1 ---------|         shard = P / 2 = 64

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/fsdp/config.h>
#include <shardgrad/fsdp/mesh.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

inline constexpr int64_t kSliceAlignment = 32;  ///< elements

/// Where one parameter lies in its flat parameter.
struct Slice {
  std::string name;  ///< full name, e.g. "layers.0.weight"
  Shape shape;
  int64_t offset = 0;  ///< elements
  int64_t numel() const { return shape.numel(); }
};

/// What is fixed about a flat parameter, and how its buffers are made.
struct FlatLayout {
  /// For parameters of one dtype and device.
  FlatLayout(std::string unit, std::span<nn::Parameter* const> parameters, Mesh& mesh, const Config& config);

  std::string unit;
  uint16_t unit_id;  ///< in the ledger
  Mesh& mesh;
  Device device;
  DType dtype;         ///< of the shards and of what the optimizer reads
  DType param_dtype;   ///< of the gathered parameters, and so of the gradients that one backward pass writes
  DType reduce_dtype;  ///< of the gradients that are sent
  std::vector<Slice> slices;
  int64_t padded = 0;  ///< elements of all, P above

  bool split() const { return mesh.parts() > 1; }
  int64_t shard_numel() const { return padded / mesh.parts(); }
  int64_t shard_begin() const { return mesh.part() * shard_numel(); }
  /// The byte at which each slice begins in a buffer of all elements.
  std::vector<size_t> begins(DType of) const;
  /// The elements of this rank's shard that are slice i's, with the padding after it.
  std::pair<int64_t, int64_t> elements_of(size_t i) const;
  /// This rank's part of a buffer of all elements.
  Tensor part_of(const Tensor& full) const { return full.rows(shard_begin(), shard_begin() + shard_numel()); }
  Tensor slice_of(const Tensor& full, size_t i) const {
    return full.rows(slices[i].offset, slices[i].offset + slices[i].numel());
  }

  /// On the device, in memory that the groups send from; first used by `stream` (unset: compute), or later.
  Tensor buffer(int64_t numel, DType dtype, Category category, Stream* stream = nullptr) const;
  Tensor released_buffer(int64_t numel, DType dtype, Category category) const;
  Tensor host_buffer(int64_t numel, DType dtype) const;
  Stream& compute() const { return context().backend(device).compute(); }
  /// Queues a copy of bytes between host and device.
  void copy(Stream& stream, const Tensor& to, const Tensor& from) const;
};

/// Whether it is one of the buffers that wait in host memory.
inline bool on_host(const Tensor& t) { return t.storage()->tag().category == Category::pinned_host; }
/// Writes `from` to a tensor of any floating dtype, or adds it.
void convert(const Tensor& from, const Out& to);
void fill_with_zeros(const Tensor& part);

}  // namespace shardgrad::fsdp
