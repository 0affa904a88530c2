#include <shardgrad/kernels/ops.h>

namespace shardgrad::kernels {

// clang-format off
#define SG_SLOTS(SLOT) \
  SLOT(fill) SLOT(copy) SLOT(cast) SLOT(expand) SLOT(sum_to) SLOT(random_uniform) SLOT(random_normal) SLOT(where) \
  SLOT(permute) SLOT(narrow) SLOT(narrow_backward) \
  SLOT(paste) SLOT(index_select) SLOT(index_add) SLOT(gather) SLOT(scatter_add) SLOT(max_dim) SLOT(softmax) \
  SLOT(softmax_backward) SLOT(layer_norm) SLOT(layer_norm_backward) SLOT(rms_norm) SLOT(rms_norm_backward) \
  SLOT(batch_norm) SLOT(batch_norm_backward) SLOT(batch_norm_apply) SLOT(swiglu) SLOT(swiglu_backward) \
  SLOT(rope) SLOT(dropout) SLOT(attention) SLOT(attention_backward) SLOT(attention_cached) SLOT(mse) SLOT(mse_backward) \
  SLOT(cross_entropy) SLOT(cross_entropy_backward) SLOT(matmul) SLOT(linear_backward_input) SLOT(linear_backward_weight) SLOT(sgd) SLOT(adam) \
  SLOT(norm_powers) SLOT(tree_sum)
#define SG_ELEMENTWISE(ROW) SG_UNARIES(ROW, ROW, ROW) SG_BINARIES(ROW) SG_RELATIONS(ROW)
// clang-format on

#define SG_DEFINE(name, ...) constinit decltype(name) name{#name};
SG_SLOTS(SG_DEFINE)
SG_ELEMENTWISE(SG_DEFINE)
SG_DEFINE(relu_mask_bytes)

std::span<const SlotBase* const> all_slots() {
#define SG_ADDRESS(name, ...) &name,
  static constexpr const SlotBase* slots[] = {SG_SLOTS(SG_ADDRESS) SG_ELEMENTWISE(SG_ADDRESS)};
  return slots;
}

}  // namespace shardgrad::kernels
