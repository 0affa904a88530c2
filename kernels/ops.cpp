#include <shardgrad/kernels/ops.h>

namespace shardgrad::kernels {

#define SG_SLOT(name) constinit decltype(name) name{#name};
// clang-format off
SG_SLOT(fill) SG_SLOT(copy) SG_SLOT(cast) SG_SLOT(expand) SG_SLOT(sum_to) SG_SLOT(random_uniform)
SG_SLOT(random_normal) SG_SLOT(add) SG_SLOT(sub) SG_SLOT(mul) SG_SLOT(div) SG_SLOT(eq) SG_SLOT(ne) SG_SLOT(lt)
SG_SLOT(le) SG_SLOT(gt) SG_SLOT(ge) SG_SLOT(where) SG_SLOT(affine) SG_SLOT(neg) SG_SLOT(exp) SG_SLOT(log)
SG_SLOT(sqrt) SG_SLOT(tanh) SG_SLOT(sigmoid) SG_SLOT(relu) SG_SLOT(abs) SG_SLOT(gelu) SG_SLOT(pow) SG_SLOT(clamp)
SG_SLOT(relu_backward) SG_SLOT(tanh_backward) SG_SLOT(sigmoid_backward) SG_SLOT(sqrt_backward)
SG_SLOT(abs_backward) SG_SLOT(gelu_backward) SG_SLOT(pow_backward) SG_SLOT(clamp_backward) SG_SLOT(permute)
SG_SLOT(narrow) SG_SLOT(narrow_backward) SG_SLOT(paste) SG_SLOT(index_select) SG_SLOT(index_add) SG_SLOT(gather)
SG_SLOT(scatter_add) SG_SLOT(max_dim) SG_SLOT(softmax) SG_SLOT(softmax_backward) SG_SLOT(layer_norm)
SG_SLOT(layer_norm_backward) SG_SLOT(batch_norm) SG_SLOT(batch_norm_backward) SG_SLOT(batch_norm_apply)
SG_SLOT(dropout) SG_SLOT(mse) SG_SLOT(mse_backward) SG_SLOT(cross_entropy) SG_SLOT(cross_entropy_backward)
SG_SLOT(matmul) SG_SLOT(sgd) SG_SLOT(adam) SG_SLOT(tree_sum)
// clang-format on
#undef SG_SLOT

}  // namespace shardgrad::kernels
