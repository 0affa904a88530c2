#include <shardgrad/fsdp/step/secondary_shard.h>

namespace shardgrad::fsdp {

SecondaryShard::SecondaryShard(const FlatLayout& layout, const Config& config) : layout_(layout) {
  int ranks = config.reshard_after_forward;
  if (config.reshards_after_forward() && ranks > 0 && ranks < layout.mesh.parts()) group_ = &layout.mesh.near(ranks);
}

void SecondaryShard::take(const Tensor& full, bool common) {
  if (!group_ || current()) return;
  int64_t numel = full.numel() / group_->size(), begin = group_->rank() * numel;
  Tensor mine = full.rows(begin, begin + numel);
  part_ = common ? mine : layout_.buffer(numel, full.dtype(), Category::secondary_shard);
  if (!common) convert(mine, out(part_));
  ready_ = layout_.compute().record();
}

void SecondaryShard::ask_for(const Tensor& full, Gathers& buffers) const {
  group_->stream().wait(ready_);
  buffers.push_back({full, part_});
}

}  // namespace shardgrad::fsdp
