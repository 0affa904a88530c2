#include <shardgrad/train/loss_scale.h>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

std::string lost_scale(const optim::GradScaler& scaler, const Meter& meter) {
  if (meter.skipped_in_a_row() == 0 || scaler.factor() >= kLeastLossScale) return "";
  return concat("step ", meter.step(), ": the last ", meter.skipped_in_a_row(),
                " steps were left out, for gradients overflow f16 even where the loss is scaled by ", scaler.factor(),
                "; values of the model itself are too large for f16, or no numbers. Compute in bf16 (autocast=bf16, "
                "fsdp.param_dtype=bf16) or in f32, or try a smaller optimizer.lr from an earlier checkpoint");
}

}  // namespace shardgrad::train
