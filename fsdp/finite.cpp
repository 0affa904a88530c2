#include <shardgrad/fsdp/finite.h>

#include <algorithm>
#include <limits>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::fsdp {
namespace {

using kernels::kNormNode;

int64_t pieces_of(int64_t count) { return (count + kNormNode - 1) / kNormNode; }

// Slices without a gradient, whose memory may hold anything, lie between those that have one.
struct Run {
  int64_t begin, end;
};
std::vector<Run> runs_of(const FlatParam& flat) {
  std::vector<Run> runs;
  for (size_t i = 0; i < flat.slices().size(); ++i) {
    Owned mine = flat.owned(i);
    if (mine.count == 0 || !flat.has_grad(i) || !flat.parameter(i).requires_grad()) continue;
    if (!runs.empty() && runs.back().end == mine.at)
      runs.back().end = mine.at + mine.padded;
    else
      runs.push_back({mine.at, mine.at + mine.padded});
  }
  return runs;
}

}  // namespace

std::vector<GradMaxima> grad_maxima(Sharded& sharded) {
  sharded.check_alive("grad_maxima");
  TagScope owner(Category::workspace);
  std::vector<GradMaxima> all;
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      flat->settle_grad();
      flat->wait_to_update();
      std::vector<Run> runs = runs_of(*flat);
      int64_t count = 0, at = 0;
      for (const Run& run : runs) count += pieces_of(run.end - run.begin);
      if (count == 0) continue;
      Tensor values = empty({count}, {DType::f64, flat->grad().device()});
      for (const Run& run : runs) {
        Tensor x = flat->grad().rows(run.begin, run.end);
        int64_t pieces = pieces_of(run.end - run.begin);
        launch(kernels::norm_powers, x, out(values.rows(at, at + pieces)), x, std::numeric_limits<double>::infinity(),
               kNormNode);
        at += pieces;
      }
      all.push_back({unit->name(), values});
    }
  std::ranges::reverse(all);
  return all;
}

}  // namespace shardgrad::fsdp
