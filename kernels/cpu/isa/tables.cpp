#include <shardgrad/kernels/cpu/isa/tables.h>

namespace shardgrad::cpu::SG_ISA {

constinit const Loops loops = {elementwise_loops, reduce_loops, row_loops,         norm_loops,
                               channel_loops,     pool_loops,   transformer_loops, optimizer_loops,
                               random_loops,      gemm_loops,   attention_loops,   convolution_loops};

}  // namespace shardgrad::cpu::SG_ISA
