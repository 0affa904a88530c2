#include <shardgrad/fsdp/finite.h>

#include <algorithm>
#include <limits>

#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/kernels/workspace.h>
#include <shardgrad/optim/clip.h>

namespace shardgrad::fsdp {
namespace {

using kernels::kNormNode;

int64_t pieces_of(int64_t count) { return (count + kNormNode - 1) / kNormNode; }

}  // namespace

std::vector<GradMaxima> grad_maxima(Sharded& sharded) {
  sharded.check_alive("grad_maxima");
  TagScope owner(Category::workspace);
  std::vector<GradMaxima> all;
  optim::NormLaunches maxima(std::numeric_limits<double>::infinity());
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) {
      flat->bring_grad();
      flat->wait_to_update();
      std::vector<GradRun> runs = grad_runs(*flat);
      int64_t count = 0, at = 0;
      for (const GradRun& run : runs) count += pieces_of(run.end - run.begin);
      if (count == 0) continue;
      Tensor values = empty({count}, {DType::f64, flat->grad().device()});
      for (const GradRun& run : runs) {
        int64_t pieces = pieces_of(run.end - run.begin);
        maxima.add(values.rows(at, at + pieces), flat->grad().rows(run.begin, run.end), kNormNode);
        at += pieces;
      }
      all.push_back({unit->name(), values});
    }
  maxima.queue();
  std::ranges::reverse(all);
  return all;
}

}  // namespace shardgrad::fsdp
