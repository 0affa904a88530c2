#pragma once
// CUDA's everyday words, each in a kernel of one warp, and whole kernels as books have them.

#include <cstddef>
#include <ostream>
#include <span>

namespace shardgrad::test {

/// Thread t of 32 writes y[t]; x holds 1, 2, 3, …
struct Word {
  const char* name;
  void (*use)(float* y, const float* x, int t);
  float (*expected)(int t);
  friend std::ostream& operator<<(std::ostream& out, const Word& word) { return out << word.name; }
};
std::span<const Word> number_words();  ///< numbers, bits, vectors and halves; in number_words.cu
std::span<const Word> thread_words();  ///< memory, atomics, warps and groups; in words.cu
void run_word(const Word& word, float* y, const float* x);

void run_vector_add(float* c, const float* a, const float* b, int n);                ///< with float4
void run_tiled_product(float* c, const float* a, const float* b, int n);             ///< of n × n, tiles of 16
void run_block_sums(float* sums, const float* x, int n, int blocks);                 ///< warps by shuffles
void run_histogram_of_bytes(unsigned* counts, const unsigned char* x, int n);        ///< 256 bins
void run_softmax(float* y, const float* x, int rows, int columns);                   ///< cooperative groups
void run_stencil(float* y, const float* x, const float* weights, int n);             ///< 7 in __constant__; null: kept
void copy_weights(const float* weights, size_t count, size_t from);                  ///< some of those 7
void run_group_sums(int* of_block, int* of_tiles, int* running, const int* x);       ///< of 256, by 16, within warps
void run_half_axpy(unsigned short* y, const unsigned short* x, float alpha, int n);  ///< half2

}  // namespace shardgrad::test
