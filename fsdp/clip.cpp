#include <shardgrad/fsdp/clip.h>

#include <algorithm>

#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/clip.h>

namespace shardgrad::fsdp {
namespace {

using optim::Blocks;
using optim::kNormBlock;
static_assert(kNormBlock == kSliceAlignment, "shards must begin at blocks of the norm's tree");

int64_t block_count(const Slice& slice) { return (slice.numel() + kNormBlock - 1) / kNormBlock; }

// The subtrees of a parameter that rank `part` of its row joins.
std::vector<Blocks> subtrees_of(const Location& where, int part) {
  const FlatParam& flat = *where.flat;
  const Slice& slice = flat.slices()[where.slice];
  int64_t count = block_count(slice), length = flat.shard().numel();
  auto block_at = [&](int64_t element) { return std::clamp((element - slice.offset) / kNormBlock, int64_t(0), count); };
  return optim::subtrees({block_at(part * length), block_at((part + 1) * length)}, count);
}

bool counts(const Location& where) { return where.flat->has_grad(where.slice); }

std::vector<double> join_mine(const Sharded& sharded, double p) {
  std::vector<double> values;
  for (const auto& [name, where] : sharded.index()) {
    if (!counts(where)) continue;
    FlatParam& flat = *where.flat;
    int64_t offset = flat.slices()[where.slice].offset - flat.shard_begin();
    for (Blocks blocks : subtrees_of(where, sharded.mesh().part())) {
      Tensor grad = flat.grad().rows(offset + blocks.begin * kNormBlock, offset + blocks.end * kNormBlock);
      values.push_back(optim::tree_join(optim::block_powers(grad, p), p));
    }
  }
  return values;
}

// Every rank's values, each at its beginning of a row of equal length.
std::vector<double> share(const Sharded& sharded, std::vector<double> mine, size_t row) {
  dist::ProcessGroup* group = sharded.mesh().shard();
  if (!group) return mine;
  mine.resize(row);
  Tensor all = empty({int64_t(row) * group->size()}, {DType::f64, kCpu});
  Tensor own = from_vector<double>(mine, {int64_t(row)}, {DType::f64, kCpu});
  group->all_gather(all, own, {{"", "grad_norm"}}).host_wait();
  return all.to_vector<double>();
}

}  // namespace

double grad_norm(Sharded& sharded, double p) {
  sharded.check_alive("grad_norm");
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      flat->settle_grad();
      flat->wait_to_update();
    }
  int parts = sharded.mesh().parts();
  std::vector<size_t> used(size_t(parts), 0);  // values of each rank
  for (const auto& [name, where] : sharded.index())
    for (int part = 0; part < parts && counts(where); ++part) used[size_t(part)] += subtrees_of(where, part).size();
  size_t row = *std::ranges::max_element(used);
  std::vector<double> all = share(sharded, join_mine(sharded, p), row);

  std::vector<size_t> next(size_t(parts), 0);
  std::vector<double> parameters;
  for (const auto& [name, where] : sharded.index()) {
    if (!counts(where)) continue;
    std::vector<Blocks> nodes;
    std::vector<double> values;
    for (int part = 0; part < parts; ++part)
      for (Blocks node : subtrees_of(where, part)) {
        nodes.push_back(node);
        values.push_back(all[size_t(part) * row + next[size_t(part)]++]);
      }
    parameters.push_back(optim::finish_tree(nodes, values, block_count(where.flat->slices()[where.slice]), p));
  }
  return optim::root_of(optim::tree_join(std::move(parameters), p), p);
}

double clip_grad_norm(Sharded& sharded, double max_norm, double p) {
  double norm = grad_norm(sharded, p), factor = optim::clip_factor(norm, max_norm);
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params())
      if (const Tensor& grad = flat->grad(); grad.defined() && factor < 1)
        launch(kernels::affine, grad, out(grad), grad, factor, 0.0);
  return norm;
}

}  // namespace shardgrad::fsdp
