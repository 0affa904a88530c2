// Which units a model has: a function of the model and of how it is wrapped, which needs no ranks.

#include <gmock/gmock.h>

#include <shardgrad/fsdp/setup/unit_plan.h>
#include <shardgrad/fsdp/setup/wrap.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing::unit_plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using Units = std::vector<std::pair<std::string, int64_t>>;

Units units_of(nn::Module& model, const WrapPolicy& wrap, std::vector<std::string> leave_out = {}) {
  Units units;
  model.complete_names();
  for (const PlannedUnit& unit : plan_units(model, {.wrap = wrap, .leave_out = std::move(leave_out)}))
    units.emplace_back(unit.name(model), unit.numel());
  return units;
}

class UnitPlan : public ::testing::Test {
 protected:
  Context context_;
};

nn::Child<nn::Sequential> linears() {  // 30, then 30 and 30 in one
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(5, 5).add<nn::Sequential>();
  auto inner = std::static_pointer_cast<nn::Sequential>(model->children()[1].object);
  inner->add<nn::Linear>(5, 5).add<nn::Linear>(5, 5);
  return model;
}

TEST_F(UnitPlan, I36_FairScalesGoldenCasesOfSizes) {
  EXPECT_EQ(units_of(*linears(), wrap_by_size(60)), (Units{{"root", 30}, {"1", 60}}));
  EXPECT_EQ(units_of(*linears(), wrap_by_size(61)), (Units{{"root", 90}})) << "30 are left beside nothing";
  EXPECT_EQ(units_of(*linears(), wrap_by_size(30)), (Units{{"0", 30}, {"1.0", 30}, {"1.1", 30}}));
  struct Lists : nn::Module {
    nn::Child<nn::ModuleList<nn::Linear>> list = child<nn::ModuleList<nn::Linear>>("list");
    Lists() { list->add(5, 5), list->add(10, 10); }
    Tensor forward(const Tensor& x) { return x; }
  };
  EXPECT_EQ(units_of(*nn::make<Lists>(), wrap_by_size(40)), (Units{{"root", 30}, {"list.1", 110}}))
      << "a list is no unit";
}

TEST_F(UnitPlan, I36_SomeTypesAreNotDividedAndSomeAreNoUnits) {
  struct Heads : nn::Module {
    nn::Child<nn::Linear> query = child<nn::Linear>("query", 8, 8), key = child<nn::Linear>("key", 8, 8);
    Tensor forward(const Tensor& x) { return key(query(x)); }
  };
  struct Block : nn::Module {
    nn::Child<Heads> heads = child<Heads>("heads");
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 8, 8);
    Tensor forward(const Tensor& x) { return out(heads(x)); }
  };
  auto model = nn::make<Block>();
  EXPECT_EQ(units_of(*model, wrap_by_size(60)), (Units{{"heads.query", 72}, {"heads.key", 72}, {"out", 72}}));
  EXPECT_EQ(units_of(*model, wrap_by_size(60, {"Heads"})), (Units{{"heads", 144}, {"out", 72}}));
  EXPECT_EQ(units_of(*model, wrap_by_size(60, {}, {"Linear"})), (Units{{"root", 72}, {"heads", 144}}));
}

// Tango's example.
struct Feed : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 4, 4);
  Tensor forward(const Tensor& x) { return relu(linear(x)); }
};
struct Regression : nn::Module {
  nn::Child<nn::Sequential> blocks = child<nn::Sequential>("blocks");
  nn::Child<nn::Linear> regression_head = child<nn::Linear>("regression_head", 4, 1);
  Regression() { blocks->add<Feed>().add<Feed>().add<Feed>(); }
  Tensor forward(const Tensor& x) { return regression_head(blocks(x)); }
};

TEST_F(UnitPlan, I36_RegularExpressionsMatchWholeNamesDeepestFirst) {
  auto model = nn::make<Regression>();
  EXPECT_EQ(units_of(*model, wrap_by_regex({R"(blocks\.[0-9]+)", "regression_head"})),
            (Units{{"blocks.0", 20}, {"blocks.1", 20}, {"blocks.2", 20}, {"regression_head", 5}}));
  EXPECT_EQ(units_of(*model, wrap_by_regex({R"(blocks\.1.*)", "blocks"})),
            (Units{{"root", 5}, {"blocks.1.linear", 20}, {"blocks", 40}}))
      << "blocks.1 has nothing left, and blocks has the rest";
  std::string what = message_of([&] { units_of(*model, wrap_by_regex({"block", "regression_head"})); });
  EXPECT_THAT(what, HasSubstr("wrap_by_regex: no module fits 'block'; there are blocks.0.linear, blocks.0, "));
  EXPECT_THAT(message_of([] { wrap_by_regex({"blocks.["}); }),
              HasSubstr("wrap_by_regex: 'blocks.[' is no regular expression: "));
}

TEST_F(UnitPlan, I36_AFunctionAndAnyOfSeveralPoliciesChoose) {
  auto model = nn::make<Regression>();
  auto second = [](const nn::Module&, const std::string& name, int64_t) { return name == "blocks.1"; };
  EXPECT_EQ(units_of(*model, second), (Units{{"root", 45}, {"blocks.1", 20}}));
  EXPECT_EQ(units_of(*model, wrap_any({second, wrap_by_type({"Linear"})})),
            (Units{{"blocks.0.linear", 20}, {"blocks.1.linear", 20}, {"blocks.2.linear", 20}, {"regression_head", 5}}));
  EXPECT_THAT(message_of([&] {
                units_of(*model, wrap_any({second, wrap_by_name({"head"})}));
              }),
              HasSubstr("no module fits 'head'"));
}

TEST_F(UnitPlan, I36_ThePlanIsTheSameTwiceAndChangesNothing) {
  auto model = nn::make<Regression>();
  WrapPolicy wrap = wrap_any({wrap_by_regex({"blocks"}), wrap_by_size(5)});
  Units first = units_of(*model, wrap);
  EXPECT_EQ(units_of(*model, wrap), first);
  EXPECT_EQ(units_of(*nn::make<Regression>(), wrap), first);
  EXPECT_TRUE(first != units_of(*model, {}));
  EXPECT_EQ(context_.ledger().current(Category::parameter_shard), 0);
}

TEST_F(UnitPlan, ParametersThatAreLeftOutAreInNoUnit) {
  auto model = nn::make<Regression>();
  EXPECT_EQ(units_of(*model, {}, {"regression_head.*", "blocks.?.linear.bias"}), (Units{{"blocks", 48}}));
  EXPECT_THAT(message_of([&] { units_of(*model, {}, {"head.*"}); }),
              HasSubstr("leave_out has 'head.*', which fits no parameter"));
}

TEST_F(UnitPlan, WhatIsWrappedWithOptionsHasThemInThePlan) {
  EnableWrap scope;
  auto model = nn::make<Regression>();
  wrap(model->regression_head, {.param_dtype = DType::bf16});
  auto plan = plan_units(*model, {});
  ASSERT_EQ(plan.size(), 2U);
  EXPECT_FALSE(plan[0].own);
  EXPECT_EQ(plan[1].own->param_dtype, DType::bf16);
  EXPECT_THAT(message_of([&] { wrap(model->regression_head); }),
              HasSubstr("a Linear is wrapped twice, and with options of its own"));
  EXPECT_THAT(message_of([&] { wrap(model->blocks, {.strategy = Strategy::ddp}); }),
              HasSubstr("has the strategy zero2 or zero3, not ddp"));
}

}  // namespace
}  // namespace shardgrad::fsdp::testing::unit_plan
