// What a plan says before a run: the products of a step by their formula, the least time that it takes, and for a model
// that the library does not know the very bytes that a run has.

#include <atomic>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;

const char* const kStrategies[] = {"ddp", "zero1", "zero2", "zero3", "hybrid"};

class PlanTest : public TrainerTest {
 protected:
  void use(const char* strategy) {
    config_.strategy = strategy;
    config_.fsdp.options.shard_ranks = config_.strategy == "hybrid" ? 2 : 0;
  }
};

// A weight meets each sample in forward and in its own gradient, and where something is trained below it in that one's.
TEST_F(PlanTest, ComputesTheProductsOfARanksSamples) {
  config_.batch = 33;
  const double rows = 17, expected = rows * (4 * 784 * 24 + 6 * 24 * 10);
  for (const char* strategy : kStrategies) {
    use(strategy);
    for (Device device : {kMeta, kCpu})
      EXPECT_EQ(train::plan(config_, data::FashionMnist::known_outline(), 2, device).flops, expected) << strategy;
  }
  config_.micro_batches = 4;
  EXPECT_EQ(train::plan(config_, data::FashionMnist::known_outline(), 2, kMeta).flops, expected);
}

TEST(LeastTime, IsThatOfComputingOrOfSendingWhicheverIsLonger) {
  fsdp::Plan plan;
  plan.flops = 6e12, plan.bytes_sent = 4'000'000'000, plan.collectives = 50;
  train::LeastTime sends = train::least_time(plan, {.flops = 3e12, .bandwidth = 1e9, .latency = 0.01});
  EXPECT_EQ(sends.computing, 2);
  EXPECT_EQ(sends.sending, 4.5);
  EXPECT_EQ(sends.step(), 4.5);
  EXPECT_EQ(train::least_time(plan, {.flops = 1e12, .bandwidth = 1e9}).step(), 6);
  EXPECT_EQ(train::least_time(plan, {}).step(), 0) << "what is not known takes no time";
}

// On the CPU there is nowhere to move them, elsewhere there is; and what the ranks talk by needs memory of its own.
TEST_F(PlanTest, IsThatOfWhatTheRanksComputeOnAndTalkBy) {
  config_.clip_grad_norm = 1;
  for (Device device : {kCpu, kAcc})
    for (const char* strategy : {"zero2", "zero3", "hybrid"})
      for (const char* group : {"", "shared_memory"})
        for (bool moves : {false, true}) {
          use(strategy);
          config_.fsdp.options.move_params_to_cpu = moves;
          config_.fsdp.options.move_grads_to_cpu = moves;
          auto fields = data::FashionMnist::known_outline();
          fsdp::Plan predicted = train::plan(config_, fields, 4, kMeta, {device, group});
          fsdp::Plan measured = train::plan(config_, fields, 4, device, {device, group});
          EXPECT_EQ(predicted, measured) << strategy << ' ' << device << ' ' << group << ' ' << moves << '\n'
                                         << predicted.table() << measured.table();
        }
}

TEST_F(PlanTest, OffersEveryStrategyOnEveryNumberOfRanksOrSaysWhyNot) {
  use("hybrid");
  std::vector<train::Offer> all = train::offers(config_, data::FashionMnist::known_outline(), {2, 3});
  ASSERT_EQ(all.size(), 10U);
  for (const train::Offer& offer : all) {
    bool cannot = offer.strategy == "hybrid" && offer.ranks == 3;
    EXPECT_EQ(offer.why_not.empty(), !cannot) << offer.strategy << offer.ranks << offer.why_not;
    EXPECT_EQ(offer.plan.peak > 0 && offer.plan.flops > 0, !cannot);
  }
  EXPECT_LT(all[3].plan.peak, all[0].plan.peak) << "zero3 keeps less than ddp";
  EXPECT_LT(all[8].plan.flops, all[3].plan.flops) << "each of three ranks has fewer samples than each of two";
}

// --- a model of a user's own -----------------------------------------------------------------------------------------

struct OwnNet : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 784, 40), hidden = child<nn::Linear>("hidden", 40, 40),
                        out = child<nn::Linear>("out", 40, 10);
  Tensor forward(const Tensor& x) { return out(tanh(hidden(tanh(in(x))))); }
};

// Its loss reads weights that no call of their layer has brought.
class Penalised : public train::Task {
 public:
  nn::Module& module() override { return *net_; }
  Tensor loss(const data::Batch& batch) override {
    Tensor loss = fit(batch), hidden = net_->hidden->weight, in = net_->in->weight;
    return loss + sum(hidden * hidden) * 1e-4 + sum(in * in) * 1e-4;
  }

 protected:
  Tensor fit(const data::Batch& batch) {
    Tensor x = reshape(batch.fields[0], {batch.count, 784});
    return cross_entropy(net_(x), batch.fields[1], double(batch.global_count));
  }

 private:
  nn::Child<OwnNet> net_ = nn::make<OwnNet>();
};

class OwnPlan : public PlanTest {
 protected:
  OwnPlan() {
    registry_->add_model("own", "three layers", [this] {
      ++made_;
      return nn::make<OwnNet>();
    });
    registry_->add_whole_task("penalised", "and small weights", [] { return std::make_unique<Penalised>(); });
    config_.registry = registry_;
    config_.model = {"own"};
    config_.epochs = 1;
  }
  std::shared_ptr<train::Registry> registry_ = std::make_shared<train::Registry>();
  std::atomic<int> made_{0};
};

TEST_F(OwnPlan, IsPredictedToTheByteUnderEveryStrategyOnOneMachineAndOnSeveral) {
  config_.task = {"classification"};
  for (const char* strategy : kStrategies) {
    use(strategy);
    for (const dist::PretendedRanks& as : {dist::PretendedRanks{kCpu, ""},
                                           {kCpu, "shared_memory"},
                                           {kCpu, "two_level", {0, 0, 1, 1}},
                                           {kCpu, "two_level", {0, 1, 1, 1}},
                                           {kCpu, "two_level", {0, 1, 0, 1}}}) {
      auto fields = data::FashionMnist::known_outline();
      fsdp::Plan predicted = train::plan(config_, fields, 4, kMeta, as);
      fsdp::Plan measured = train::plan(config_, fields, 4, kCpu, as);
      EXPECT_EQ(predicted, measured) << strategy << " as " << as.group << '\n' << predicted.table() << measured.table();
    }
  }
}

TEST_F(OwnPlan, IsRefusedForAModelThatTrainingWouldRefuse) {
  config_.task = {"penalised"};
  use("zero3");
  for (Device device : {kMeta, kCpu})
    EXPECT_THAT(error_of([&] { train::plan(config_, data::FashionMnist::known_outline(), 4, device); }),
                HasSubstr("is not in memory: it belongs to unit"))
        << device;
}

TEST_F(OwnPlan, IsWhatAWholeRunMeasures) {
  config_.task = {"classification"};
  for (const char* strategy : kStrategies) {
    use(strategy);
    train::Result result = train(2);
    EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy;
    auto [planned, measured] = peaks(result);
    EXPECT_EQ(planned, measured) << strategy;
    EXPECT_GE(planned.size(), 4U) << strategy;
  }
}

// Batches that the ranks cannot share evenly, of which some ranks get nothing, and that are larger than the data (301
// samples, and 101 to test on); tests that need more memory than a step, which has its batch in parts.
TEST_F(OwnPlan, IsWhatAWholeRunMeasuresWhateverTheBatch) {
  config_.task = {"classification"};
  config_.epochs = 3;      // of one step each, in the last case: the third knows the order of units, and gathers what
  config_.eval_every = 3;  // an evaluation in between would have gathered
  for (auto [batch, micro_batches] : {std::pair(33, 1), std::pair(3, 1), std::pair(150, 1), std::pair(1000, 8)})
    for (const char* strategy : kStrategies) {
      use(strategy);
      config_.batch = batch;
      config_.micro_batches = micro_batches;
      train::Result result = train(4);
      auto [planned, measured] = peaks(result);
      EXPECT_EQ(planned, measured) << strategy << batch;
      EXPECT_EQ(planned["evaluation"] > planned["activation"], micro_batches > 1) << strategy << batch;
      EXPECT_EQ(result.step_bytes, result.predicted_step_bytes) << strategy << batch;
    }
}

// As one that looks into a tensor's memory.
class Peeking : public Penalised {
 public:
  Tensor loss(const data::Batch& batch) override { return fit(batch); }
  void evaluate(const data::Batch& batch, train::Sums& sums) override {
    sums.add("loss", batch.count > 0 ? double(batch.fields[0].data<float>()[0]) : 0);
    sums.add("count", double(batch.count));
  }
};

TEST_F(OwnPlan, SaysWhyAnEvaluationIsNotInIt) {
  registry_->add_whole_task("peeking", "", [] { return std::make_unique<Peeking>(); });
  config_.task = {"peeking"};
  fsdp::Plan plan = train::plan(config_, data::FashionMnist::known_outline(), 2, kMeta);
  EXPECT_FALSE(plan.peaks.contains(Category::evaluation));
  EXPECT_THAT(plan.table(), HasSubstr("\nnot counted: evaluation, for the task cannot be evaluated on samples without "
                                      "values: data(): the tensor is on meta, which the host may not read"));
  train::Result result = train(2);
  EXPECT_EQ(result.step_bytes, result.predicted_step_bytes);
}

// However many ranks there are, also where they share memory.
TEST_F(OwnPlan, IsMadeByOneRank) {
  config_.task = {"classification"};
  for (bool one_machine : {false, true}) {
    made_ = 0;
    train::plan(config_, data::FashionMnist::known_outline(), 64, kMeta, {kCpu, one_machine ? "shared_memory" : ""});
    EXPECT_EQ(made_, 2) << "one to look at the task, one to plan";
  }
}

}  // namespace
}  // namespace shardgrad
