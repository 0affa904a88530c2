#pragma once
// Kernels with one fault each, and correct ones that look as if they had one; each launches itself on the simulator.
// The lines that reports must name end in the comment "fault".

#include <cstdint>

namespace shardgrad::test {

void run_reverse(float* y, const float* x, bool with_barrier);  ///< one block of 256 turns x round in shared memory
void run_scale(float* y, const float* x, int n, bool checked);  ///< blocks of 256
void run_histogram(unsigned* counts, const int* x, int n, bool atomic);  ///< 8 bins, one block of 128
void run_barrier_in_branch(float* y, int threads);                       ///< the first half waits twice, the other once
void run_return_before_barrier(float* y, int n);        ///< one block of 64; those above n have returned
void run_unwritten_shared(float* y);                    ///< one block of 64 of which one does not write
void run_shuffle(float* y, unsigned mask, bool half);   ///< one warp; half: only lanes 0 to 15 call
void run_shuffle_down(float* y, int block);             ///< a whole-warp sum in the last warp
void run_dynamic_shared(float* y, int n, int bytes);    ///< one block of n with `bytes` of dynamic shared memory
void run_vector_copy(float* y, const float* x, int n);  ///< four at a time
void run_overrun_of_static_shared(float* y, int n);     ///< one block of n writes a shared array of 64
void run_warp_tree(float* y, const float* x, bool synchronised);  ///< one warp sums 32 through shared memory
void run_warp_rounds(float* y, const float* x);  ///< as an unsynchronised warp tree, but for its first round
void run_same_flag(int* y, const float* x);      ///< 64 threads raise one shared flag
void run_different_flag(int* y);                 ///< 64 threads write their number into one shared variable
void run_last_block_sum(float* y, float* partial, unsigned* count, const float* x, int blocks, bool fenced);
void run_global_race(float* y, int blocks);  ///< every block writes its number to y[0]
void run_write_to_input(const float* x);
void run_many_barriers(float* y);
void run_votes(unsigned* y);
void run_mma(float* y, int across, int down);  ///< a (16, 16) · b (16, 8) by a warp of across · down threads
enum class CopyFault { none, no_wait, no_barrier, no_group, too_early, not_waited_for };
void run_async_copy(float* y, const float* x, CopyFault fault);  ///< one block of 64 turns 256 elements of x round
void run_load_matrices(float* y, bool transposed);  ///< one warp gets element (r, c) = 100 r + c of four matrices, one
                                                    ///< below the other
void run_never(float* y);                           ///< its kernel is known, but nobody calls this

}  // namespace shardgrad::test
