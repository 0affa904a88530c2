#include <shardgrad/dist/transports/transport.h>

#include <shardgrad/core/context.h>

namespace shardgrad::dist {

Ref<Allocator> Transport::memory(Device device) { return context().backend(device).memory(); }

void Transport::check() const {
  control_->check();
  if (abandoned_.load(std::memory_order_acquire)) throw Abandoned(kind_);
}

}  // namespace shardgrad::dist
