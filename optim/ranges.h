#pragma once
// What of a parameter this rank updates (autograd/parameter.h), for optimizers and averages.

#include <exception>
#include <span>
#include <string>

#include <shardgrad/autograd/node.h>

namespace shardgrad::optim {

/// Who has sharded a parameter, frozen ones too, or null.
inline GradSink* owner_of(const Tensor& parameter) {
  GradFn* made_by = parameter.impl().grad_fn.get();
  return made_by && parameter.is_leaf() ? static_cast<Leaf*>(made_by)->sink() : nullptr;
}

/// Throws Error(input) where a parameter has another owner than when this `what`, an optimizer or average, was made.
inline void check_owner(const std::string& who, const char* what, const NamedParameter& parameter, GradSink* before) {
  SG_CHECK(owner_of(parameter.tensor) == before, who, ": '", parameter.name, "' was sharded after this ", what,
           " was made; make the ", what, " after fully_shard");
}

/// The dtype in which a parameter is updated: of a sharded one that of the shards.
inline DType updated_dtype(const NamedParameter& parameter, GradSink* owner) {
  return owner ? owner->dtype() : parameter.tensor.dtype();
}

/// Throws Error(input) for a parameter whose elements have 16 bits, in which small steps are lost. `or_else` ends the
/// message.
inline void check_wide(const std::string& who, const NamedParameter& parameter, GradSink* owner,
                       const char* or_else = "") {
  DType dtype = updated_dtype(parameter, owner);
  SG_CHECK(size_of(dtype) >= 4, who, ": '", parameter.name, "' is ", dtype,
           ", in which small updates are lost; keep the model in f32 and compute in ", dtype,
           " in a scope of Autocast, or shard it with Config::param_dtype", or_else);
}

/// Calls `call` with each of `all`, also after one of them has thrown; then throws what was thrown first.
template <class All, class Call> void reach_all(All&& all, const Call& call) {
  std::exception_ptr failure;
  for (auto&& each : all) try {
      call(each);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace shardgrad::optim
