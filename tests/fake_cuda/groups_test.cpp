// The suite of tests/dist/group/group_cases.h on the pretended GPU: collectives of its tensors by way of host memory.

#include <shardgrad/dist/group/virtual_ranks.h>
#include <tests/dist/group/group_cases.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace shardgrad::dist::testing {
namespace {

class GroupsOnFakeCuda : public ::testing::TestWithParam<std::tuple<std::pair<const char*, int>, size_t>> {};

TEST_P(GroupsOnFakeCuda, Case) {
  auto [group, index] = GetParam();
  fake_cuda::reset();
  VirtualOptions options{.device = kCuda};
  options.group.kind = group.first;
  run_ranks(group.second, group_cases()[index].run, options);
  EXPECT_EQ(fake_cuda::alive(), 0);
}

std::string name_of_case(const ::testing::TestParamInfo<GroupsOnFakeCuda::ParamType>& info) {
  const auto& [group, index] = info.param;
  return concat(group.first, "_", group.second, "_", group_cases()[index].name);
}

INSTANTIATE_TEST_SUITE_P(All, GroupsOnFakeCuda,
                         ::testing::Combine(::testing::Values(std::pair("single", 1), std::pair("threads", 3),
                                                              std::pair("shared_memory", 2)),
                                            ::testing::Range(size_t(0), group_cases().size())),
                         name_of_case);

}  // namespace
}  // namespace shardgrad::dist::testing
