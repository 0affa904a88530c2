// The updates of a step: neighbours are a run, and on a device that works beside the host several runs are a launch.

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {
namespace {

bool go_together(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.device() == b.device() && a.dtype() == b.dtype();
}

// Of one launch, if it takes several.
bool go_together(const LocalRange& a, const LocalRange& b) {
  return go_together(a.values, b.values) && go_together(a.copy, b.copy);
}

}  // namespace

// The same on all ranks, whatever seeds they have, for replicas stay replicas; and another for each part of a larger
// parameter.
uint64_t Optimizer::random_of(size_t i, int64_t step) const {
  if (!stochastic_rounding_) return 0;
  const NamedParameter& parameter = parameters_[i];
  uint64_t stream = stream_of("stochastic rounding", parameter.name) + uint64_t(parameter.part.begin);
  std::array<uint32_t, 4> words = philox(0, stream, uint64_t(step));
  return uint64_t(words[0]) << 32 | words[1];
}

// Of neighbours, whose gradients arrive together.
Optimizer::Run Optimizer::ready_run(std::span<const Piece> pieces, double grad_scale, const Tensor& scale) const {
  wait_for(pieces[0]);
  int64_t count = 0;
  for (const Piece& piece : pieces) count += piece.range.values.numel();
  Run run = run_of(pieces, count, grad_scale);
  if (scale.defined()) run.scale = scale.to(run.values.device());
  if (Capture::current()) run.later = later_of(pieces);
  return run;
}

void Optimizer::update_runs(std::span<Run> runs) {
  begin_updates();
  for (Run& run : runs) {
    update(run);
    SG_CHECK(!run.scale.defined(), name_,
             ": its update() did not multiply the gradient by Run::scale, and has changed ",
             "parameters without it; take_scale() of the Run that it is given, or let takes_scale() be false");
  }
  end_updates();
  for (const Run& run : runs)
    if (run.copy.defined()) launch(kernels::cast, run.values, out(run.copy), run.values);
}

// A parameter's step counts once its first piece, which comes last, is updated.
void Optimizer::update_all(std::span<const Piece> pieces, double grad_scale, const Tensor& scale) {
  std::vector<Run> runs;
  for (size_t end = pieces.size(), begin; end > 0; end = begin) {
    runs.clear();
    size_t most = computes_by_itself(pieces[end - 1].range.values.device()) ? most_gathered() : 1;
    auto fits = [&] { return runs.empty() || go_together(pieces[begin - 1].range, pieces[begin].range); };
    for (begin = end; begin > 0 && runs.size() < most && fits();) {
      size_t last = begin--;
      while (begin > 0 && follows(pieces[begin - 1], pieces[begin])) --begin;
      runs.push_back(ready_run(pieces.subspan(begin, last - begin), grad_scale, scale));
    }
    update_runs(runs);
    for (size_t i = begin; i < end; ++i)
      if (i == 0 || pieces[i].index != pieces[i - 1].index) ++slots_[pieces[i].index].steps;
  }
}

}  // namespace shardgrad::optim
