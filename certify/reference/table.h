#pragma once
// The kernel table with the reference in the place of the CPU's kernels: an oracle that shares no code with them.

#include <set>
#include <string>

#include <shardgrad/certify/reference/attention.h>
#include <shardgrad/certify/reference/images.h>
#include <shardgrad/certify/reference/moves.h>
#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/certify/reference/rows.h>
#include <shardgrad/certify/reference/transformer.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad::reference {

/// For a scope. No operation may run meanwhile but on the CPU, for comparison.
class ReferenceKernels {
 public:
  ReferenceKernels();
  ~ReferenceKernels() { before_.restore(); }
  ReferenceKernels(const ReferenceKernels&) = delete;
  bool has(const std::string& slot) const { return names_.contains(slot); }

 private:
  template <class... Args> void use(Slot<Args...>& slot, typename Slot<Args...>::Kernel kernel) {
    for (int dtype = 0; dtype < kDTypeCount; ++dtype)
      if (slot.has(DeviceKind::cpu, DType(dtype))) slot.replace(DeviceKind::cpu, DType(dtype), kernel);
    names_.insert(slot.name());
  }
  TableCopy before_;
  std::set<std::string> names_;
};

inline ReferenceKernels::ReferenceKernels() {
#define SG_REFERENCE(name, ...) use(kernels::name, [](const Launch&, auto... args) { reference::name(args...); });
  // clang-format off
  SG_REFERENCE(fill) SG_REFERENCE(copy) SG_REFERENCE(cast) SG_REFERENCE(expand) SG_REFERENCE(sum_to)
  SG_REFERENCE(random_uniform) SG_REFERENCE(random_normal)
  SG_UNARIES(SG_REFERENCE, SG_REFERENCE, SG_REFERENCE) SG_BINARIES(SG_REFERENCE) SG_RELATIONS(SG_REFERENCE)
  SG_REFERENCE(where) SG_REFERENCE(permute) SG_REFERENCE(narrow) SG_REFERENCE(narrow_backward)
  SG_REFERENCE(paste) SG_REFERENCE(index_select) SG_REFERENCE(index_add) SG_REFERENCE(gather)
  SG_REFERENCE(scatter_add) SG_REFERENCE(max_dim) SG_REFERENCE(cumsum) SG_REFERENCE(prod) SG_REFERENCE(prod_backward)
  SG_REFERENCE(flip) SG_REFERENCE(triangle) SG_REFERENCE(scatter) SG_REFERENCE(sort) SG_REFERENCE(softmax) SG_REFERENCE(softmax_backward)
  SG_REFERENCE(layer_norm) SG_REFERENCE(layer_norm_backward) SG_REFERENCE(rms_norm) SG_REFERENCE(rms_norm_backward)
  SG_REFERENCE(batch_norm) SG_REFERENCE(group_norm) SG_REFERENCE(group_norm_backward)
  SG_REFERENCE(batch_norm_backward) SG_REFERENCE(batch_norm_apply) SG_REFERENCE(swiglu)
  SG_REFERENCE(add_layer_norm) SG_REFERENCE(add_rms_norm) SG_REFERENCE(swiglu_backward) SG_REFERENCE(rope) SG_REFERENCE(dropout) SG_REFERENCE(square_sums) SG_REFERENCE(mse)
  SG_REFERENCE(attention) SG_REFERENCE(attention_backward) SG_REFERENCE(attention_cached)
  SG_REFERENCE(huber_loss) SG_REFERENCE(huber_loss_backward)
  SG_REFERENCE(mse_backward) SG_REFERENCE(cross_entropy) SG_REFERENCE(cross_entropy_backward) SG_REFERENCE(matmul)
  SG_REFERENCE(linear_backward_input) SG_REFERENCE(linear_backward_weight)
  SG_REFERENCE(conv2d) SG_REFERENCE(conv2d_backward_input) SG_REFERENCE(conv2d_backward_weight)
  SG_REFERENCE(max_pool2d) SG_REFERENCE(max_pool2d_backward) SG_REFERENCE(avg_pool2d) SG_REFERENCE(avg_pool2d_backward)
  // clang-format on
#undef SG_REFERENCE
}

}  // namespace shardgrad::reference
