// Legal programs give the numbers of one plain rank, whatever the strategy, the number of ranks and the device are.

#include "tests/fsdp/rare_programs.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Program {
  const char* name;
  void (*run)(Run&);
};
constexpr Program kPrograms[] = {{"Gan", programs::gan},
                                 {"GanOfOneRoot", programs::gan_of_one_root},
                                 {"ChangingOrder", programs::changing_order},
                                 {"MovingAverage", programs::moving_average},
                                 {"Teacher", programs::teacher},
                                 {"KeptInAMember", programs::kept_in_a_member},
                                 {"Recursion", programs::recursion},
                                 {"Exceptions", programs::exceptions},
                                 {"LoadBetweenPasses", programs::load_between_passes},
                                 {"Woven", programs::woven},
                                 {"LowRank", programs::low_rank},
                                 {"SeveralModels", programs::several_models},
                                 {"ChildrenAlone", programs::children_alone},
                                 {"SharedByUnits", programs::shared_by_units},
                                 {"ForwardWithABackward", programs::forward_with_a_backward},
                                 {"LocalLosses", programs::local_losses},
                                 {"FailedLocalLoss", programs::failed_local_loss},
                                 {"FrozenBeforeClipping", programs::frozen_before_clipping},
                                 {"OptimizerOfAChild", programs::optimizer_of_a_child},
                                 {"OptimizerOfAParent", programs::optimizer_of_a_parent},
                                 {"FrozenWhileSaved", programs::frozen_while_saved}};

/// Every strategy, and what changes when its buffers are there.
std::vector<Config> choices(int world) {
  std::vector<Config> all = strategies(world);
  all.push_back({.strategy = Strategy::ddp, .bucket_bytes = 1 << 20});
  all.push_back({.strategy = Strategy::zero1, .bucket_bytes = 1 << 20});
  all.push_back({.strategy = Strategy::zero3, .prefetch = 0});
  all.push_back({.strategy = Strategy::zero3, .prefetch = 3});
  return all;
}

void expect_like_plain(const Program& program, int world, const std::vector<Config>& configs, Device device,
                       uint64_t delay_seed = 0) {
  Run plain;
  {
    Context context({.threads = 1});
    program.run(plain);
  }
  for (const Config& config : configs) {
    SCOPED_TRACE(concat(program.name, ": ", name_of(config.strategy), " of ", config.shard_ranks, " W=", world, " on ",
                        device, " prefetch ", config.prefetch, " buckets ", config.bucket()));
    auto body = [&](dist::ProcessGroup& group) {
      Run run(&group, config);
      program.run(run);
      EXPECT_EQ(context().ledger().current(Category::full_gradient), 0);
      ASSERT_EQ(run.notes.size(), plain.notes.size());
      for (const auto& [what, values] : plain.notes) {
        ASSERT_TRUE(run.notes.contains(what)) << what;
        const std::vector<double>& found = run.notes.at(what);
        ASSERT_EQ(found.size(), values.size()) << what;
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(found[i], values[i], 1e-9 * (1 + std::abs(values[i]))) << what << '[' << i << ']';
      }
    };
    dist::VirtualOptions options{.device = device, .threads = 1, .delay_seed = delay_seed};
    options.group.kind = world == 1 ? "" : "threads";
    dist::run_ranks(world, body, options);
  }
}

class UserPrograms : public ::testing::TestWithParam<Program> {};
using UserProgramsSlow = UserPrograms;
auto program_name(const ::testing::TestParamInfo<Program>& info) { return std::string(info.param.name); }
INSTANTIATE_TEST_SUITE_P(Each, UserPrograms, ::testing::ValuesIn(kPrograms), program_name);
INSTANTIATE_TEST_SUITE_P(Each, UserProgramsSlow, ::testing::ValuesIn(kPrograms), program_name);

TEST_P(UserPrograms, AreLikeOnePlainRank) {
  expect_like_plain(GetParam(), 2, choices(2), kCpu);
  expect_like_plain(GetParam(), 2, {{.strategy = Strategy::zero3}}, kAcc);
}

TEST_P(UserProgramsSlow, AreLikeOnePlainRankOnEveryDeviceAndNumberOfRanks) {
  for (int world : {1, 2, 3, 4})
    for (Device device : {kCpu, kAcc}) {
      expect_like_plain(GetParam(), world, choices(world), device);
      expect_like_plain(GetParam(), world, choices(world), device, 17);
    }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
