#include <shardgrad/autograd/elementwise.h>

#include <shardgrad/autograd/ops/common.h>

namespace shardgrad::detail {

void check_function(const SlotBase& kernel, const Tensor& x) {
  check_floating(kernel.name(), x);
  DeviceKind device = x.device().kind;
  if (device == DeviceKind::meta || kernel.has(device, x.dtype())) return;
  fail_as(ErrorKind::missing, kernel.name(), ": there is no kernel for device ", x.device(),
          "; elementwise() makes those for cpu and acc. add_elementwise in a .cu file makes one (docs/extending.md)");
}

}  // namespace shardgrad::detail
