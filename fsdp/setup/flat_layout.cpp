#include <shardgrad/fsdp/setup/flat_layout.h>

#include <algorithm>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::fsdp {

static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

FlatLayout::FlatLayout(std::string unit_name, std::string part_name, std::span<nn::Parameter* const> parameters,
                       Mesh& mesh, const Config& config)
    : unit(std::move(unit_name)),
      part(std::move(part_name)),
      unit_id(context().ledger().unit_id(unit)),
      mesh(mesh),
      device(parameters.front()->tensor.device()),
      dtype(parameters.front()->tensor.dtype()),
      param_dtype(config.param_dtype.value_or(dtype)),
      reduce_dtype(config.reduce_dtype.value_or(dtype)) {
  for (const nn::Parameter* parameter : parameters) {
    slices.push_back({parameter->full_name, parameter->tensor.shape(), padded, parameter->part});
    padded += round_up(slices.back().numel(), kSliceAlignment);
  }
  padded = round_up(std::max(padded, int64_t(1)), kSliceAlignment * mesh.world().size());
}

int64_t FlatLayout::numel() const {
  int64_t total = 0;
  for (const Slice& slice : slices) total += slice.numel();
  return total;
}

std::vector<size_t> FlatLayout::begins(DType of) const {
  std::vector<size_t> bytes;
  for (const Slice& slice : slices) bytes.push_back(size_t(slice.offset) * size_of(of));
  return bytes;
}

Owned FlatLayout::within(size_t i, int64_t begin, int64_t numel) const {
  auto inside = [&](int64_t element) { return std::clamp(element - begin, int64_t(0), numel); };
  int64_t first = inside(slices[i].offset), last = inside(i + 1 < slices.size() ? slices[i + 1].offset : padded);
  int64_t in_slice = first + begin - slices[i].offset;
  return {first, in_slice, std::clamp(slices[i].numel() - in_slice, int64_t(0), last - first), last - first};
}

Spread FlatLayout::spread(size_t i) const {
  Spread spread{.ranks = mesh.whole_tensors(), .dtype = dtype, .device = device};
  for (int rank = 0; rank < mesh.parts(); ++rank) {
    Owned held = within(i, rank * shard_numel(), shard_numel());
    spread.parts.push_back({held.in_slice, held.count});
  }
  return spread;
}

Tensor FlatLayout::released_buffer(int64_t numel, DType of, Category::Kind category) const {
  return Tensor(Storage::make(size_t(numel) * size_of(of), mesh.memory(), {category, unit_id}, true), 0, {numel}, of);
}

Tensor FlatLayout::buffer(int64_t numel, DType of, Category::Kind category, Stream* stream) const {
  Tensor result = released_buffer(numel, of, category);
  result.storage()->materialize(stream ? *stream : current_stream(device));
  return result;
}

Tensor FlatLayout::host_buffer(int64_t numel, DType of) const {
  TagScope owner(Tag{Category::pinned_host, unit_id});
  return empty_on_host({numel}, of, device);
}

void FlatLayout::zero_gaps(const Tensor& full) const {
  int64_t end = 0;
  for (const Slice& slice : slices) {
    fill_with_zeros(full.rows(end, slice.offset));
    end = slice.offset + slice.numel();
  }
  fill_with_zeros(full.rows(end, padded));
}

void convert(const Tensor& from, const Out& to) {
  launch(from.dtype() == to.tensor.dtype() ? kernels::copy : kernels::cast, from, to, from);
}

void fill_with_zeros(const Tensor& part) {
  if (part.numel() > 0) launch(kernels::fill, part, out(part), 0.0);
}

}  // namespace shardgrad::fsdp
