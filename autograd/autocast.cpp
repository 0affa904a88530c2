#include <shardgrad/autograd/autocast.h>

#include <shardgrad/autograd/converted_copies.h>
#include <shardgrad/core/error.h>

namespace shardgrad {

// Those of the scope around, or new ones. Each scope holds them, for scopes may end in any order.
static Ref<detail::ConvertedCopies> copies_in_scope(std::optional<DType> dtype) {
  SG_CHECK(!dtype || *dtype == DType::bf16 || *dtype == DType::f16, "autocast: dtype ", *dtype,
           " is not possible; choose bf16 or f16, or none to switch it off");
  detail::ConvertedCopies* around = detail::autocast.of(context()).copies;
  if (around || !dtype) return Ref<detail::ConvertedCopies>(around);
  return make_ref<detail::ConvertedCopies>();
}

Autocast::Autocast(std::optional<DType> dtype)
    : copies_(copies_in_scope(dtype)), scope_(detail::autocast, {dtype, copies_.get()}) {}

Autocast::~Autocast() = default;

}  // namespace shardgrad
