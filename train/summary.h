#pragma once
// The table at the end of a run: what this process did, beside what the plan had predicted.

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/run_report.h>

namespace shardgrad::train {

struct Totals {
  Metrics metrics;  ///< the last ones
  int64_t steps, samples;
  double seconds;            ///< of steps
  int64_t step_bytes;        ///< that a step sent
  int64_t evaluation_bytes;  ///< in all
};
RunReport::Rows summary(const Config& config, const dist::ProcessGroup& world, const fsdp::Plan& predicted,
                        const Totals& totals);

}  // namespace shardgrad::train
