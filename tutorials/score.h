#pragma once
// The score of a kernel, as GPU-Puzzles has it: what a thread reads and writes in global and in shared memory, and how
// often it multiplies. It is counted where it is written, so that no compiler changes it:
//
//     __global__ void twice_kernel(Out<float>* y, Score* score, const In<float>* x) {
//       Scored thread(score);            // first in a kernel; its end adds this thread's counts to the score
//       __shared__ Shared<float> tile[kMostThreads];
//       Number element = x[threadIdx.x];  // a read; a float that is in a register is a Number
//       tile[threadIdx.x] = element * 2;  // a multiplication and a write
//       …
//     }
//
// It costs a kernel most of its speed, and is for learning only. Under nvcc a GPU counts the same.

#include <shardgrad/kernels/cuda/launch.h>
#include <shardgrad/tutorials/kernel.h>

namespace shardgrad::SG_DEVICE {

inline constexpr int kMostThreads = 256;  ///< of a block whose threads are scored
inline constexpr DType kF32[] = {DType::f32}, kBf16[] = {DType::bf16};
using Score = unsigned long long;

/// This thread's counts.
__device__ inline unsigned* counts_of_thread() {
  __shared__ unsigned counts[kMostThreads][learn::kinds];
  return counts[threadIdx.y * blockDim.x + threadIdx.x];
}

/// Counts what its thread does while it lives.
class Scored {
 public:
  __device__ explicit Scored(Score* score) : score_(score) {
    for (unsigned kind = 0; kind < learn::kinds; ++kind) counts_of_thread()[kind] = 0;
  }
  __device__ ~Scored() {
    for (unsigned kind = 0; kind < learn::kinds; ++kind) {
      Score count = counts_of_thread()[kind];
      atomicMax(score_ + kind, count);
      atomicAdd(score_ + learn::kinds + kind, count);
    }
  }
  Scored(const Scored&) = delete;

 private:
  Score* score_;
};

/// A float in a register. Multiplying two counts; adding is free, for a GPU adds in the same instruction.
struct Number {
  float value;
  Number() = default;
  __device__ Number(float v) : value(v) {}
  __device__ Number& operator+=(Number other) { return value += other.value, *this; }
};
__device__ inline Number operator+(Number a, Number b) { return a.value + b.value; }
__device__ inline Number operator-(Number a, Number b) { return a.value - b.value; }
__device__ inline Number operator*(Number a, Number b) {
  ++counts_of_thread()[learn::multiplications];
  return a.value * b.value;
}

/// An element in memory, of which each read and each write counts. Read, it is a Number, or what else it holds; `auto`
/// in the place of Number stays an element, which is read wherever it is used. It has no constructor, as shared memory
/// wants.
template <class T, learn::Kind read, learn::Kind write = learn::kinds> class Cell {
 public:
  using Value = std::conditional_t<std::is_same_v<T, float>, Number, T>;
  Cell& operator=(const Cell&) = delete;  // where both sides are one type, write Number(right)
  __device__ operator Value() const {
    ++counts_of_thread()[read];
    return Value(element_);
  }
  __device__ Cell& operator=(Value value) {
    static_assert(write != learn::kinds, "an In is only read");
    ++counts_of_thread()[write];
    if constexpr (std::is_same_v<T, float>)
      element_ = value.value;
    else
      element_ = value;
    return *this;
  }
  __device__ Cell& operator+=(Value value) { return *this = Value(*this) + value; }

 private:
  T element_;
};
/// What a kernel gets in global memory, and what it gives there.
template <class T> using In = Cell<T, learn::global_reads>;
template <class T> using Out = Cell<T, learn::global_reads, learn::global_writes>;
/// What the threads of a block share.
template <class T> using Shared = Cell<T, learn::shared_reads, learn::shared_writes>;

/// mma, whose sums are Numbers: one instruction that multiplies.
__device__ inline void scored_mma(Number (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  float values[4] = {sums[0].value, sums[1].value, sums[2].value, sums[3].value};
  mma<bf16>(values, a, b);
  ++counts_of_thread()[learn::multiplications];
  for (int e = 0; e < 4; ++e) sums[e] = values[e];
}

}  // namespace shardgrad::SG_DEVICE
