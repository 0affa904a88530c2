// Ranks start from one model, copies of it stay one, and what differs by design is averaged in a checkpoint.

#include <gtest/gtest.h>

#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

struct WithStatistics : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6);
  nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 6);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 6, 5);
  Tensor forward(const Tensor& x) { return out(norm(in(x))); }
};

void set(const Tensor& tensor, double value) {
  NoGrad no_grad;
  fill_(tensor.detach(), value);
}

/// What sharding says on every rank, with a model that `change` has changed before.
std::vector<std::string> refusals(int world, const Config& config,
                                  const std::function<void(WithStatistics&, int rank)>& change) {
  std::vector<std::string> messages(static_cast<size_t>(world));
  dist::run_ranks(world, [&](dist::ProcessGroup& group) {
    auto model = nn::make<WithStatistics>();
    change(*model, group.rank());
    messages[size_t(group.rank())] = message_of([&] { fully_shard(*model, group, config); });
  });
  return messages;
}

// seed + rank is what users of PyTorch type.
TEST(Replicas, OtherSeedsAreRefusedByNameUnlessRank0sValuesAreTaken) {
  for (const Config& config : strategies(2))
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      Context seeded({.rank = group.rank(), .world_size = 2, .seed = 40 + uint64_t(group.rank())});
      auto model = nn::make<Chain>();
      std::string said = message_of([&] { fully_shard(*model, group, config); });
      EXPECT_TRUE(contains(said, "rank 1 and rank 0 have different seeds, 41 and 40")) << said;
      EXPECT_TRUE(contains(said, "Config::sync_module_states")) << said;
      Config synced = config;
      synced.sync_module_states = true;
      auto sharded = fully_shard(*model, group, synced);
      auto weights = full_state_dict(*sharded, false);
      Context first({.seed = 40});
      auto plain = nn::make<Chain>();
      for (auto& [name, tensor] : plain->state_dict())
        EXPECT_EQ(values_of(weights.at(name)), values_of(tensor.detach())) << name;
    });
}

TEST(Replicas, ModelsMadeWithOtherSeedsAreRefusedWhateverTheSeedIsNow) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    manual_seed(40 + uint64_t(group.rank()));
    auto model = nn::make<Chain>();
    manual_seed(1);
    std::string said = message_of([&] { fully_shard(*model, group); });
    EXPECT_TRUE(contains(said, "rank 1 and rank 0 made their models with different seeds, 41 and 40")) << said;
    manual_seed(5);
    auto same = nn::make<Chain>();
    manual_seed(6);
    auto sharded = fully_shard(*same, group);
    auto weights = full_state_dict(*sharded, false);
    Context five({.seed = 5});
    auto plain = nn::make<Chain>();
    plain->materialize();
    for (auto& [name, tensor] : plain->state_dict())
      EXPECT_EQ(values_of(weights.at(name)), values_of(tensor.detach())) << name;
  });
}

TEST(Replicas, OtherValuesSetBeforeShardingAreRefusedByNameOnEveryRank) {
  for (const Config& config : strategies(4)) {
    for (const std::string& said : refusals(4, config, [](WithStatistics&model, int rank) {
           model.materialize();
           if (rank == 2) set(model.out->bias, 1);
         }))
      EXPECT_TRUE(contains(said, "rank 2 and rank 0 have other values in 'out.bias'")) << said;
    for (const std::string& said : refusals(4, config, [](WithStatistics&model, int rank) {
           model.materialize();
           set(model.norm->running_var, 2 + rank);
         }))
      EXPECT_TRUE(contains(said, "rank 1 and rank 0 have other values in 'norm.running_var'")) << said;
    for (const std::string& said : refusals(4, config, [](WithStatistics&model, int rank) {
           if (rank == 3) model.materialize();
         }))
      EXPECT_TRUE(contains(said,
                           "only one of ranks 3 and 0 has given 'in.weight' its values (by a call, or by "
                           "materialize); do the same on every rank"))
          << said;
  }
}

TEST(Replicas, TheSameValuesOnEveryRankAreNotRefused) {
  for (const Config& config : strategies(2))
    for (const std::string& said : refusals(2, config, [](WithStatistics&model, int) {
           model.materialize();
           set(model.out->bias, 1);
         }))
      EXPECT_EQ(said, "");
}

TEST(Replicas, SyncModuleStatesStartsFromTheParametersAndBuffersOfRank0) {
  for (Device device : {kCpu, kAcc})
    for (int world : {1, 2, 3}) {
      std::vector<Config> configs = strategies(world);
      configs.push_back({.param_dtype = DType::bf16});
      if (device == kAcc) configs.push_back({.move_params_to_cpu = true});
      for (Config config : configs) {
        config.sync_module_states = true;
        dist::run_ranks(world,
                        [&](dist::ProcessGroup& group) {
                          auto model = nn::make<WithStatistics>();
                          if (group.rank() != 1) model->materialize();
                          if (group.rank() != 1) set(model->norm->weight, 3 + group.rank());
                          if (group.rank() != 1) set(model->norm->running_mean, 5 + group.rank());
                          auto sharded = fully_shard(*model, group, config);
                          EXPECT_EQ(values_of(model->norm->running_mean), std::vector<double>(6, 5));
                          auto weights = full_state_dict(*sharded, false);
                          EXPECT_EQ(values_of(weights.at("norm.weight")), std::vector<double>(6, 3));
                          Context other;
                          auto plain = nn::make<WithStatistics>();
                          plain->materialize();
                          EXPECT_EQ(values_of(weights.at("in.weight")), values_of(plain->in->weight.detach()));
                        },
                        {.device = device});
      }
    }
}

// As a bug, a broken machine or an edit on one rank would.
TEST(Replicas, CopiesThatHaveDriftedApartAreNamedAtACheckpoint) {
  for (const Config& config :
       {Config{.strategy = Strategy::ddp, .bucket_bytes = 0}, Config{.strategy = Strategy::hybrid, .shard_ranks = 2}})
    for (Device device : {kCpu, kAcc})
      dist::run_ranks(4,
                      [&](dist::ProcessGroup& group) {
                        auto model = nn::make<Chain>();
                        auto sharded = fully_shard(*model, group, config);
                        auto before = full_state_dict(*sharded, false);
                        const Location& where = sharded->index().at("b.bias");
                        Owned own = where.flat->owned(where.slice);
                        if (group.rank() == 3 && own.count > 0) set(where.flat->shard().rows(own.at, own.at + 1), 7);
                        std::string said = message_of([&] { full_state_dict(*sharded, group.rank() == 0); });
                        const char* expected =
                            config.strategy == Strategy::ddp
                                ? "full_state_dict: rank 3 and rank 0 hold copies of 'b.bias' of unit 'b'"
                                : "full_state_dict: rank 3 and rank 1 hold copies of 'b.bias' of unit 'b'";
                        EXPECT_TRUE(contains(said, expected)) << said;
                        load_full_state_dict(*sharded, before);
                        EXPECT_EQ(message_of([&] { check_replicas(*sharded, "again"); }), "");
                      },
                      {.device = device});
}

TEST(Replicas, RunningStatisticsOfACheckpointAreTheMeanOverTheRanks) {
  for (int world : {1, 2, 3})
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<WithStatistics>();
      auto sharded = fully_shard(*model, group, {});
      auto before = mean_buffers(*model, group);
      EXPECT_EQ(values_of(before.at("norm.running_var")), std::vector<double>(6, 1));
      set(model->norm->running_mean, 2 * group.rank());
      set(model->norm->running_var, 0.1);
      auto means = mean_buffers(*model, group);
      EXPECT_EQ(values_of(means.at("norm.running_mean")), std::vector<double>(6, world - 1));
      EXPECT_EQ(values_of(means.at("norm.running_var")), std::vector<double>(6, double(0.1f)))
          << "no bit of equal ones";
      EXPECT_EQ(values_of(model->norm->running_mean), std::vector<double>(6, 2 * group.rank())) << "it is a copy";
      set(model->norm->running_mean, group.rank() == 0 ? 1 << 24 : 1);
      EXPECT_EQ(values_of(mean_buffers(*model, group).at("norm.running_mean")),
                std::vector<double>(6, double(float(double((1 << 24) + world - 1) / world))))
          << "rounded once";
    });
}

TEST(Replicas, BuffersBecomeTheirMeanOverTheRanksInOneCollective) {
  for (Device device : {kCpu, kAcc})
    for (int world : {1, 2, 3})
      dist::run_ranks(world,
                      [&](dist::ProcessGroup& group) {
                        auto model = nn::make<WithStatistics>();
                        auto sharded = fully_shard(*model, group, {});
                        mean_buffers(*model, group);  // they have values from here on
                        set(model->norm->running_mean, 2 * group.rank());
                        set(model->norm->running_var, 0.1);
                        auto calls = [] {
                          return std::ranges::count(context().recorder().records(), "all_reduce", &Record::op);
                        };
                        int64_t before = calls();
                        average_buffers(sharded->buffers(), group);
                        EXPECT_EQ(calls() - before, world == 1 ? 0 : 1);
                        EXPECT_EQ(values_of(model->norm->running_mean), std::vector<double>(6, world - 1));
                        EXPECT_EQ(values_of(model->norm->running_var), std::vector<double>(6, double(0.1f)))
                            << "no bit of equal ones";
                      },
                      {.device = device});
}

// Every rank computes with them, too.
TEST(Replicas, BuffersThatNoStateHasBecomeTheirMeanAsOthersDo) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<WithStatistics>();
    for (const auto& buffer : model->norm->own_buffers()) buffer.object->persistent = buffer.name != "running_mean";
    auto sharded = fully_shard(*model, group, {});
    EXPECT_EQ(sharded->buffers().size(), sharded->saved_buffers().size() + 1);
    set(model->norm->running_mean, 2 * group.rank());
    average_buffers(sharded->buffers(), group);
    EXPECT_EQ(values_of(model->norm->running_mean), std::vector<double>(6, 1));
    auto state = full_state_dict(*sharded, false);
    EXPECT_EQ(state.count("norm.running_mean"), 0u);
    EXPECT_EQ(state.count("norm.running_var"), 1u);
    load_full_state_dict(*sharded, state);
  });
}

TEST(Replicas, OnlyBuffersThatARankHasWrittenAreSent) {
  for (int world : {1, 3})
    dist::run_ranks(world, [&](dist::ProcessGroup& group) {
      auto model = nn::make<WithStatistics>();
      auto sharded = fully_shard(*model, group, {});
      mean_buffers(*model, group);
      set(model->norm->running_var, 5 * group.rank());
      std::vector<uint64_t> before = buffer_versions(sharded->buffers());
      auto elements = [] {
        int64_t sum = 0;
        for (const Record& record : context().recorder().records())
          if (record.op == "all_reduce") sum += record.elements;
        return sum;
      };
      int64_t sent = elements();
      average_buffers(sharded->buffers(), group, before);
      EXPECT_EQ(elements(), sent) << "nothing was written";
      if (group.rank() == 0) set(model->norm->running_mean, 3);
      average_buffers(sharded->buffers(), group, before);
      EXPECT_EQ(elements() - sent, world == 1 ? 0 : 6);
      EXPECT_EQ(values_of(model->norm->running_mean), std::vector<double>(6, world == 1 ? 3 : 1));
      EXPECT_EQ(values_of(model->norm->running_var), std::vector<double>(6, 5 * group.rank())) << "left alone";
    });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
