#include <shardgrad/fsdp/setup/flat_buffers.h>

#include <optional>

#include <shardgrad/dist/transports/common_memory.h>

namespace shardgrad::fsdp {
namespace {

FlatBuffers permanent_buffers(const FlatLayout& layout) {
  bool converts = layout.converts();
  Tensor whole = layout.buffer(layout.padded, layout.param_dtype,
                               converts ? Category::gathered_parameter : Category::parameter_shard);
  Tensor mine = layout.part_of(whole);
  return {.shard = converts ? layout.buffer(layout.shard_numel(), layout.dtype, Category::parameter_shard) : mine,
          .full = Tensor(Storage::window(whole.storage()), 0, {layout.padded}, layout.param_dtype),
          .converted = converts ? mine : Tensor(),
          .permanent = true};
}

// None where the ranks have no memory in common.
std::optional<FlatBuffers> common_buffers(const FlatLayout& layout) {
  dist::ProcessGroup* group = layout.mesh.shard();
  int64_t mine = layout.shard_numel();
  size_t bytes = size_t(mine) * size_of(layout.dtype);
  auto common = group && mine > 0 ? group->common_memory(bytes) : nullptr;
  if (!common) return {};
  Ref<Allocator> slice = dist::slice_allocator(layout.device, common);
  Tensor shard(Storage::make(bytes, slice, {Category::parameter_shard, layout.unit_id}), 0, {mine}, layout.dtype);
  Tensor full(Storage::window(shard.storage(), common->whole()), 0, {layout.padded}, layout.dtype);
  full.storage()->release(layout.compute());
  return FlatBuffers{.shard = shard, .full = full, .common = true};
}

FlatBuffers memory_of(const FlatLayout& layout, const Config& config) {
  bool to_cpu = config.move_params_to_cpu && layout.has_own_memory(), converts = layout.converts();
  if (config.keeps_params() || (!layout.split() && !to_cpu && !converts)) return permanent_buffers(layout);
  if (!to_cpu && !converts)
    if (std::optional<FlatBuffers> common = common_buffers(layout)) return *common;
  int64_t mine = layout.shard_numel();
  return {.shard = to_cpu ? layout.host_buffer(mine, layout.dtype)
                          : layout.buffer(mine, layout.dtype, Category::parameter_shard),
          .full = layout.released_buffer(layout.padded, layout.param_dtype, Category::gathered_parameter)};
}

// What is said to who uses the full parameters where they cannot be used.
std::string note_of(const FlatLayout& layout, bool permanent) {
  std::string whose = concat("it belongs to unit '", layout.unit, "', which is sharded. ");
  if (permanent && layout.converts())
    whose =
        concat("it is a ", layout.param_dtype, " copy of what unit '", layout.unit, "' holds in ", layout.dtype, ". ");
  return whose + "Read it inside its module's forward, read or change it in a scope of fsdp::SummonFullParams";
}

// `part` is the flat parameter from element `begin` on.
void fill_elements(const Tensor& part, int64_t begin, const FlatLayout& layout,
                   std::span<nn::Parameter* const> parameters) {
  fill_with_zeros(part);
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto [at, first, count, padded] = layout.within(i, begin, part.numel());
    if (count == 0) continue;
    Tensor mine = part.rows(at, at + count);
    const Tensor& whole = parameters[i]->tensor;
    if (whole.storage()->resident())  // it has values already
      copy_into(mine, whole.alias({whole.numel()}).alias_rows(first, first + count));
    else
      parameters[i]->fill_range(first, mine);
  }
}

}  // namespace

FlatBuffers make_flat_buffers(const FlatLayout& layout, const Config& config) {
  FlatBuffers buffers = memory_of(layout, config);
  Storage& full = *buffers.full.storage();
  full.count_writes_apart(layout.begins(layout.param_dtype));
  full.set_note(note_of(layout, buffers.permanent));
  if (!buffers.permanent || layout.converts()) full.set_read_only();  // it is a copy, whose edits nobody would see
  return buffers;
}

// Each rank fills only its own shard: the initial weights are a function of (seed, name, element).
void fill_shard(const Tensor& shard, const FlatLayout& layout, std::span<nn::Parameter* const> parameters,
                bool from_rank0) {
  if (!from_rank0) return fill_elements(shard, layout.shard_begin(), layout, parameters);
  dist::ProcessGroup& world = layout.mesh.world();
  Tensor whole = layout.buffer(layout.padded, layout.dtype, Category::gathered_parameter);
  if (world.rank() == 0) fill_elements(whole, 0, layout, parameters);
  world.broadcast(whole, 0, {{layout.unit, "fully_shard"}}).wait(layout.compute());
  copy_into(shard, layout.part_of(whole));
}

}  // namespace shardgrad::fsdp
