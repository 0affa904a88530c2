#pragma once
// The copies between what a flat parameter keeps in host memory and the device, each way on a stream of its own
// (fsdp/setup/mesh.h).

#include <shardgrad/fsdp/setup/flat_layout.h>

namespace shardgrad::fsdp {

/// Whether it is a FlatLayout::host_buffer.
inline bool on_host(const Tensor& t) { return t.storage()->tag().category == Category::pinned_host; }

class HostCopy {
 public:
  explicit HostCopy(const FlatLayout& layout) : layout_(layout) {}

  /// Queues a copy to the device, of what the host has written before. Over at the event.
  Event upload(const Tensor& to, const Tensor& from) { return last_ = queue(layout_.mesh.uploads(), to, from); }
  /// The same on compute, of what was downloaded before.
  Event take_back(const Tensor& to, const Tensor& from) const;
  /// Queues a copy to the host, which begins after `ready`; the memory of `from` is given back after it.
  void download(const Tensor& to, const Tensor& from, const Event& ready);
  /// Compute waits for the last copy.
  void arrive() const { layout_.compute().wait(last_); }
  /// Returns when the last copy is over: the host may read and write the buffer.
  void wait() const { last_.host_wait(); }

 private:
  Event queue(Stream& stream, const Tensor& to, const Tensor& from) const;
  const FlatLayout& layout_;
  Event last_;
};

}  // namespace shardgrad::fsdp
