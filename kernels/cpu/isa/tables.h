#pragma once
// The tables that the files of this folder export, in the namespace of their instruction set.

#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu::SG_ISA {

extern const ElementwiseLoops elementwise_loops;
extern const ReduceLoops reduce_loops;
extern const RowLoops row_loops;
extern const NormLoops norm_loops;
extern const ChannelLoops channel_loops;
extern const PoolLoops pool_loops;
extern const TransformerLoops transformer_loops;
extern const OptimizerLoops optimizer_loops;
extern const RandomLoops random_loops;
extern const GemmLoops gemm_loops;
extern const AttentionLoops attention_loops;
extern const ConvolutionLoops convolution_loops;
extern const Loops loops;

}  // namespace shardgrad::cpu::SG_ISA
