// Every byte equals the formula of docs/zero.md for its strategy.

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include <shardgrad/dist/transports/transport.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

int64_t total_padded(const Sharded& sharded) {
  int64_t total = 0;
  for (const auto& unit : sharded.units())
    for (const auto& flat : unit->flat_params()) total += flat->padded();
  return total;
}

template <class Model> void step(nn::Child<Model>& model, optim::Optimizer& optimizer, int number) {
  Tensor x = rows_of_batch("x", number, 0, 4, 7, DType::f32);
  mse_loss(model(x), rows_of_batch("t", number, 0, 4, 5, DType::f32), 20).backward();
  optimizer.step();
}

// What the table of fsdp/setup/config.h says is there between backward and zero_grad, in twelfths of P.
struct Row {
  Config config;
  int64_t params, full_grads, grad_shards, optimizer;
};

TEST(Bytes, I26_I27_B15_MemoryOfEveryStrategyEqualsTheTable) {
  for (int world : {1, 2, 3, 4}) {
    int64_t all = 12, part = 12 / world;
    std::vector<Row> table{{{.strategy = Strategy::ddp}, all, all, 0, 2 * all},
                           {{.strategy = Strategy::zero1}, all, all, 0, 2 * part},
                           {{.strategy = Strategy::zero2}, part, 0, part, 2 * part},
                           {{.strategy = Strategy::zero2, .keep_params = true}, all, 0, part, 2 * part},
                           {{.strategy = Strategy::zero3}, part, 0, part, 2 * part},
                           {{.strategy = Strategy::hybrid, .shard_ranks = world}, part, 0, part, 2 * part}};
    if (world == 4) table.push_back({{.strategy = Strategy::hybrid, .shard_ranks = 2}, 6, 0, 6, 12});
    for (const Row& row : table)
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Rooted>();
        auto sharded = fully_shard(*model, group, row.config);
        int64_t unit = 4 * total_padded(*sharded);
        EXPECT_EQ(12 * context().ledger().current(), row.params * unit) << "nothing else after construction";
        optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
        for (int i = 0; i < 2; ++i) {
          SCOPED_TRACE(concat(name_of(row.config.strategy), " W=", world, " step ", i));
          step(model, optimizer, i);
          EXPECT_EQ(12 * bytes(Category::parameter_shard), row.params * unit);
          int64_t grads = bytes(Category::full_gradient) + bytes(Category::gradient_shard);
          EXPECT_EQ(12 * grads, (row.full_grads + row.grad_shards) * unit);
          if (world > 1) {
            EXPECT_EQ(12 * bytes(Category::full_gradient), row.full_grads * unit);
          }
          EXPECT_EQ(12 * bytes(Category::optimizer_state), row.optimizer * unit);
          EXPECT_EQ(bytes(Category::gathered_parameter), 0);
          optimizer.zero_grad();
          EXPECT_EQ(12 * context().ledger().current(), (row.params + row.optimizer) * unit) << "no gradient remains";
        }
      });
  }
}

TEST(Bytes, I28_B18_FrozenUnitsAreGivenBackOnceBackwardHasPassedThem) {
  struct Frozens : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 9), a = child<nn::Linear>("a", 9, 9),
                          b = child<nn::Linear>("b", 9, 9), out = child<nn::Linear>("out", 9, 5);
    bool apart;
    explicit Frozens(bool others_between) : apart(others_between) {
      for (nn::Linear* frozen : {&*a, &*b}) frozen->weight.set_requires_grad(false);
      b->bias.set_requires_grad(false);
    }
    Tensor between(const Tensor& x) const { return apart ? tanh(x) : x; }
    Tensor forward(const Tensor& x) { return out(between(b(between(a(between(in(x))))))); }
  };
  for (bool apart : {true, false})
    dist::run_ranks(2, [apart](dist::ProcessGroup& group) {
      auto model = nn::make<Frozens>(apart);
      fully_shard(*model, group, {.prefetch = 0});
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      for (int i = 0; i < 3; ++i) {
        context().recorder().clear();
        step(model, optimizer, i);
        optimizer.zero_grad();
      }
      std::vector<std::string> events;
      for (const Record& record : context().recorder().records())
        if (record.phase == "backward" && record.op != "reduce_scatter")
          events.push_back((record.op == "reshard" ? "free " : "AG ") + record.unit);
      EXPECT_EQ(events, (std::vector<std::string>{"free out", "AG b", "free b", "AG a", "free a", "AG in", "free in"}))
          << apart;
    });
}

TEST(Bytes, I30_OffloadLeavesNothingOnTheDeviceBetweenSteps) {
  for (int world : {1, 2, 4})
    for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
      dist::run_ranks(
          world,
          [&](dist::ProcessGroup& group) {
            auto model = nn::make<Rooted>();
            auto sharded = fully_shard(*model, group, {.strategy = strategy, .move_params_to_cpu = true});
            int64_t shard = 4 * total_padded(*sharded) / world;
            EXPECT_EQ(bytes(Category::pinned_host), shard);
            optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
            for (int i = 0; i < 2; ++i) {
              step(model, optimizer, i);
              for (const auto& slice : optimizer.state_slices()) EXPECT_EQ(slice.values.device(), kCpu);
              EXPECT_EQ(bytes(Category::pinned_host), 2 * shard) << "shards and gradients";
              for (Category::Kind device : {Category::parameter_shard, Category::gathered_parameter,
                                            Category::full_gradient, Category::gradient_shard, Category::communication})
                EXPECT_EQ(bytes(device), 0) << name_of(device);
              optimizer.zero_grad();
              EXPECT_EQ(bytes(Category::pinned_host), shard);
              EXPECT_EQ(bytes(Category::optimizer_state), 2 * shard);
            }
          },
          {.device = kAcc});
}

TEST(Bytes, I28_GatheredParametersNeverExceedTheBound) {
  for (int prefetch : {0, 1, 2})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.strategy = Strategy::zero3, .prefetch = prefetch});
      int64_t root = 0, largest = 0;
      for (const auto& unit : sharded->units()) {
        if (unit->is_root())
          root = int64_t(unit->full_bytes());
        else
          largest = std::max(largest, int64_t(unit->full_bytes()));
      }
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      int64_t worst = 0;
      context().ledger().on_change([&](Tag, int64_t) { worst = std::max(worst, bytes(Category::gathered_parameter)); });
      for (int i = 0; i < 3; ++i) step(model, optimizer, i);
      context().ledger().on_change(nullptr);
      EXPECT_LE(worst, root + (1 + prefetch) * largest) << "prefetch " << prefetch;
      EXPECT_GT(worst, root);
      EXPECT_EQ(bytes(Category::gathered_parameter), 0);
    });
}

TEST(Bytes, AtMostTwoFullGradientsAreAliveTheOneBeingWrittenAndTheOneBeingSent) {
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    dist::run_ranks(2, [&](dist::ProcessGroup& group) {
      auto model = nn::make<Rooted>();
      auto sharded = fully_shard(*model, group, {.strategy = strategy});
      std::vector<int64_t> sizes;
      for (const auto& unit : sharded->units()) sizes.push_back(int64_t(unit->full_bytes()));
      std::ranges::sort(sizes, std::greater());
      optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
      for (int i = 0; i < 3; ++i) step(model, optimizer, i);
      // The root's is open from its first gradient on.
      int64_t root = int64_t(sharded->units()[0]->full_bytes());
      EXPECT_LE(context().ledger().peak(Category::full_gradient), root + sizes[0] + sizes[1]);
      EXPECT_GE(context().ledger().peak(Category::full_gradient), sizes[0] + sizes[1]);
    });
}

// Bytes of the C heap in use, all threads together. Under a sanitizer, whose heap is another, always the same.
size_t heap_in_use() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}

bool heap_is_seen() {
  size_t before = heap_in_use();
  std::vector<std::unique_ptr<int>> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(std::make_unique<int>(i));
  return heap_in_use() >= before + 1000 * sizeof(int);
}

// How much more of the heap is in use after the last of a thousand steps of two ranks than after the hundredth. `also`
// is done in every step of rank 0.
int64_t growth_over_a_thousand_steps(const std::function<void()>& also) {
  std::atomic<int64_t> growth = 0;
  heap_in_use();  // under a sanitizer the first call sets the heap up, and two threads at once would crash
  dist::run_ranks(2, [&](dist::ProcessGroup& group) {
    auto model = nn::make<Rooted>();
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.001});
    // The recorder's list has a bound, which these steps would not reach: it gets its full length first.
    for (int i = 0; i < 10'000; ++i) context().recorder().instant({});
    auto measured = [&] {
      context().recorder().clear();
      group.barrier();
      auto heap = int64_t(heap_in_use());
      group.barrier();
      return heap;
    };
    int64_t current = 0, peak = 0, heap = 0;
    for (int i = 0; i < 1000; ++i) {
      step(model, optimizer, i % 8);
      optimizer.zero_grad();
      if (i % 10 == 0) {
        NoGrad no_grad;
        model(rows_of_batch("x", 0, 0, 4, 7, DType::f32));
      }
      if (group.rank() == 0) also();
      if (i == 20) current = context().ledger().current(), peak = context().ledger().peak();
      if (i == 100) heap = measured();
    }
    heap = measured() - heap;
    if (group.rank() == 0) growth = heap;
    EXPECT_EQ(context().ledger().current(), current);
    EXPECT_EQ(context().ledger().peak(), peak);
  });
  return growth;
}

// More than what threads keep for later, which does not depend on the steps, and less than 16 bytes of each step.
constexpr int64_t kHeapAllowance = 16 << 10;

TEST(Bytes, I33_NothingGrowsOverAThousandSteps) {
  EXPECT_LE(growth_over_a_thousand_steps([] {}), kHeapAllowance);
}

TEST(Bytes, I33_AHeapThatGrowsBy16BytesAStepIsSeen) {
  if (!heap_is_seen()) GTEST_SKIP() << "another heap than that of glibc 2.33 or newer, such as a sanitizer's";
  std::vector<std::unique_ptr<std::array<char, 16>>> kept;
  kept.reserve(1000);
  EXPECT_GT(growth_over_a_thousand_steps([&] { kept.push_back(std::make_unique<std::array<char, 16>>()); }),
            kHeapAllowance);
}

struct Explosive : Rooted {
  bool armed = false;
  Tensor forward(const Tensor& x) {
    Tensor h = tanh(b0(x * scale));
    if (armed) fail("boom");
    return b2(tanh(b1(h))) + shift;
  }
};

TEST(Bytes, I33_AnExceptionInForwardLeavesNothingBehind) {
  dist::run_ranks(2, [](dist::ProcessGroup& group) {
    auto model = nn::make<Explosive>();
    fully_shard(*model, group);
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    step(model, optimizer, 0);
    optimizer.zero_grad();
    int64_t baseline = context().ledger().current();
    for (int i = 0; i < 3; ++i) {
      model->armed = true;
      EXPECT_THROW(step(model, optimizer, 1), Error);
      model->armed = false;
      step(model, optimizer, 1);
      optimizer.zero_grad();
      EXPECT_EQ(context().ledger().current(), baseline);
    }
  });
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
