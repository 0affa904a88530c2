// fsdp::wrap chooses units where a model makes its layers, inside a scope of EnableWrap and nowhere else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Sides : nn::Module {
  nn::Child<nn::Linear> left = fsdp::wrap(child<nn::Linear>("left", 4, 4)), right = child<nn::Linear>("right", 4, 4);
  Tensor forward(const Tensor& x) { return right(left(x)); }
};
struct Nest : nn::Module {
  nn::Child<Sides> first = child<Sides>("first"), second = child<Sides>("second");
  nn::Child<nn::Linear> last = child<nn::Linear>("last", 4, 2);
  Tensor forward(const Tensor& x) { return last(second(first(x))); }
};

std::vector<std::string> wrapped_units(nn::Module& model, dist::ProcessGroup& world, fsdp::WrapPolicy wrap = {}) {
  std::vector<std::string> names;
  auto sharded = fsdp::fully_shard(model, world, {.wrap = std::move(wrap)});
  for (const auto& unit : sharded->units()) names.push_back(unit->name());
  return names;
}

void on_two_ranks(const std::function<void(dist::ProcessGroup&)>& body) {
  dist::run_ranks(2, body, {.seed = 1, .threads = 1});
}

TEST(WrapScope, WhatIsWrappedInsideIsAUnitAndTheRootHasTheRest) {
  on_two_ranks([](dist::ProcessGroup& world) {
    fsdp::EnableWrap scope;
    EXPECT_THAT(wrapped_units(*nn::make<Nest>(), world), ElementsAre("root", "first.left", "second.left"));
  });
}

TEST(WrapScope, OutsideItGivesItsModuleBackAndThatIsAll) {
  on_two_ranks([](dist::ProcessGroup& world) {
    EXPECT_THAT(wrapped_units(*nn::make<Nest>(), world), ElementsAre("first", "second", "last")) << "the default ones";
    EXPECT_TRUE(fsdp::wrapped_units().empty());
  });
}

TEST(WrapScope, ScopesNestAndEndWithTheirBlock) {
  on_two_ranks([](dist::ProcessGroup& world) {
    nn::Child<Sides> inside, off, after;
    {
      fsdp::EnableWrap outer;
      {
        fsdp::EnableWrap inner(false);
        off = nn::make<Sides>();
      }
      inside = nn::make<Sides>();
    }
    after = nn::make<Sides>();
    EXPECT_THAT(wrapped_units(*inside, world), ElementsAre("root", "left"))
        << "the scope has ended before it is sharded";
    EXPECT_THAT(wrapped_units(*off, world), ElementsAre("left", "right"));
    EXPECT_THAT(wrapped_units(*after, world), ElementsAre("left", "right"));
  });
}

TEST(WrapScope, APolicyChoosesBesideIt) {
  on_two_ranks([](dist::ProcessGroup& world) {
    fsdp::EnableWrap scope;
    EXPECT_THAT(wrapped_units(*nn::make<Nest>(), world, fsdp::wrap_by_name({"last"})),
                ElementsAre("root", "first.left", "second.left", "last"));
  });
}

TEST(WrapScope, AModuleAtTheAddressOfOneThatIsGoneIsNotTakenForIt) {
  Context context;
  fsdp::EnableWrap scope;
  nn::make<Nest>();
  EXPECT_TRUE(fsdp::wrapped_units().empty());
}

TEST(WrapScope, TheNumbersAreTheSame) {
  auto train = [](bool wraps) {
    std::vector<float> trained;
    on_two_ranks([&](dist::ProcessGroup& world) {
      fsdp::EnableWrap scope(wraps);
      auto model = nn::make<Nest>();
      auto sharded = fsdp::fully_shard(*model, world);
      Tensor x = ones({2, 4});
      sum(model(x)).backward();
      auto state = fsdp::full_state_dict(*sharded);
      if (world.rank() == 0) trained = state.at("first.left.weight").to_vector<float>();
    });
    return trained;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(WrapScope, AListOfModulesIsRefused) {
  Context context;
  auto list = nn::make<nn::ModuleList<nn::Linear>>();
  EXPECT_EQ(fsdp::wrap(list).shared(), list.shared());
  fsdp::EnableWrap scope;
  try {
    fsdp::wrap(list);
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no forward, so nothing would gather it; wrap the modules in it"));
  }
}

}  // namespace
}  // namespace shardgrad
