// What is sent, by whom, and when it may be late.

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/same_weights.h"

namespace shardgrad::fsdp::testing {
namespace {

/// A collective as all ranks must see it.
struct Sent {
  std::string op, unit, phase;
  int64_t elements;
  bool operator==(const Sent&) const = default;
};

std::vector<Sent> sent_since_clear(const std::string& op = "") {
  std::vector<Sent> all;
  for (const Record& record : context().recorder().records())
    if (record.op != "reshard" && (op.empty() || record.op == op))
      all.push_back({record.op, record.unit, record.phase, record.elements});
  return all;
}

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

TEST(Traffic, I20_AUnitIsReducedByOneCallThatSendsItsElementsAndTheirPaddingOnly) {
  for (int world : {2, 3})
    for (int64_t least : {1, 60, 1 << 30})
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, group, {.wrap = wrap_by_size(least)});
        context().recorder().clear();
        loss_of(model, 0, 0, 4).backward();
        std::map<std::string, int64_t> elements;
        for (const Sent& s : sent_since_clear("reduce_scatter"))
          EXPECT_TRUE(elements.emplace(s.unit, s.elements).second) << s.unit << " is reduced twice";
        for (const auto& unit : sharded->units()) {
          int64_t padded = 0;
          for (const Slice& slice : unit->flat_params()[0]->slices()) padded += round_up(slice.numel(), 32);
          EXPECT_EQ(elements.at(unit->name()), round_up(padded, 32 * world)) << unit->name() << " W=" << world;
        }
        EXPECT_EQ(elements.size(), sharded->units().size());
      });
}

// A bucket of 240 bytes holds three layers of 80, which are 64 elements with gaps, or the first two, of 128 and 80.
// What are units does not matter: one that is larger than a bucket is reduced in several.
TEST(Traffic, I20_GradientsAreReducedInBucketsWhateverTheUnits) {
  struct Layers : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 4);
    nn::Child<nn::ModuleList<nn::Linear>> layers = child<nn::ModuleList<nn::Linear>>("layers");
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 4, 5);
    Layers() {
      for (int i = 0; i < 12; ++i) layers->add(4, 4);
    }
    Tensor forward(const Tensor& x) {
      Tensor h = in(x);
      for (const auto& layer : *layers) h = tanh(layer(h));
      return out(h);
    }
  };
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto reductions = [&](std::optional<int64_t> bucket_bytes, const WrapPolicy& wrap = wrap_by_type({"Linear"})) {
        auto model = nn::make<Layers>();
        fully_shard(*model, group, {.strategy = strategy, .bucket_bytes = bucket_bytes, .wrap = wrap});
        context().recorder().clear();
        loss_of(model, 0, 0, 4).backward();
        std::vector<std::pair<std::string, int64_t>> all;
        for (const Sent& s : sent_since_clear(strategy == Strategy::ddp ? "all_reduce" : "reduce_scatter"))
          all.emplace_back(s.unit, s.elements);
        return all;
      };
      EXPECT_EQ(reductions(0).size(), 14u);
      std::vector<std::pair<std::string, int64_t>> thrice = reductions(240);
      ASSERT_EQ(thrice.size(), 6u);
      EXPECT_EQ(thrice[1], std::pair(std::string("layers.10..layers.11"), int64_t(2 * 64)));
      EXPECT_EQ(thrice[4], std::pair(std::string("layers.1..layers.3"), int64_t(3 * 64)));
      EXPECT_EQ(reductions(1 << 20).size(), 1u);
      EXPECT_EQ(reductions({}).size(), 1u) << "25 MiB by default";
      auto one_unit = wrap_by_size(1 << 30);
      EXPECT_EQ(reductions(0, one_unit).size(), 1u);
      std::vector<std::pair<std::string, int64_t>> parts = reductions(240, one_unit);
      ASSERT_EQ(parts.size(), 6u);
      for (const auto& [unit, elements] : parts) EXPECT_EQ(unit, "root");
      EXPECT_EQ(parts[4].second, 3 * 64) << "the last layers' gradients are written first, and sent first";
      EXPECT_EQ(parts[5].second, 128);
    });
}

// `a` and `b` are frozen and get an input that needs no gradient; `d` is frozen between units that are trained.
TEST(Traffic, I21_B18_AFrozenUnitIsNeverReducedAndGatheredForBackwardOnlyIfGradientsPassIt) {
  struct Frozens : nn::Module {
    nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7),
                          c = child<nn::Linear>("c", 7, 7), d = child<nn::Linear>("d", 7, 7),
                          e = child<nn::Linear>("e", 7, 5);
    Frozens() {
      for (nn::Linear* frozen : {&*a, &*b, &*d}) {
        frozen->weight.set_requires_grad(false);
        frozen->bias.set_requires_grad(false);
      }
    }
    Tensor forward(const Tensor& x) { return e(tanh(d(tanh(c(tanh(b(tanh(a(x))))))))); }
  };
  for (int prefetch : {0, 1, 2})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Frozens>();
      fully_shard(*model, group, {.prefetch = prefetch});
      for (int step = 0; step < 3; ++step) {
        context().recorder().clear();
        loss_of(model, step, 0, 4).backward();
        model->zero_grad();
        std::map<std::string, int> backward, reductions;
        for (const Sent& s : sent_since_clear()) {
          backward[s.unit] += s.op == "all_gather" && s.phase == "backward";
          reductions[s.unit] += s.op == "reduce_scatter";
        }
        EXPECT_EQ(backward["a"], 0) << "prefetch " << prefetch << " step " << step;
        EXPECT_EQ(backward["b"], 0) << "prefetch " << prefetch << " step " << step;
        EXPECT_EQ(backward["d"], 1);
        for (const char* frozen : {"a", "b", "d"}) EXPECT_EQ(reductions[frozen], 0) << frozen;
        for (const char* trained : {"c", "e"}) EXPECT_EQ(reductions[trained], 1) << trained;
      }
    });
}

// Backward comes to the frozen weight of `around` after all its gradients are there.
TEST(Traffic, I21_AUnitIsGatheredOnceForBackwardThoughWhatIsFrozenOfItIsNeededLast) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<FrozenAround>();
    fully_shard(*model, group, {});
    for (int step = 0; step < 2; ++step) {
      context().recorder().clear();
      loss_of(model, step, 0, 4).backward();
      model->zero_grad();
      EXPECT_EQ(std::ranges::count_if(sent_since_clear("all_gather"),
                                      [](const Sent& s) { return s.unit == "around" && s.phase == "backward"; }),
                1);
    }
  });
}

// Factors that are trained beside a weight that is frozen: what a unit computes with comes in one call,
// however it is reduced.
TEST(Traffic, I20_AUnitIsGatheredByOneCallWhateverOfItIsTrained) {
  struct Adapted : nn::Module {
    Tensor weight = param("weight", {9, 7}, nn::init::normal(0, 0.3)),
           down = param("down", {2, 7}, nn::init::normal(0, 1)), up = param("up", {9, 2}, nn::init::normal(0, 0.2));
    Adapted() { weight.set_requires_grad(false); }
    Tensor forward(const Tensor& x) {
      return matmul(x, weight, false, true) + matmul(matmul(x, down, false, true), up, false, true);
    }
  };
  struct Model : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
    nn::Child<Adapted> adapted = child<Adapted>("adapted");
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 9, 5);
    Tensor forward(const Tensor& x) { return out(tanh(adapted(in(x)))); }
  };
  for (int world : {1, 2, 3})
    for (Device device : {kCpu, kAcc})
      for (const Config& config : strategies(world)) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world, " on ", device));
        auto body = [&](dist::ProcessGroup& group) {
          auto model = nn::make<Model>();
          auto sharded = fully_shard(*model, group, config);
          optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
          auto parts = sharded->mesh().parts();
          int64_t frozen = round_up(9 * 7, 32 * world), trained = round_up(32 + 32, 32 * world);
          for (int step = 0; step < 3; ++step) {
            context().recorder().clear();
            loss_of(model, step, 0, 4).backward();
            optimizer.step();
            optimizer.zero_grad();
            std::map<std::string, std::vector<int64_t>> gathers;
            for (const Sent& s : sent_since_clear("all_gather"))
              if (s.unit == "adapted") gathers[s.phase].push_back(s.elements);
            std::vector<int64_t> forward, backward;
            bool returns = config.reshards_after_forward();
            // What is kept and was not trained is as it was.
            if (parts > 1) forward = {trained + (config.keeps_params() && step > 0 ? 0 : frozen)};
            if (parts > 1 && returns) backward = {trained + frozen};
            EXPECT_EQ(gathers["forward"], forward) << "step " << step;
            EXPECT_EQ(gathers["backward"], backward) << "step " << step;
          }
        };
        dist::run_ranks(world, body, {.device = device, .threads = 1});
      }
}

template <class Model> void expect_one_sequence(const Config& config) {
  std::vector<std::vector<Sent>> sent(3);
  dist::run_ranks(3, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Model>();
    auto sharded = fully_shard(*model, group, config);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    for (int step = 0; step < 3; ++step) {
      loss_of(model, step, 4 * group.rank(), 4 * group.rank() + 4).backward();
      clip_grad_norm(*sharded, 0.1);
      optimizer.step();
      optimizer.zero_grad();
    }
    sent[size_t(group.rank())] = sent_since_clear();
  });
  EXPECT_GT(sent[0].size(), 3u);
  for (const auto& of_rank : sent) EXPECT_EQ(of_rank, sent[0]) << name_of(config.strategy);
}

TEST(Traffic, I23_EveryRankIssuesTheSameCollectivesInTheSameOrder) {
  for (const Config& config : kAll) {
    expect_one_sequence<Rooted>(config);
    expect_one_sequence<Twice>(config);
    expect_one_sequence<Unused>(config);
    expect_one_sequence<Frozen>(config);
    expect_one_sequence<Tiny>(config);
  }
}

TEST(Traffic, I23_RanksThatUseDifferentUnitsAreNamedInsteadOfHanging) {
  struct Either : nn::Module {
    nn::Child<nn::Linear> left = child<nn::Linear>("left", 7, 5), right = child<nn::Linear>("right", 7, 5);
    bool first = true;
    Tensor forward(const Tensor& x) { return first ? left(x) : right(x); }
  };
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    std::string what = message_of([&] {
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Either>();
        fully_shard(*model, group, {.strategy = strategy});
        model->first = group.rank() == 0;
        loss_of(model, 0, 0, 4).backward();
        group.barrier();
      });
    });
    EXPECT_TRUE(contains(what, "left") && contains(what, "right")) << name_of(strategy) << ": " << what;
  }
}

TEST(Traffic, I24_ANormAndAStateCostOneGatherForEachThingGathered) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    auto sharded = fully_shard(*model, group);
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    loss_of(model, 0, 0, 4).backward();
    auto sent_by = [&](auto call) {
      context().recorder().clear();
      call();
      return sent_since_clear();
    };
    std::vector<Sent> norm = sent_by([&] { clip_grad_norm(*sharded, 1); });
    ASSERT_EQ(norm.size(), 1u);
    EXPECT_EQ(norm[0].op, "all_gather");
    EXPECT_LE(norm[0].elements, int64_t(8 * sharded->index().size())) << "a few numbers for each parameter";
    optimizer.step();
    std::vector<Sent> state = sent_by([&] { full_state_dict(*sharded); });
    EXPECT_EQ(state.size(), sharded->units().size());
    for (const Sent& s : state) EXPECT_EQ(s.op, "all_gather");
    EXPECT_EQ(sent_by([&] { full_optim_state_dict(*sharded, optimizer); }).size(), 2 * sharded->units().size() + 2)
        << "exp_avg and exp_avg_sq of every unit, the names, and the counts of steps";
    EXPECT_TRUE(sent_by([&] { sharded_state_dict(*sharded); }).empty());
  });
}

TEST(Traffic, I25_ARankThatIsLateAndASlowNetworkChangeTimeNotValues) {
  auto train = [](Device device, bool late) {
    Weights end;
    dist::VirtualOptions options{.device = device, .threads = 1};
    if (late) options.group.delay = [](int64_t) { return std::chrono::milliseconds(3); };
    dist::run_ranks(
        2,
        [&](dist::ProcessGroup& group) {
          auto model = nn::make<Rooted>();
          auto sharded = fully_shard(*model, group);
          optim::AdamW optimizer(model->named_parameters(), {.lr = 0.02});
          for (int step = 0; step < 3; ++step) {
            loss_of(model, step, 4 * group.rank(), 4 * group.rank() + 4).backward();
            if (late && step % 2 == group.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
            optimizer.step();
            optimizer.zero_grad();
          }
          Weights mine = weights_of(*sharded);
          if (group.rank() == 0) end = mine;
        },
        options);
    return end;
  };
  Weights expected = train(kCpu, false);
  for (Device device : {kCpu, kAcc}) EXPECT_EQ(train(device, true), expected) << device;
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
