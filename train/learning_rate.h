#pragma once
// The learning rate of each step of a run.

#include <cstdint>
#include <optional>
#include <string>

#include <shardgrad/train/config.h>
#include <shardgrad/train/evaluation.h>

namespace shardgrad::train {

/// Of step `step`, counted from 0, of a run of `total_steps`. Schedule plateau looks at the best score until then,
/// which is the same on every rank; the others do not.
double learning_rate(const Config& config, int64_t total_steps, int64_t step, const std::optional<Best>& best);

/// Says that the evaluation after step `step`, after which `best` is the best one, lowers the learning rate of the next
/// step; empty when it does not, or there is none. `score`: the name of what is the best.
std::string plateau_note(const Config& config, int64_t total_steps, int64_t step, const std::string& score,
                         const Best& best);

}  // namespace shardgrad::train
