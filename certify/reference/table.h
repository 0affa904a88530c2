#pragma once
// The kernel table with the reference in the place of the CPU's kernels: an oracle that shares no code with them.

#include <set>
#include <string>

#include <shardgrad/certify/reference/moves.h>
#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/certify/reference/rows.h>
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
      if (slot.has(DeviceKind::cpu, DType(dtype))) slot.add(DeviceKind::cpu, DType(dtype), best_isa(), kernel);
    names_.insert(slot.name());
  }
  TableCopy before_;
  std::set<std::string> names_;
};

inline ReferenceKernels::ReferenceKernels() {
#define SG_REFERENCE(name) use(kernels::name, [](const Launch&, auto... args) { reference::name(args...); });
  // clang-format off
  SG_REFERENCE(fill) SG_REFERENCE(copy) SG_REFERENCE(cast) SG_REFERENCE(expand) SG_REFERENCE(sum_to)
  SG_REFERENCE(random_uniform) SG_REFERENCE(random_normal)
  SG_REFERENCE(add) SG_REFERENCE(sub) SG_REFERENCE(mul) SG_REFERENCE(div)
  SG_REFERENCE(eq) SG_REFERENCE(ne) SG_REFERENCE(lt) SG_REFERENCE(le) SG_REFERENCE(gt) SG_REFERENCE(ge)
  SG_REFERENCE(where) SG_REFERENCE(affine) SG_REFERENCE(neg) SG_REFERENCE(exp) SG_REFERENCE(log) SG_REFERENCE(sqrt)
  SG_REFERENCE(tanh) SG_REFERENCE(sigmoid) SG_REFERENCE(relu) SG_REFERENCE(abs) SG_REFERENCE(gelu) SG_REFERENCE(pow)
  SG_REFERENCE(clamp) SG_REFERENCE(relu_backward) SG_REFERENCE(tanh_backward) SG_REFERENCE(sigmoid_backward)
  SG_REFERENCE(sqrt_backward) SG_REFERENCE(abs_backward) SG_REFERENCE(gelu_backward) SG_REFERENCE(pow_backward)
  SG_REFERENCE(clamp_backward) SG_REFERENCE(permute) SG_REFERENCE(narrow) SG_REFERENCE(narrow_backward)
  SG_REFERENCE(paste) SG_REFERENCE(index_select) SG_REFERENCE(index_add) SG_REFERENCE(gather)
  SG_REFERENCE(scatter_add) SG_REFERENCE(max_dim) SG_REFERENCE(softmax) SG_REFERENCE(softmax_backward)
  SG_REFERENCE(layer_norm) SG_REFERENCE(layer_norm_backward) SG_REFERENCE(batch_norm)
  SG_REFERENCE(batch_norm_backward) SG_REFERENCE(batch_norm_apply) SG_REFERENCE(dropout) SG_REFERENCE(mse)
  SG_REFERENCE(mse_backward) SG_REFERENCE(cross_entropy) SG_REFERENCE(cross_entropy_backward) SG_REFERENCE(matmul)
  SG_REFERENCE(linear_backward_input) SG_REFERENCE(linear_backward_weight)
  // clang-format on
#undef SG_REFERENCE
}

}  // namespace shardgrad::reference
