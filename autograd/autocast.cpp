#include <shardgrad/autograd/autocast.h>

#include <shardgrad/core/error.h>

namespace shardgrad {

static std::optional<DType> checked_autocast(std::optional<DType> dtype) {
  SG_CHECK(!dtype || *dtype == DType::bf16 || *dtype == DType::f16, "autocast: dtype ", *dtype,
           " is not possible; choose bf16 or f16, or none to switch it off");
  return dtype;
}

Autocast::Autocast(std::optional<DType> dtype) : scope_(detail::autocast, checked_autocast(dtype)) {}

}  // namespace shardgrad
