// Where a batch leaves a rank fewer samples than a layer can work with, a run says so before its first step, and not at
// the end of its first epoch.

#include <set>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/short_batches.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct NormedNet : nn::Module {
  nn::Child<nn::Linear> in, out;
  nn::Child<nn::BatchNorm1d> norm;
  NormedNet()
      : in(child<nn::Linear>("in", 4, 8)),
        out(child<nn::Linear>("out", 8, 1)),
        norm(child<nn::BatchNorm1d>("norm", 8)) {}
  Tensor forward(const Tensor& x) { return out(relu(norm(in(x)))); }
};

// As somebody writes it who thinks of one size alone.
struct OfFourRows : nn::Module {
  nn::Child<nn::Linear> layer;
  OfFourRows() : layer(child<nn::Linear>("layer", 8, 2)) {}
  Tensor forward(const Tensor& x) { return reshape(layer(reshape(x, {2, 8})), {4, 1}); }
};

class ShortBatches : public TrainerTest {
 protected:
  ShortBatches() {
    registry_.add_data("numbers", "41 rows", [] { return data::Splits{rows_of_numbers(41), rows_of_numbers(8)}; });
    registry_.add_model("normed", "", [] { return nn::make<NormedNet>(); });
    registry_.add_model("of_four", "", [] { return nn::make<OfFourRows>(); });
  }
  void configure(const std::string& model, const std::vector<std::string>& overrides) {
    folder_.write("own.json",
                  concat(R"({"data": {"name": "numbers"}, "task": {"name": "regression"}, "model": {"name": ")", model,
                         R"("}})"));
    config_ = train::read_config(folder_ / "own.json", overrides, registry_);
    config_.runs = folder_ / "runs";
  }
  std::string said(int ranks) {
    Context context;
    try {
      train::check_short_batches(config_, {{{{4}, DType::f32}, {{1}, DType::f32}}, 41, 8}, ranks);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      return error.what();
    }
    return "";
  }
  train::Registry registry_;
};

TEST_F(ShortBatches, TheLastBatchOfAnEpochIsTriedAndTheNearestBatchesThatWorkAreNamed) {
  configure("normed", {"batch=8"});
  EXPECT_THAT(said(1),
              AllOf(StartsWith("of the last batch of an epoch (1 of 41 samples) rank 0 gets 1: BatchNorm1d: in "
                               "training a channel must have at least two elements, or none, got [1, 8]"),
                    EndsWith("; batch=7 and batch=9 work")));
  configure("normed", {"batch=13"});  // 2 are left
  EXPECT_EQ(said(1), "");
  EXPECT_THAT(said(2), StartsWith("of the last batch of an epoch (2 of 41 samples) rank 0 gets 1: "));
  configure("normed", {"batch=38"});  // 3 are left
  EXPECT_EQ(said(1), "");
  EXPECT_THAT(said(2), StartsWith("of the last batch of an epoch (3 of 41 samples) rank 1 gets 1: "));
}

TEST_F(ShortBatches, ARankWithoutSamplesIsAsGoodAsTheTaskSays) {
  configure("normed", {"batch=20"});  // 1 is left
  EXPECT_THAT(said(4), StartsWith("of the last batch of an epoch (1 of 41 samples) rank 0 gets 1: "));
  configure("of_four", {"batch=40"});
  EXPECT_THAT(said(10), AllOf(StartsWith("of the last batch of an epoch (1 of 41 samples) rank 0 gets 1: reshape"),
                              Not(HasSubstr("work"))));
}

TEST_F(ShortBatches, EveryBatchIsTriedAsTheRanksAndMicroBatchesShareIt) {
  configure("normed", {"batch=6", "micro_batches=2"});
  EXPECT_EQ(said(1), "");
  EXPECT_THAT(said(2), StartsWith("of a batch (6 of 41 samples) rank 0 gets 1 at a time: BatchNorm1d"));
  configure("normed", {"batch=100"});  // more than there are: 21 and 20
  EXPECT_EQ(said(2), "");
  EXPECT_THAT(said(40), StartsWith("of a batch (41 of 41 samples) rank 39 gets 1: "));
}

// Where a BatchNorm takes the samples of all ranks, one that has a single one is as good as another.
TEST_F(ShortBatches, OverAllRanksABatchNormTakesWhateverARankHas) {
  for (const char* own : {"sync_batchnorm=true", "sync_batchnorm=false"}) {
    configure("normed", {"batch=4", "steps=3", own});
    EXPECT_EQ(said(4).empty(), config_.sync_batchnorm) << own;
  }
  config_.sync_batchnorm = true;
  EXPECT_EQ(train(4).steps, 3);
  for (int ranks : {1, 2, 4}) {
    configure("normed", {"batch=8", "sync_batchnorm=true"});
    EXPECT_THAT(said(ranks), StartsWith("of the last batch of an epoch (1 of 41 samples) rank 0 gets 1: BatchNorm1d"));
    configure("normed", {"batch=13", "sync_batchnorm=true"});  // 2 are left
    EXPECT_EQ(said(ranks), "");
  }
}

TEST_F(ShortBatches, ThePlanCountsWhatABatchNormSendsAndItsBuffersNeed) {
  data::Outline outline{{{{4}, DType::f32}, {{1}, DType::f32}}, 41, 8};
  std::set<int64_t> sent;
  for (const char* own : {"sync_batchnorm=true", "sync_batchnorm=false"})
    for (const char* strategy : {"ddp", "zero3"}) {
      configure("normed", {"batch=12", "steps=3", own, concat("strategy=", strategy)});
      for (int ranks : {2, 3}) {
        Context context;
        fsdp::Plan predicted = train::plan(config_, outline, ranks, kMeta, {kCpu, "shared_memory"});
        fsdp::Plan measured = train::plan(config_, outline, ranks, kCpu, {kCpu, "shared_memory"});
        EXPECT_EQ(predicted, measured) << own << ' ' << strategy << ' ' << ranks << '\n'
                                       << predicted.table() << measured.table();
        sent.insert(predicted.bytes_sent);
      }
      train::Result run = train(3);
      EXPECT_EQ(run.step_bytes, run.predicted_step_bytes) << own << ' ' << strategy;
    }
  EXPECT_EQ(sent.size(), 8U) << "or it sends nothing";
}

TEST_F(ShortBatches, ComparedNumbersOfRanksSayWhichAreTooMany) {
  configure("normed", {"batch=8", "steps=3"});
  data::Outline outline{{{{4}, DType::f32}, {{1}, DType::f32}}, 41, 8};
  for (const train::Offer& offer : train::offers(config_, outline, {1, 4, 8})) {
    EXPECT_EQ(offer.plan.peak > 0, offer.ranks < 8);
    std::string expected = "on 8 ranks: of a batch (8 of 41 samples) rank 0 gets 1: BatchNorm1d";
    EXPECT_EQ(offer.why_not.substr(0, expected.size()), offer.ranks < 8 ? "" : expected);
  }
}

TEST_F(ShortBatches, WhatARunDoesNotComeToIsNotTried) {
  for (int steps : {1, 5}) {  // of 8 samples each; the sixth is of one
    configure("normed", {"batch=8", concat("steps=", steps)});
    EXPECT_EQ(said(1), "");
  }
  configure("normed", {"batch=8", "steps=6"});
  EXPECT_THAT(said(1), StartsWith("of the last batch of an epoch (1 of 41 samples)"));
}

TEST_F(ShortBatches, ABatchThatIsTooSmallForTheRanksIsNamedWithOneThatWorks) {
  configure("normed", {"batch=4", "steps=3"});
  EXPECT_THAT(said(4), AllOf(StartsWith("of a batch (4 of 41 samples) rank 0 gets 1: BatchNorm1d"),
                             EndsWith("; batch=8 works")));
  EXPECT_THAT(error_of([&] { train(4); }), HasSubstr("of a batch (4 of 41 samples) rank 0 gets 1: BatchNorm1d"));
}

TEST_F(ShortBatches, WhatWorksWithNoSizeIsLeftToThePlan) {
  configure("of_four", {"batch=40", "steps=1"});  // at most 2 rows each, whatever the batch
  EXPECT_EQ(said(30), "");
}

TEST_F(ShortBatches, ARunIsRefusedBeforeAFolderIsMade) {
  configure("normed", {"batch=8"});
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("of the last batch of an epoch (1 of 41 samples) rank 0 gets 1: "));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
  configure("normed", {"batch=7"});
  EXPECT_EQ(train(2).steps, 6 * config_.epochs);
}

}  // namespace
}  // namespace shardgrad
