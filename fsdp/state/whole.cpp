// Whole parameters in the shards' dtype, for people.

#include <shardgrad/fsdp/step/flat_param.h>

namespace shardgrad::fsdp {

Tensor FlatParam::gather_whole(std::string_view phase) {
  Tensor result = layout_.buffer(padded(), dtype(), Category::gathered_parameter, &first_writer(dtype()));
  Gathers one;
  ask_for(result, one);
  dist::Work gathered = layout_.mesh.gather(one, {layout_.unit, std::string(phase)}, layout_.part);
  shard_host_.arrive();
  gathered.wait(layout_.compute());
  return result;
}

Tensor FlatParam::whole(std::string_view phase) {
  return converts() || state_ != FullState::open ? gather_whole(phase) : full_;
}

void FlatParam::summon() {
  summoned_ = gather_whole("summon");
  summoned_.storage()->stand_in();
  rehome(summoned_);
}

void FlatParam::write_back() {
  copy_into(shard_, layout_.part_of(summoned_));
  shard_written();
}

void FlatParam::dismiss() {
  rehome(full_);
  summoned_ = Tensor();
}

}  // namespace shardgrad::fsdp
