#include <shardgrad/fsdp/clip.h>

#include <algorithm>
#include <optional>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/workspace.h>
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
  /// Of a step in which `counted` of the parameters have a gradient.
  struct Step {
    std::vector<bool> counted;
    Device home;                // where the values meet
    std::vector<size_t> parts;  // the parameters of which this rank holds something
    optim::NormLeaves leaves;
    optim::JoinList mine;   // from the leaves to what this rank gives to the others
    optim::JoinList whole;  // from what all give to the one value
  };
  std::optional<Step> step;

  explicit NormPlan(const Sharded& sharded);
  /// That of the model, made by its first norm.
  static NormPlan& of(Sharded& sharded);
  /// Those of the step that was, where it can be as that one.
  const Step& step_of(Sharded& sharded);

 private:
  void add(const Location& where, std::vector<size_t>& used, std::vector<int>& ranks, int part);
  optim::JoinList joins_of_mine(const Step& step) const;
  optim::JoinList joins_of_all(const Step& step, int ranks) const;
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

NormPlan& NormPlan::of(Sharded& sharded) {
  if (!sharded.norm_plan_) sharded.norm_plan_ = std::make_shared<NormPlan>(sharded);
  return *sharded.norm_plan_;
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

optim::JoinList NormPlan::joins_of_mine(const Step& step) const {
  optim::Joins joins(step.leaves.count());
  std::vector<int64_t> values(row, joins.nothing());
  for (size_t k = 0; k < step.parts.size(); ++k)
    std::ranges::copy(step.leaves.nodes(k, joins), values.begin() + std::ptrdiff_t(parameters[step.parts[k]].mine_at));
  return joins.finish(values, step.home);
}

optim::JoinList NormPlan::joins_of_all(const Step& step, int ranks) const {
  optim::Joins joins(int64_t(row) * ranks);
  std::vector<int64_t> powers;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!step.counted[i]) continue;
    std::vector<int64_t> values(parameters[i].at.begin(), parameters[i].at.end());
    powers.push_back(optim::finish_tree(parameters[i].nodes, values, parameters[i].count, joins));
  }
  int64_t root = joins.tree(std::move(powers));
  return joins.finish({&root, 1}, step.home);
}

// Ranks agree on where: they have the same options.
static Device home_of(const Sharded& sharded) {
  for (FlatParam* flat : sharded.flats())
    if (flat->grad().defined()) return flat->grad().device();
  return context().default_device();
}

const NormPlan::Step& NormPlan::step_of(Sharded& sharded) {
  std::vector<bool> counted;
  for (const Parameter& parameter : parameters) counted.push_back(counts(parameter.where));
  Device home = home_of(sharded);
  if (step && step->counted == counted && step->home == home) return *step;
  std::vector<size_t> parts;
  std::vector<optim::NormLeaves::PartOf> blocks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!counted[i] || parameters[i].mine.begin == parameters[i].mine.end) continue;
    parts.push_back(i);
    blocks.push_back({parameters[i].mine, parameters[i].count});
  }
  TagScope owner(Category::other);
  step.reset();  // its lists' memory may serve these
  Step next{std::move(counted), home, std::move(parts), optim::NormLeaves(std::move(blocks)), {}, {}};
  next.mine = joins_of_mine(next);
  next.whole = joins_of_all(next, sharded.mesh().parts());
  return step.emplace(std::move(next));
}

namespace {

// The elements of this rank's blocks.
Tensor grad_of(const NormPlan::Parameter& parameter) {
  FlatParam& flat = *parameter.where.flat;
  const Slice& slice = flat.slices()[parameter.where.slice];
  int64_t offset = slice.offset - flat.shard_begin(), end = std::min(parameter.mine.end * kNormBlock, slice.numel());
  return flat.grad().rows(offset + parameter.mine.begin * kNormBlock, offset + end);
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

static Tensor power_of(Sharded& sharded, double p) {
  sharded.check_alive("grad_norm");
  SG_CHECK(p >= 1, "gradient norm: p = ", p, " is not possible; use 1, 2, 3, … or infinity");
  for (FlatParam* flat : sharded.flats()) {
    flat->bring_grad();
    flat->wait_to_update();
  }
  NormPlan& plan = NormPlan::of(sharded);
  const NormPlan::Step& step = plan.step_of(sharded);
  TagScope owner(Category::workspace);
  Tensor values = empty({step.mine.total}, {DType::f64, step.home});
  std::vector<Tensor> grads;
  for (size_t i : step.parts) grads.push_back(grad_of(plan.parameters[i]));
  step.leaves.launch(grads, values, p);
  step.mine.run(values, p);
  Tensor mine = step.mine.results(values, int64_t(plan.row));
  Tensor all = empty({step.whole.total}, {DType::f64, step.home}), given = all.rows(0, step.whole.given);
  if (dist::ProcessGroup* group = sharded.mesh().shard())  // in a row, one rank's after another's
    group->all_gather(given, mine, {{"", "grad_norm"}}).wait(context().backend(step.home).compute());
  else
    copy_into(given, mine);
  step.whole.run(all, p);
  return step.whole.results(all, 1);
}

Tensor grad_power(Sharded& sharded) { return power_of(sharded, 2); }

double grad_norm(Sharded& sharded, double p) { return optim::root_of(optim::number_of(power_of(sharded, p)), p); }

double clip_grad_norm(Sharded& sharded, double max_norm, double p) {
  double norm = grad_norm(sharded, p), factor = optim::clip_factor(norm, max_norm);
  for (FlatParam* flat : sharded.flats())
    if (flat->grad().defined() && factor < 1) scale(*flat, factor);
  return norm;
}

}  // namespace shardgrad::fsdp
