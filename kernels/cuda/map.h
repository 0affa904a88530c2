#pragma once
// Elementwise kernels: y[i] = op(x[i]…), with operands of y's shape or broadcast to it.
//
// An op is a struct with operator(). It gets each operand in its computing type (Compute<T>), or the elements
// themselves when it declares `raw`. It returns y's computing type, rounded once when stored, or an element of y.

#include <shardgrad/kernels/broadcast.h>
#include <shardgrad/kernels/cuda/packs.h>

namespace shardgrad::SG_DEVICE {
namespace {

template <class Op, class... X> __device__ auto apply(const Op& op, X... x) {
  if constexpr (requires { Op::raw; })
    return op(x...);
  else
    return op(convert<Compute<X>>(x)...);
}

/// *y = result, or *y += result.
template <class Y, class Result> __device__ void put(Y* y, Result result, bool accumulate) {
  if constexpr (std::is_same_v<Result, Y>) {
    if (accumulate)
      store(y, convert<Compute<Y>>(result), true);
    else
      *y = result;
  } else {
    store(y, Compute<Y>(result), accumulate);
  }
}

/// Elements that one thread takes: 16 bytes of the narrowest operand, if they are at most 32 of the widest.
template <class... T>
inline constexpr int kPerThread = std::min(16 / int(std::min({sizeof(T)...})), 32 / int(std::max({sizeof(T)...})));

// y and x have n elements. `packed`: all of them begin at a multiple of what a thread takes, so that each moves in one
// instruction. The last thread may have fewer.
template <class Op, class Y, class... X>
__global__ void map_kernel(Op op, Y* y, int64_t n, bool accumulate, bool packed, const X*... x) {
  constexpr int count = kPerThread<Y, X...>;
  int64_t begin = thread_number() * count;
  if (packed && begin + count <= n) {
    Pack<Y, count> result;
    if (accumulate) result = load_pack<count>(static_cast<const Y*>(y + begin));
    auto fill = [&](const auto&... in) {
      for (int k = 0; k < count; ++k) put(&result.at[k], apply(op, in.at[k]...), accumulate);
    };
    fill(load_pack<count>(x + begin)...);
    store_pack(y + begin, result);
  } else {
    for (int64_t i = begin; i < n && i < begin + count; ++i) {
      auto one = [&](auto... in) { put(y + i, apply(op, in...), accumulate); };
      one(x[i]...);
    }
  }
}

template <class Op, class Y, class... X> void map(const Launch& how, Op op, const OutView& out, const X*... x) {
  constexpr int count = kPerThread<Y, X...>;
  Y* y = out.as<Y>();
  bool packed = aligned<Y, count>(y) && (aligned<X, count>(x) && ... && true);
  Config config{blocks_for((out.numel() + count - 1) / count), kBlock};
  launch<map_kernel<Op, Y, X...>>(how, config, op, y, out.numel(), out.beta != 0, packed, x...);
}

using kernels::Broadcast;

/// Where element i of the output reads its operands: one division per dimension for all.
template <int operands>
__device__ std::array<int64_t, size_t(operands)> offsets_of(const Broadcast<operands>& shape, int64_t i) {
  std::array<int64_t, size_t(operands)> at{};
  for (int d = shape.ndim - 1; d > 0; --d) {
    int64_t next = i / shape.extent[size_t(d)], here = i - next * shape.extent[size_t(d)];
    for (size_t k = 0; k < size_t(operands); ++k) at[k] += here * shape.stride[k][size_t(d)];
    i = next;
  }
  for (size_t k = 0; k < size_t(operands); ++k) at[k] += i * shape.stride[k][0];
  return at;
}
/// Where element i of the output reads operand K.
template <size_t K, int operands> __device__ int64_t offset_of(const Broadcast<operands>& shape, int64_t i) {
  int64_t at = 0;
  for (int d = shape.ndim - 1; d > 0; --d) {
    at += i % shape.extent[size_t(d)] * shape.stride[K][size_t(d)];
    i /= shape.extent[size_t(d)];
  }
  return at + i * shape.stride[K][0];
}

/// `count` elements of operand K from there on, which lie side by side, or are one and the same.
template <size_t K, int count, int operands, class T>
__device__ Pack<T, count> load_along(const Broadcast<operands>& shape, const T* from) {
  if (shape.stride[K][size_t(shape.ndim - 1)] == 1) return load_pack<count>(from);
  Pack<T, count> same;
  T element = *from;
  for (int k = 0; k < count; ++k) same.at[k] = element;
  return same;
}

// y has n elements. `packed`: a thread takes neighbours of a row, as map_kernel does; otherwise one element.
template <class Op, class Y, class... X>
__global__ void broadcast_kernel(Op op, Y* y, int64_t n, bool accumulate, bool packed, Broadcast<sizeof...(X)> shape,
                                 const X*... x) {
  constexpr int count = kPerThread<Y, X...>;
  int each = packed ? count : 1;
  int64_t begin = thread_number() * each;
  auto all = [&]<size_t... K>(std::index_sequence<K...>) {
    if (packed && begin + count <= n) {
      Pack<Y, count> result;
      if (accumulate) result = load_pack<count>(static_cast<const Y*>(y + begin));
      auto fill = [&](const auto&... in) {
        for (int k = 0; k < count; ++k) put(&result.at[k], apply(op, in.at[k]...), accumulate);
      };
      auto at = offsets_of(shape, begin);
      fill(load_along<K, count>(shape, x + at[K])...);
      store_pack(y + begin, result);
    } else {
      for (int64_t i = begin; i < n && i < begin + each; ++i) {
        auto at = offsets_of(shape, i);
        put(y + i, apply(op, X(x[at[K]])...), accumulate);
      }
    }
  };
  all(std::index_sequence_for<X...>());
}

/// Whether operand K can be read as load_along does, by threads that take `count` elements of the output.
template <size_t K, int count, int operands, class T> bool packs(const Broadcast<operands>& shape, const T* x) {
  if (shape.ndim == 0) return false;
  size_t last = size_t(shape.ndim - 1);
  int64_t step = shape.stride[K][last];
  bool rows = step == 0 || (step == 1 && aligned<T, count>(x));
  for (size_t d = 0; d < last; ++d) rows = rows && (step == 0 || shape.stride[K][d] % count == 0);
  return rows && (last == 0 || shape.extent[last] % count == 0);
}

template <class Op, class Y, class... X>
void broadcast(const Launch& how, Op op, const OutView& out, const Broadcast<sizeof...(X)>& shape, const X*... x) {
  constexpr int count = kPerThread<Y, X...>;
  Y* y = out.as<Y>();
  auto all = [&]<size_t... K>(std::index_sequence<K...>) {
    if (shape.ndim == 1 && ((shape.stride[K][0] == 1) && ...)) return map<Op, Y, X...>(how, op, out, x...);
    bool packed = aligned<Y, count>(y) && (packs<K, count>(shape, x) && ...);
    Config config{blocks_for(packed ? (out.numel() + count - 1) / count : out.numel()), kBlock};
    launch<broadcast_kernel<Op, Y, X...>>(how, config, op, y, out.numel(), out.beta != 0, packed, shape, x...);
  };
  all(std::index_sequence_for<X...>());
}

}  // namespace
}  // namespace shardgrad::SG_DEVICE
