#pragma once
// The table at the end of a run: what this process did, beside what the plan had predicted.

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/meter.h>
#include <shardgrad/train/run_report.h>

namespace shardgrad::train {

/// `metrics`: the last ones; `evaluation_bytes`: sent in all.
RunReport::Rows summary(const Config& config, const dist::ProcessGroup& world, const fsdp::Plan& predicted,
                        const Metrics& metrics, const Meter& meter, int64_t evaluation_bytes);

}  // namespace shardgrad::train
