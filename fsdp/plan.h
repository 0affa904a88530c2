#pragma once
// What a training step costs, by unit: the engine runs the step and ledger and recorder are read. On device meta
// nothing is computed or sent, so the same call predicts a run that would not fit: what is predicted and what is
// measured differ only where the steps that are given do.
//
//     dist::run_ranks(8, [](dist::ProcessGroup& group) {
//       auto model = nn::make<Mlp>();                         // shapes only
//       auto sharded = fsdp::fully_shard(*model, group);
//       optim::AdamW optimizer(model->named_parameters(), {});
//       auto plan = fsdp::make_plan(*sharded, [&] {
//         loss_of(model(x)).backward();
//         optimizer.step();
//         optimizer.zero_grad();
//       });
//       if (group.rank() == 0) std::cout << plan.table();
//     }, {.device = kMeta});

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <shardgrad/core/ledger.h>
#include <shardgrad/fsdp/fully_shard.h>

namespace shardgrad::fsdp {

/// A unit in a plan. Bytes are this rank's.
struct UnitPlan {
  std::string name;
  int64_t parameters = 0;
  int64_t full_bytes = 0;  ///< padded, of the whole unit
  int modules = 0;         ///< that its parameters belong to
  double share = 0;        ///< of all parameters
  int gathers = 0, reductions = 0;
  int64_t bytes_sent = 0;
  bool operator==(const UnitPlan&) const = default;
};

struct Plan {
  std::vector<UnitPlan> units;
  std::map<Category::Kind, int64_t> peaks;  ///< without workspaces of kernels, which only a real run has
  int64_t peak = 0;                         ///< of all these together
  int64_t bytes_sent = 0;
  int64_t collectives = 0;                    ///< that send something
  double flops = 0;                           ///< that this rank computes (FlopCount of autograd/launch.h)
  bool keeps_params = false;                  ///< full parameters stay in memory whatever the units are
  std::string wrap_setting = "Config::wrap";  ///< what chooses units, in the words of whoever reads the warning
  std::string lacks;                          ///< what a run does and this does not tell of, and why; or empty
  bool operator==(const Plan&) const = default;
  /// For people, with a last line that warns when one unit holds most of the model.
  std::string table() const;
  /// Empty, or what to do about a unit that holds most of the model, where units are gathered into memory and released.
  std::string warning() const;
};

/// Runs `step` twice and describes the second, when the order of units is known; then what a run does `beside` its
/// steps, such as an evaluation. Peaks are those of all, as of a run. A collective.
Plan make_plan(Sharded& sharded, const std::function<void()>& step, const std::function<void()>& beside = {});

}  // namespace shardgrad::fsdp
