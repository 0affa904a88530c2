#include <shardgrad/core/timeline.h>
#include <shardgrad/fsdp/step/host_copy.h>

namespace shardgrad::fsdp {

Tensor HostCopy::buffer(int64_t numel, DType dtype) const {
  TagScope owner(Tag{Category::pinned_host, layout_.unit_id});
  return empty_on_host({numel}, dtype, layout_.device);
}

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
  auto span = begin_span(stream, {.op = way, .unit = layout_.unit, .elements = to.numel(), .dtype = to.dtype()});
  context().backend(layout_.device).copy(stream, to.out().data, from.in().data, to.bytes());
  end_span(stream, span);
  return stream.record();
}

}  // namespace shardgrad::fsdp
