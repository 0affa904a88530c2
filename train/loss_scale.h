#pragma once
// Loss scaling (optim/grad_scaler.h) that cannot succeed: each step whose gradients overflow f16 is left out and halves
// the scale, for which a run with values that no scale helps would go on to its end and learn nothing.

#include <string>

#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/train/meter.h>

namespace shardgrad::train {

/// Below it no scale is of use: f16's smallest number, at which only gradients above 1e12 overflow. From the scale that
/// a run begins with these are 41 steps in a row.
inline constexpr double kLeastLossScale = 0x1p-24;

/// Why the run makes no sense any more after the last step, and what to do; empty: it does. The same on every rank, for
/// the ranks leave out steps together.
std::string lost_scale(const optim::GradScaler& scaler, const Meter& meter);

}  // namespace shardgrad::train
