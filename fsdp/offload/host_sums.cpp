#include <shardgrad/fsdp/offload/host_sums.h>

#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::fsdp {

void HostSums::add(Tensor& sum, const Tensor& more) {
  Stream& compute = layout_.compute();
  Tensor total = on_host(more) ? taken_back(more) : more;
  if (total.dtype() != layout_.dtype) {
    total = layout_.buffer(more.numel(), layout_.dtype, Category::communication);
    convert(more, out(total));
  }
  if (sum.defined()) {
    Tensor earlier = layout_.buffer(more.numel(), layout_.dtype, Category::communication, &compute);
    copy_.take_back(earlier, sum);
    convert(earlier, out(total, 1));
  }
  download(sum, total, compute.record());
}

void HostSums::download(Tensor& sum, const Tensor& total, const Event& ready) {
  if (!sum.defined()) sum = layout_.host_buffer(total.numel(), layout_.dtype);
  copy_.download(sum, total, ready);
}

// The host waits, for its memory goes.
Tensor HostSums::taken_back(const Tensor& sum) {
  Tensor here = layout_.buffer(sum.numel(), layout_.dtype, Category::communication, &layout_.compute());
  copy_.take_back(here, sum).host_wait();
  return here;
}

}  // namespace shardgrad::fsdp
