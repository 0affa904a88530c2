#include <shardgrad/core/capture.h>
#include <shardgrad/core/timeline.h>
#include <shardgrad/fsdp/offload/host_copy.h>

namespace shardgrad::fsdp {

Event HostCopy::take_back(const Tensor& to, const Tensor& from) const {
  Stream& compute = layout_.compute();
  compute.wait(last_);
  return queue(compute, to, from);
}

void HostCopy::download(const Tensor& to, const Tensor& from, const Event& ready) {
  Stream& downloads = layout_.mesh.downloads();
  downloads.wait(ready);
  last_ = queue(downloads, to, from);
  from.storage()->release(downloads);
}

Event HostCopy::queue(Stream& stream, const Tensor& to, const Tensor& from) const {
  const char* way = on_host(to) ? "download" : "upload";
  if (Capture::current())
    refuse_in_capture(concat("the ", way, " of unit '", layout_.unit, "' (move_params_to_cpu, move_grads_to_cpu)"),
                      "keep parameters and gradients on the device");
  auto span = begin_span(stream, {.op = way, .unit = layout_.unit, .elements = to.numel(), .dtype = to.dtype()});
  context().backend(layout_.device).copy(stream, to.out().data, from.in().data, to.bytes());
  end_span(stream, span);
  return stream.record();
}

}  // namespace shardgrad::fsdp
