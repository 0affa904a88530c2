// Ranks as a box of axes: who is in which group, in which order, and what is refused.

#include <gtest/gtest.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/parallel/mesh.h>

namespace shardgrad::parallel {
namespace {

std::vector<float> ranks_of(dist::ProcessGroup& group) {
  Tensor mine = full({1}, double(context().rank())), all = empty({group.size()});
  group.all_gather(all, mine).host_wait();
  return all.to_vector<float>();
}

TEST(Mesh, TheLastAxisRunsFastestAndAGroupDiffersAlongOneAxisAlone) {
  dist::run_ranks(8, [](dist::ProcessGroup& world) {
    Mesh mesh(world, {{"replica", 2}, {"shard", 2}, {"model", 2}});
    int rank = world.rank();
    EXPECT_EQ(mesh.coordinate("replica"), rank / 4);
    EXPECT_EQ(mesh.coordinate("shard"), rank / 2 % 2);
    EXPECT_EQ(mesh.coordinate("model"), rank % 2);
    for (auto [axis, stride] : {std::pair("replica", 4), std::pair("shard", 2), std::pair("model", 1)}) {
      float first = float(rank - mesh.coordinate(axis) * stride);
      EXPECT_EQ(ranks_of(mesh.group(axis)), (std::vector<float>{first, first + float(stride)})) << axis;
      EXPECT_EQ(mesh.group(axis).rank(), mesh.coordinate(axis));
      EXPECT_EQ(mesh.size(axis), 2);
    }
  });
}

TEST(Mesh, AxesOfUnequalSizes) {
  dist::run_ranks(6, [](dist::ProcessGroup& world) {
    Mesh mesh(world, {{"data", 3}, {"model", 2}});
    int rank = world.rank();
    EXPECT_EQ(ranks_of(mesh.group("data")),
              (std::vector<float>{float(rank % 2), float(2 + rank % 2), float(4 + rank % 2)}));
    EXPECT_EQ(ranks_of(mesh.group("model")), (std::vector<float>{float(rank / 2 * 2), float(rank / 2 * 2 + 1)}));
  });
}

TEST(Mesh, AnAxisOfAllRanksIsTheWorld) {
  dist::run_ranks(3, [](dist::ProcessGroup& world) {
    Mesh mesh(world, {{"data", 3}, {"model", 1}});
    EXPECT_EQ(&mesh.group("data"), &world);
    EXPECT_EQ(mesh.group("model").size(), 1);
  });
}

TEST(Mesh, MeshesThatAreCutOtherwiseHaveOtherGroupsAndAlikeOnesTheSame) {
  dist::run_ranks(4, [](dist::ProcessGroup& world) {
    Mesh rows(world, {{"a", 2}, {"b", 2}}), columns(world, {{"b", 2}, {"a", 2}}), again(world, {{"a", 2}, {"b", 2}});
    float rank = float(world.rank());
    EXPECT_EQ(ranks_of(rows.group("a")), (std::vector<float>{float(world.rank() % 2), float(world.rank() % 2 + 2)}));
    EXPECT_EQ(ranks_of(columns.group("a")).front(), rank - float(world.rank() % 2));
    EXPECT_EQ(&rows.group("a"), &again.group("a"));
  });
}

TEST(Mesh, SizesThatDoNotMultiplyToTheRanksAreRefused) {
  auto refusal = [](std::vector<Axis> axes) -> std::string {
    try {
      dist::run_ranks(4, [&](dist::ProcessGroup& world) { Mesh mesh(world, axes); });
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({{"data", 3}}).find("data 3 has 3 places, there are 4 ranks"), std::string::npos);
  EXPECT_NE(refusal({{"data", 4}, {"model", 2}}).find("has more places than the 4 ranks"), std::string::npos);
  EXPECT_NE(refusal({{"data", 2}, {"data", 2}}).find("two axes are named 'data'"), std::string::npos);
  EXPECT_NE(refusal({{"data", 0}, {"model", 4}}).find("a size of at least 1"), std::string::npos);
}

TEST(Mesh, AnAxisThatIsNotThereIsNamedWithThoseThatAre) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    Mesh mesh(world, {{"data", 2}});
    try {
      mesh.group("modle");
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("no axis 'modle' in data 2"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace shardgrad::parallel
