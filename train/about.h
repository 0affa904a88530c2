#pragma once
// runs/NAME/about.json: what a run's page says that the run's other files do not know. Where, when and of how many
// ranks the run is, what the plan had said of a step, and, once it has ended, how:
//
//     {"program": "shardgrad 0.1.0 (git 1a2b3c)", "written": "2030-01-31T10:00:00Z", "host": "node1", "ranks": 2, …,
//      "plan": {"peak": 4096, "peaks": {"activation": 1024, …}, "bytes_sent": 512, "units": [{"name": "layer0", …}]},
//      "end": {"stopped": false, "steps": 120, "seconds": 1.5, "step_bytes": 512, "samples_per_s": 81920}}
//
// The end of a language task has "tokens_per_s" too.

#include <string>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/callback.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

inline constexpr const char* kAboutFile = "about.json";

struct About {
  const Config& config;
  const dist::ProcessGroup& world;
  const data::Splits& data;
  const fsdp::Plan& predicted;
  int64_t total_steps;
  const Result* end = nullptr;  ///< null: the run begins
  double samples_per_s = 0;     ///< of this process until its end
  double tokens_per_s = 0;      ///< likewise; 0 where the task does not say
};
/// Of this machine; empty when it has none.
std::string host_name();

/// As JSON text. Of rank 0.
std::string about_run(const About& about);

/// Before the first step of a process: removes from the run's folder what an earlier one has left and this one will not
/// replace. Its ledger.json; and its trace.json, unless about.json there tells of the same plan, ranks and device as
/// `text`.
void forget_earlier(const std::string& folder, const std::string& text);

}  // namespace shardgrad::train
