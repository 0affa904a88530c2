// On a device that computes by itself gathers, reductions, uploads and downloads run beside each other and beside
// compute, and the host waits for none of them before it needs the values.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <shardgrad/fsdp/state/state.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

using namespace std::chrono_literals;

struct Layers : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  std::function<void(Tensor&)> before_last = [](Tensor&) {};
  Layers() {
    for (int i = 0; i < 4; ++i) layers.push_back(child<nn::Linear>("layer" + std::to_string(i), 7, 7));
  }
  Tensor forward(Tensor x) {
    for (size_t i = 0; i < 3; ++i) x = layers[i](x);
    before_last(x);
    return layers[3](x);
  }
};

template <class Model> Tensor loss_of_ones(Model& model) {
  Tensor x = rows_of_batch("x", 0, 0, 4, 7, DType::f32), t = rows_of_batch("t", 0, 0, 4, 7, DType::f32);
  return mse_loss(model(x), t, 20);
}

bool at_once(const Record& a, const Record& b) { return a.begin < b.end && b.begin < a.end; }

TEST(Streams, I25_GathersOfBackwardDoNotWaitForReductions) {
  for (bool offload : {false, true}) {
    dist::VirtualOptions options{.device = kAcc, .threads = 1};
    options.group.delay = dist::fixed_delay(10ms);
    auto body = [&](dist::ProcessGroup& group) {
      auto model = nn::make<Layers>();
      auto sharded = fully_shard(*model, group, {.strategy = Strategy::zero3, .move_params_to_cpu = offload});
      for (int step = 0; step < 2; ++step) {  // the first one learns which unit is last
        context().recorder().clear();
        loss_of_ones(model).backward();
        model->zero_grad();
      }
      context().backend(kAcc).compute().synchronize();  // the host was far ahead
      if (group.rank() != 0) return;
      std::vector<Record> gathers, reductions;
      for (const Record& record : context().recorder().records()) {
        if (record.phase != "backward") continue;
        if (record.op == "all_gather") gathers.push_back(record);
        if (record.op == "reduce_scatter") reductions.push_back(record);
      }
      ASSERT_EQ(gathers.size(), 3u);
      ASSERT_EQ(reductions.size(), 4u);
      EXPECT_NE(gathers[0].lane, reductions[0].lane);
      int beside = 0;
      for (const Record& gather : gathers) beside += at_once(gather, reductions[0]);
      EXPECT_GT(beside, 0) << "offload " << offload;
    };
    dist::run_ranks(2, body, options);
  }
}

TEST(Streams, HybridSumsCopiesOfTheModelOnAStreamOfItsOwn) {
  auto body = [&](dist::ProcessGroup& group) {
    auto model = nn::make<Layers>();
    auto sharded = fully_shard(*model, group, {.strategy = Strategy::hybrid, .shard_ranks = 2});
    loss_of_ones(model).backward();
    std::set<std::string> lanes;
    for (const Record& record : context().recorder().records())
      if (record.phase == "backward" && record.op != "reshard") lanes.insert(record.op + " on " + record.lane);
    EXPECT_EQ(lanes, (std::set<std::string>{"all_gather on communication/gathers",
                                            "reduce_scatter on communication/reductions",
                                            "all_reduce on communication/replicas"}));
  };
  dist::run_ranks(4, body, {.device = kAcc, .threads = 1});
}

// What a trace shows of one step, lane by lane, in the order of its beginning.
TEST(Streams, ATraceShowsComputeAndCopiesBesideTheCollectives) {
  auto body = [&](dist::ProcessGroup& group) {
    auto model = nn::make<Layers>();
    auto sharded = fully_shard(*model, group, {.strategy = Strategy::zero3, .move_params_to_cpu = true});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
    for (bool tracing : {false, true}) {  // the first step learns which unit is last
      context().recorder().clear();
      context().recorder().set_tracing(tracing);
      loss_of_ones(model).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    std::map<std::string, std::vector<std::string>> lanes;
    std::vector<Record> records = context().recorder().records();
    std::ranges::stable_sort(records, {}, &Record::begin);
    for (const Record& record : records) {
      if (record.op == "reshard" || record.op == "wait") continue;
      EXPECT_GE(record.end, record.begin) << record.op << " " << record.unit;
      lanes[record.lane].push_back(record.op.substr(0, 4) + (record.unit.empty() ? "" : " " + record.unit.substr(5)));
    }
    using Lane = std::vector<std::string>;
    EXPECT_EQ(lanes["acc/compute"],
              (Lane{"forw 0", "forw 1", "forw 2", "forw 3", "back 3", "back 2", "back 1", "back 0"}));
    EXPECT_EQ(lanes["cpu/compute"], (Lane{"step"})) << "what is in host memory the host updates";
    EXPECT_EQ(lanes["uploads"], (Lane{"uplo 0", "uplo 1", "uplo 2", "uplo 3", "uplo 2", "uplo 1", "uplo 0"}));
    EXPECT_EQ(lanes["downloads"], (Lane{"down 3", "down 2", "down 1", "down 0"}));
    EXPECT_EQ(lanes["communication/reductions"], (Lane{"redu 3", "redu 2", "redu 1", "redu 0"}));
    EXPECT_EQ(lanes.size(), 6u);
  };
  dist::run_ranks(2, body, {.device = kAcc, .threads = 1});
}

// The first unit's gather is held up by 20 ms, and nothing can be computed meanwhile.
TEST(Streams, ATraceShowsWhatComputeWaitsForAndWhenUnitsAreReleased) {
  for (Device device : {kCpu, kAcc}) {
    dist::VirtualOptions options{.device = device, .threads = 1};
    options.group.delay = dist::fixed_delay(20ms);
    auto body = [&](dist::ProcessGroup& group) {
      auto model = nn::make<Layers>();
      auto sharded = fully_shard(*model, group, {.strategy = Strategy::zero3});
      for (bool tracing : {false, true}) {
        context().backend(device).compute().synchronize();
        context().recorder().clear();
        context().recorder().set_tracing(tracing);
        loss_of_ones(model).backward();
        model->zero_grad();
        context().backend(device).compute().synchronize();
        auto records = context().recorder().records();
        auto wait = std::ranges::find(records, "wait", &Record::op);
        ASSERT_EQ(wait != records.end(), tracing) << "nothing is recorded of waits unless tracing";
        if (!tracing) continue;
        auto same = [&](const Record& r) {
          return r.op != "wait" && r.group == wait->group && r.number == wait->number;
        };
        auto gather = std::ranges::find_if(records, same);
        ASSERT_NE(gather, records.end());
        EXPECT_EQ(gather->op + " " + gather->unit, "all_gather " + wait->unit);
        EXPECT_LT(wait->begin, gather->end) << name_of(device.kind);
        EXPECT_GE(wait->end, gather->end);
        for (const Record& record : records) {
          EXPECT_TRUE(record.op != "forward" || record.begin >= wait->end) << "computes with what it waited for";
          EXPECT_TRUE(record.op != "reshard" || record.begin >= gather->end) << "no unit is released before it came";
        }
      }
    };
    dist::run_ranks(2, body, options);
  }
}

/// Updates nothing; notes that it was asked to.
class Noting : public optim::Optimizer {
 public:
  Noting(std::vector<NamedParameter> parameters, std::atomic<bool>& asked)
      : Optimizer("Noting", std::move(parameters), 1, 0, {}, {}), asked_(asked) {}

 private:
  void update(Run&) override { asked_ = true; }
  std::atomic<bool>& asked_;
};

// The device's backward is held up right after the last layer's until the host updates that.
TEST(Streams, AnOffloadedStepRunsWhileTheDeviceIsInBackward) {
  for (int world : {1, 2}) {
    for (std::optional<bool> grads_to_cpu : {std::optional<bool>(), std::optional<bool>(true)}) {
      std::atomic<int> held{0}, in_time{0};
      auto body = [&](dist::ProcessGroup& group) {
        auto model = nn::make<Layers>();
        Config config{.strategy = Strategy::zero3, .move_params_to_cpu = true, .move_grads_to_cpu = grads_to_cpu};
        auto sharded = fully_shard(*model, group, config);
        std::atomic<bool> asked{false};
        auto hold = [&] {
          ++held;
          auto deadline = std::chrono::steady_clock::now() + 5s;
          while (!asked && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
          if (asked) ++in_time;
        };
        model->before_last = [&](Tensor& x) {
          node_of(x)->add_pre_hook([&] { current_stream(kAcc).run("hold", hold); });
        };
        Noting optimizer(model->named_parameters(), asked);
        loss_of_ones(model).backward();
        optimizer.step();
        context().backend(kAcc).compute().synchronize();
      };
      dist::run_ranks(world, body, {.device = kAcc, .threads = 1});
      EXPECT_EQ(held, world);
      EXPECT_EQ(in_time, world) << "the step waited for the whole of backward";
    }
  }
}

// What is queued here begins when the host is long past the call that asked for it.
void hold(Stream& stream) {
  stream.run("hold", [] { std::this_thread::sleep_for(100ms); });
}
Mesh& mesh_of(const Sharded& sharded) { return const_cast<Mesh&>(sharded.mesh()); }
int64_t shard_numel(const Sharded& sharded) {
  return sharded.units()[0]->flat_params()[0]->padded() / sharded.mesh().parts();
}

// Somebody else gets memory that was freed a moment ago: so many tensors of sevens.
std::vector<Tensor> take_memory(const std::function<Tensor()>& make) {
  std::vector<Tensor> all;
  for (int i = 0; i < 16; ++i) {
    all.push_back(make());
    fill_(all.back(), 7);
  }
  return all;
}

const Config kOffloaded{.strategy = Strategy::zero3, .move_params_to_cpu = true};

TEST(Streams, AModelMayGoBeforeItsShardsAreSent) {
  for (int world : {1, 2}) {
    auto body = [&](dist::ProcessGroup& group) {
      NoGrad no_grad;
      std::vector<double> losses;
      for (bool held : {false, true}) {
        int64_t shard = 0;
        Tensor loss;
        {
          auto model = nn::make<Layers>();
          auto sharded = fully_shard(*model, group, kOffloaded);
          shard = shard_numel(*sharded);
          if (held) hold(mesh_of(*sharded).uploads());
          loss = loss_of_ones(model);
        }
        std::vector<Tensor> others = take_memory([&] { return empty_on_host({shard}, DType::f32, kAcc); });
        losses.push_back(loss.item());
      }
      EXPECT_EQ(losses[0], losses[1]) << "W=" << world;
    };
    dist::run_ranks(world, body, {.device = kAcc, .threads = 1});
  }
}

TEST(Streams, StateIsLoadedOnceTheShardsBeforeItAreSent) {
  for (int world : {1, 2}) {
    auto body = [&](dist::ProcessGroup& group) {
      NoGrad no_grad;
      std::vector<double> losses;
      for (bool held : {false, true}) {
        auto model = nn::make<Layers>();
        auto sharded = fully_shard(*model, group, kOffloaded);
        auto state = full_state_dict(*sharded, false);
        for (auto& [name, tensor] : state) fill_(tensor, 7);
        if (held) hold(mesh_of(*sharded).uploads());
        Tensor loss = loss_of_ones(model);
        load_full_state_dict(*sharded, state);
        losses.push_back(loss.item());
      }
      EXPECT_EQ(losses[0], losses[1]) << "W=" << world;
    };
    dist::run_ranks(world, body, {.device = kAcc, .threads = 1});
  }
}

TEST(Streams, GradientsAndTheirModelMayGoBeforeTheyHaveArrived) {
  for (int world : {1, 2})
    for (bool model_goes : {false, true}) {
      auto body = [&](dist::ProcessGroup& group) {
        auto model = nn::make<Layers>();
        auto sharded = fully_shard(*model, group, kOffloaded);
        int64_t shard = shard_numel(*sharded);
        Tensor loss = loss_of_ones(model);
        hold(mesh_of(*sharded).downloads());
        loss.backward();
        if (model_goes)
          sharded.reset(), model = nn::make<Layers>();
        else
          model->zero_grad();
        std::vector<Tensor> others = take_memory([&] { return empty_on_host({shard}, DType::f32, kAcc); });
        std::this_thread::sleep_for(150ms);
        for (const Tensor& other : others)
          EXPECT_EQ(other.to_vector<float>(), std::vector<float>(size_t(shard), 7)) << "W=" << world;
      };
      dist::run_ranks(world, body, {.device = kAcc, .threads = 1});
    }
}

// One unit, and memory of the sizes it asks for that compute gives up between the passes and gets again first: else the
// second pass would wait for memory that the first one's copies still read.
TEST(Streams, AGradientIsAddedToAnEarlierOneThatHasArrived) {
  for (int world : {1, 2}) {
    auto body = [&](dist::ProcessGroup& group) {
      std::vector<std::vector<double>> weights;
      for (bool held : {false, true}) {
        auto model = nn::make<nn::Linear>(7, 7);
        auto sharded = fully_shard(*model, group, kOffloaded);
        optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
        std::vector<std::vector<Tensor>> spare;
        for (int parts : {1, world})
          spare.push_back(take_memory([&] {
            return empty({shard_numel(*sharded) * world / parts}, {DType::f32, kAcc});
          }));
        Tensor first = loss_of_ones(model);
        if (held) hold(mesh_of(*sharded).downloads());
        first.backward();
        spare.clear();
        loss_of_ones(model).backward();
        optimizer.step();
        weights.push_back(values_of(full_state_dict(*sharded, false).at("weight")));
      }
      EXPECT_EQ(weights[0], weights[1]) << "W=" << world;
    };
    dist::run_ranks(world, body, {.device = kAcc, .threads = 1});
  }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
