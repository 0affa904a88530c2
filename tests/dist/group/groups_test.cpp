// The suite of group_cases.h over groups within one process: every kind, 1 to 6 ranks, on one machine and on several
// that are pretended.

#include <unistd.h>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <tests/devices.h>
#include <tests/dist/group/large_counts.h>

namespace shardgrad::dist::testing {
namespace {

struct Setting {
  const char* kind;
  int size;
  Device device;
  std::vector<int> machines = {};
};

class Groups : public ::testing::TestWithParam<std::tuple<Setting, size_t>> {};

TEST_P(Groups, Case) {
  auto [setting, index] = GetParam();
  VirtualOptions options;
  options.group.kind = setting.kind;
  options.device = setting.device;
  options.group.machines = setting.machines;
  run_ranks(setting.size, group_cases()[index].run, options);
}

std::vector<Setting> settings() {
  std::vector<Setting> all = {
      {"single", 1, kCpu}, {"single", 1, kAcc}, {"threads", 3, kAcc}, {"shared_memory", 3, kAcc}};
  for (int size = 1; size <= 6; ++size)
    for (const char* kind : {"threads", "shared_memory"}) all.push_back({kind, size, kCpu});
  // On several machines: by slot and by node, even and uneven, one rank each.
  all.push_back({"shared_memory", 4, kCpu, {0, 0, 1, 1}});
  all.push_back({"shared_memory", 5, kCpu, {0, 0, 0, 1, 1}});
  all.push_back({"threads", 4, kCpu, {0, 1, 0, 1}});
  all.push_back({"threads", 6, kCpu, {0, 1, 2, 0, 1, 0}});
  all.push_back({"threads", 3, kCpu, {0, 1, 2}});
  all.push_back({"threads", 3, kAcc, {0, 0, 1}});
  for (Device device : test::kernel_devices()) {
    all.push_back({"single", 1, device});
    for (int size = 1; size <= 4; ++size) all.push_back({"threads", size, device});
  }
  return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Groups::ParamType>& info) {
  const auto& [setting, index] = info.param;
  std::string machines;
  for (int machine : setting.machines) machines += concat(machines.empty() ? "_on_" : "", machine);
  return concat(setting.kind, "_", name_of(setting.device.kind), "_", setting.size, machines, "_",
                group_cases()[index].name);
}

INSTANTIATE_TEST_SUITE_P(All, Groups,
                         ::testing::Combine(::testing::ValuesIn(settings()),
                                            ::testing::Range(size_t(0), group_cases().size())),
                         name_of_case);

TEST(GroupsSlow, CountsAbove2To31Bytes) {
  if (sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) < int64_t(8) << 30) GTEST_SKIP() << "needs 8 GiB of memory";
  run_ranks(2, counts_above_2_to_31_bytes, {.group = {.kind = "threads"}});
}

TEST(CollectiveDetail, OfALongOneTheEndIsComparedToo) {
  auto reduce = [](ProcessGroup& group, const std::string& end) {
    CollectiveOptions options;
    options.detail = std::string(100, 'x') + end;
    group.all_reduce(make(group, 4, DType::f32, Where::plain), options).host_wait();
  };
  EXPECT_NO_THROW(run_ranks(2, [&](ProcessGroup& group) { reduce(group, "same"); }));
  try {
    run_ranks(2, [&](ProcessGroup& group) { reduce(group, group.rank() == 0 ? "one" : "other"); });
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("xxx... #"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace shardgrad::dist::testing
