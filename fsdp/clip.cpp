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

// As for the optimizers: one that was frozen since its gradient was written does not take part.
bool counts(const FlatParam& flat, size_t slice) {
  return flat.has_grad(slice) && flat.parameters()[slice].requires_grad();
}
bool counts(const Location& where) { return counts(*where.flat, where.slice); }

}  // namespace

/// Which subtrees of which parameter each rank of a row joins, and where their values lie in what the ranks gather. It
/// depends on how the parameters are cut and on nothing else.
struct NormPlan {
  struct Parameter {
    Location where;
    int64_t count;              // blocks
    Blocks mine;                // blocks in this rank's shard
    size_t mine_at;             // the first of this rank's values
    std::vector<Blocks> nodes;  // subtrees of all ranks, in order
    std::vector<size_t> at;     // their values
  };
  std::vector<Parameter> parameters;
  size_t row = 0;  // values of a rank

  explicit NormPlan(const Sharded& sharded);

 private:
  void add(const Location& where, std::vector<size_t>& used, std::vector<int>& ranks, int part);
};

NormPlan::NormPlan(const Sharded& sharded) {
  std::vector<size_t> used(size_t(sharded.mesh().parts()), 0);  // values of each rank
  std::vector<std::vector<int>> owners;                         // of each parameter's nodes
  for (const auto& [name, where] : sharded.index()) {
    const Slice& slice = where.flat->slices()[where.slice];
    optim::check_norm_of_whole("grad_norm", name, slice.shape, slice.part);
  }
  for (const auto& [name, where] : sharded.index()) add(where, used, owners.emplace_back(), sharded.mesh().part());
  row = *std::ranges::max_element(used);
  for (size_t i = 0; i < parameters.size(); ++i)
    for (size_t k = 0; k < owners[i].size(); ++k) parameters[i].at[k] += size_t(owners[i][k]) * row;
}

// Visits the ranks that hold a part of it, and no others.
void NormPlan::add(const Location& where, std::vector<size_t>& used, std::vector<int>& owners, int part) {
  const Slice& slice = where.flat->slices()[where.slice];
  int64_t length = where.flat->shard().numel(), end = slice.offset + slice.numel();
  Parameter& added = parameters.emplace_back(Parameter{where, block_count(slice), {0, 0}, 0, {}, {}});
  auto block_at = [&](int64_t element) {
    return std::clamp((element - slice.offset) / kNormBlock, int64_t(0), added.count);
  };
  if (slice.numel() == 0) return;
  for (int64_t rank = slice.offset / length; rank * length < end; ++rank) {
    Blocks held{block_at(rank * length), block_at((rank + 1) * length)};
    if (rank == part) added.mine = held, added.mine_at = used[size_t(rank)];
    for (Blocks node : optim::subtrees(held, added.count)) {
      added.nodes.push_back(node);
      added.at.push_back(used[size_t(rank)]++);
      owners.push_back(int(rank));
    }
  }
}

namespace {

std::vector<double> join_mine(const NormPlan& plan, double p) {
  std::vector<optim::GradPart> parts;
  std::vector<size_t> at;
  for (const NormPlan::Parameter& parameter : plan.parameters) {
    if (!counts(parameter.where) || parameter.mine.begin == parameter.mine.end) continue;
    FlatParam& flat = *parameter.where.flat;
    const Slice& slice = flat.slices()[parameter.where.slice];
    int64_t offset = slice.offset - flat.shard_begin(), end = std::min(parameter.mine.end * kNormBlock, slice.numel());
    parts.push_back(
        {flat.grad().rows(offset + parameter.mine.begin * kNormBlock, offset + end), parameter.mine, parameter.count});
    at.push_back(parameter.mine_at);
  }
  std::vector<double> values(plan.row);
  std::vector<std::vector<double>> joined = optim::subtree_powers(parts, p);
  for (size_t i = 0; i < joined.size(); ++i) std::ranges::copy(joined[i], values.begin() + std::ptrdiff_t(at[i]));
  return values;
}

void scale(const FlatParam& flat, double factor) {
  for (const GradRun& run : grad_runs(flat)) {
    Tensor part = flat.grad().rows(run.begin, run.end);
    launch(kernels::affine, part, out(part), part, factor, 0.0);
  }
}

}  // namespace

std::vector<GradRun> grad_runs(const FlatParam& flat) {
  std::vector<GradRun> runs;
  for (size_t i = 0; i < flat.slices().size(); ++i) {
    Owned mine = flat.owned(i);
    if (mine.count == 0 || !counts(flat, i)) continue;
    if (runs.empty() || runs.back().end != mine.at) runs.push_back({mine.at, mine.at});
    runs.back().end = mine.at + mine.padded;
  }
  return runs;
}

double grad_norm(Sharded& sharded, double p) {
  sharded.check_alive("grad_norm");
  for (FlatParam* flat : sharded.flats()) {
    flat->settle_grad();
    flat->wait_to_update();
  }
  if (!sharded.norm_plan_) sharded.norm_plan_ = std::make_shared<NormPlan>(sharded);
  const NormPlan& plan = *sharded.norm_plan_;
  std::vector<double> all = join_mine(plan, p);  // in a row, one rank's after another's
  if (dist::ProcessGroup* group = sharded.mesh().shard()) all = group->share(all, {"", "grad_norm"});
  std::vector<double> parameters;
  for (const NormPlan::Parameter& parameter : plan.parameters) {
    if (!counts(parameter.where)) continue;
    std::vector<double> values;
    for (size_t at : parameter.at) values.push_back(all[at]);
    parameters.push_back(optim::finish_tree(parameter.nodes, values, parameter.count, p));
  }
  return optim::root_of(optim::tree_join(std::move(parameters), p), p);
}

double clip_grad_norm(Sharded& sharded, double max_norm, double p) {
  double norm = grad_norm(sharded, p), factor = optim::clip_factor(norm, max_norm);
  for (FlatParam* flat : sharded.flats())
    if (flat->grad().defined() && factor < 1) scale(*flat, factor);
  return norm;
}

}  // namespace shardgrad::fsdp
