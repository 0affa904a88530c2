// A sharded model's state has the names, shapes and values of the plain model's.

#include <gtest/gtest.h>

#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

using Description = std::map<std::string, std::string>;

Description description_of(const StateDict& state) {
  Description all;
  for (const auto& [name, tensor] : state) all[name] = concat(tensor.dtype(), tensor.shape());
  return all;
}

template <class Model> void expect_plain_names() {
  Description expected;
  {
    Context context;
    for (const NamedParameter& p : nn::make<Model>()->named_parameters())
      expected[p.name] = concat(p.tensor.dtype(), p.tensor.shape());
  }
  for (const Config& config : kAll)
    dist::run_ranks(3, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Model>();
      auto sharded = fully_shard(*model, group, config);
      auto check = [&](const char* when) {
        Description found = description_of(full_state_dict(*sharded, false));
        EXPECT_EQ(found, expected) << when << ' ' << name_of(config.strategy);
      };
      check("before the first forward");
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
      train_step(model, optimizer, 0, 0);
      check("after training");
      check("twice");
      NoGrad no_grad;
      model->eval();
      loss_of(model, 1, 0, 4);
      check("in evaluation");
    });
}

TEST(StateNames, I37_KeysShapesAndDtypesAreThoseOfThePlainModelAtAnyTime) {
  expect_plain_names<Rooted>();
  expect_plain_names<TiedAcross>();
  expect_plain_names<Frozen>();
}

using Raw = std::map<std::string, std::vector<float>>;

template <class Model> std::vector<double> outputs_of(nn::Child<Model>& model) {
  NoGrad no_grad;
  return values_of(model(rows_of_batch("x", 9, 0, 4, 7, DType::f32)));
}

// What a model trained by three ranks gives for some inputs, and its state.
template <class Model> std::pair<std::vector<double>, Raw> train_and_save() {
  std::pair<std::vector<double>, Raw> saved;
  dist::run_ranks(3, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    auto sharded = fully_shard(*model, group);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.05});
    for (int step = 0; step < 3; ++step) train_step(model, optimizer, step, group.rank());
    auto state = full_state_dict(*sharded);
    std::vector<double> outputs = outputs_of(model);
    if (group.rank() > 0) return;
    saved.first = outputs;
    for (const auto& [name, tensor] : state) saved.second[name] = tensor.template to_vector<float>();
  });
  return saved;
}

template <class Model> void expect_outputs_reproduced() {
  auto trained = train_and_save<Model>();
  const auto& expected = trained.first;  // a lambda of clang 14 cannot capture structured bindings
  const auto& saved = trained.second;
  auto state_for = [&](nn::Child<Model>& model) {
    StateDict state;
    for (const NamedParameter& p : model->named_parameters())
      state[p.name] = from_vector(saved.at(p.name), p.tensor.shape());
    return state;
  };
  {
    Context context;
    auto model = nn::make<Model>();
    model->load_state_dict(state_for(model));
    EXPECT_EQ(outputs_of(model), expected);
  }
  for (int world : {1, 2, 4})
    for (const Config& config : kAll)
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Model>();
        StateDict state = state_for(model);
        auto sharded = fully_shard(*model, group, config);
        load_full_state_dict(*sharded, state);
        EXPECT_EQ(outputs_of(model), expected) << name_of(config.strategy) << " W=" << world;
      });
}

TEST(StateNames, I37_ASavedModelGivesTheSameOutputsPlainAndAtAnyNumberOfRanks) { expect_outputs_reproduced<Rooted>(); }

TEST(StateNames, I39_B03_ATiedParameterIsSavedOnceAndLoadsForAllItsUsers) {
  expect_outputs_reproduced<Tied>();
  expect_outputs_reproduced<TiedAcross>();
  expect_outputs_reproduced<TiedToParent>();
}

TEST(StateNames, ATiedParameterIsTakenUnderItsOtherNameTooIfItHasTheSameValues) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Tied>();
    auto sharded = fully_shard(*model, group);
    ASSERT_EQ(sharded->aliases().size(), 1U);
    auto [other, first] = *sharded->aliases().begin();
    StateDict state = full_state_dict(*sharded, false);
    EXPECT_FALSE(state.contains(other));
    fill_(state.at(first), 0.5);
    state[other] = clone(state.at(first));
    load_full_state_dict(*sharded, state);
    EXPECT_EQ(values_of(full_state_dict(*sharded, false).at(first)), std::vector<double>(49, 0.5));
    fill_(state.at(other), 2);
    std::string what = message_of([&] { load_full_state_dict(*sharded, state); });
    EXPECT_TRUE(contains(what, concat("'", other, "' was given other values than '", first, "'"))) << what;
    state[other] = zeros({3}, kCpu);
    what = message_of([&] { load_full_state_dict(*sharded, state); });
    EXPECT_TRUE(contains(what, concat("'", other, "' is f32[7, 7] here"))) << what;
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
