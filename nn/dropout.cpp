#include <shardgrad/nn/dropout.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>

namespace shardgrad::nn {

Dropout::Dropout(double p) : p_(p) { SG_CHECK(p >= 0 && p < 1, "Dropout: probability ", p, " is not within [0, 1)"); }

Tensor Dropout::forward(const Tensor& x) {
  if (!training() || p_ == 0) return x;
  Progress& progress = context().progress();
  uint64_t name = stream_of(full_name());
  uint64_t draw = progress.draws[name]++;
  std::array<uint32_t, 4> mixed = philox(name, progress.step, draw);
  uint64_t stream = uint64_t(mixed[0]) << 32 | mixed[1];
  return dropout(x, p_, context().seed(), stream, progress.first_sample);
}

}  // namespace shardgrad::nn
