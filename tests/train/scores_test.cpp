// The scores of an evaluation: what they are made of, when they end a run, and which of them are refused.

#include <cmath>

#include <shardgrad/train/tasks/next_token.h>

#include "own_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(OwnRun, EndsEarlyWhereTheScoreBecomesNoBetterAndStaysEnded) {
  SeenEvents seen;
  registry_.add_callback([&](const Config&, dist::ProcessGroup& world) -> std::unique_ptr<train::Callback> {
    if (world.rank() == 0) return std::make_unique<Watch>(seen);
    return std::make_unique<train::Callback>();
  });
  configure(kOwn, {"optimizer.lr=1e-30", "early_stop=3", "resume=true", "schedule.name=plateau",
                   "schedule.patience=4"});  // nothing changes
  train::Result result = train(2);
  EXPECT_EQ(result.steps, 4 * 7) << "the first evaluation, and three that are no better";
  EXPECT_THAT(out_.str(), HasSubstr("ends after step 28: no better r2 in 3 evaluations (early_stop)"));
  config_.epochs += 3;
  EXPECT_EQ(train(2).steps, 28);
  EXPECT_THAT(out_.str(),
              HasSubstr("it has ended: no better r2 in 3 evaluations (early_stop); a larger early_stop goes on\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("no better r2 in 4"))) << "its scores, once more, are no news";
  EXPECT_EQ(seen.tests.size(), 4U);
  config_.early_stop = 4;
  EXPECT_EQ(train(2).steps, 35) << "one more";
}

TEST_F(OwnRun, AScoreThatIsNoNumberIsToldOfOnce) {
  struct Scoreless : Mirrored {
    using Mirrored::Mirrored;
    std::vector<train::Score> scores(const train::Sums&) const override { return {{"r2", std::nan("")}}; }
  };
  registry_.add_whole_task("scoreless", "wrong", [] { return std::make_unique<Scoreless>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "scoreless"}, "epochs": 2})", {"keep_best=true"});
  train::Result result = train(2);
  std::string word = "test_r2 is NaN after step 1, which is never better: ", text = out_.str();
  EXPECT_THAT(text, HasSubstr(word));
  EXPECT_THAT(text, Not(HasSubstr("NaN after step 2")));
  EXPECT_FALSE(std::filesystem::exists(result.folder + "/best"));
  configure(kOwn, {"epochs=1"});
  train(2);
  EXPECT_THAT(out_.str(), Not(HasSubstr("never better")));
}

// Two columns of different size: each is predicted by its mean alone.
TEST_F(OwnRun, TheScoreR2IsTheMeanOfTheTargetsColumns) {
  Context context;
  train::Regression task(train::Model(nn::make<nn::Linear>(1, 2)));
  NoGrad no_grad;
  task.module().materialize();
  copy_into(task.module().named_parameters()[0].tensor, zeros({2, 1}));
  copy_into(task.module().named_parameters()[1].tensor, from_vector<float>({0.5F, 1000}, {2}));
  train::Sums sums;
  task.evaluate({{zeros({2, 1}), from_vector<float>({0, 1000, 1, 1000.5F}, {2, 2})}, 0, 2, 0, 2}, sums);
  std::vector<train::Score> scores = task.scores(sums);
  EXPECT_NEAR(scores[0].value, (0 + (1 - 0.25 / 0.125)) / 2, 1e-6);
  EXPECT_TRUE(scores[0].higher_is_better);
  EXPECT_FALSE(scores[1].higher_is_better) << scores[1].name;
  for (auto [target, expected] : {std::pair(1000.1F, 0.0), {1000, 1.0}}) {  // which nothing varies of
    train::Sums constant;
    task.evaluate({{zeros({3, 1}), from_vector<float>({0, target, 1, target, 2, target}, {3, 2})}, 0, 3, 0, 3},
                  constant);
    double first = 1 - (0.25 + 0.25 + 2.25) / 2;
    EXPECT_NEAR(task.scores(constant)[0].value, (first + expected) / 2, 1e-6) << target;
  }
}

TEST_F(OwnRun, ScoresSayWhetherTheHigherOneIsTheBetter) {
  Context context;
  train::Sums sums;
  for (const char* name : {"correct", "loss", "count"}) sums.add(name, 1);
  train::Model model(nn::make<nn::Linear>(1, 2));
  for (const train::Score& score : train::Classification({}, model).scores(sums))
    EXPECT_EQ(score.higher_is_better, score.name == "accuracy") << score.name;
  for (const train::Score& score : train::NextToken(model).scores(sums))
    EXPECT_FALSE(score.higher_is_better) << score.name;
}

TEST_F(OwnRun, SumsThatARankNamesOtherwiseAreRefused) {
  struct ByRank : Mirrored {
    using Mirrored::Mirrored;
    void evaluate(const data::Batch& batch, train::Sums& sums) override {
      Mirrored::evaluate(batch, sums);
      sums.add(batch.first == 0 ? "first" : "second", 1);
    }
  };
  registry_.add_whole_task("by_rank", "wrong", [] { return std::make_unique<ByRank>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1})");
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the sums of an evaluation are count loss second, and those of rank 0 count first loss"));
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1, "grains": 4})");
  EXPECT_THAT(error_of([&] { train(1); }),
              HasSubstr("the sums of an evaluation are count first loss for the first grain "
                        "of a batch, and count loss second for another"));
}

// Best score, learning rate and the end of a run follow from scores: ranks that disagree would part.
TEST_F(OwnRun, ScoresThatDifferByRankAreRefusedWithBothValues) {
  struct ByRank : Mirrored {
    using Mirrored::Mirrored;
    void evaluate(const data::Batch& batch, train::Sums& sums) override {
      Mirrored::evaluate(batch, sums);
      mine = batch.first;
    }
    std::vector<train::Score> scores(const train::Sums& sums) const override {
      std::vector<train::Score> all = Mirrored::scores(sums);
      all.push_back({"luck", mine == 0 ? 0.25 : 0.75});
      if (mine != 0 && more) all.push_back({"more", 1});
      return all;
    }
    int64_t mine = 0;
    bool more = false;
  };
  struct More : ByRank {
    explicit More(int64_t width) : ByRank(width) { more = true; }
  };
  registry_.add_whole_task("by_rank", "wrong", [] { return std::make_unique<ByRank>(4); });
  registry_.add_whole_task("more", "wrong", [] { return std::make_unique<More>(4); });
  configure(R"({"data": {"name": "points"}, "task": {"name": "by_rank"}, "epochs": 1})");
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the task's score luck is 0.75 on rank 1 and 0.25 on rank 0; scores follow from the sums"));
  EXPECT_GT(train(1).steps, 0);
  config_.task.name = "more";
  EXPECT_THAT(error_of([&] { train(2); }),
              HasSubstr("the scores of an evaluation are loss luck more, and those of rank 0 loss luck"));
}

// They are keys of metrics.jsonl and words of the line `done:`; one that is no text would end the run at its first
// line.
TEST_F(OwnRun, NamesOfScoresAreDifferentWordsAndStayTheSame) {
  struct Named : Mirrored {
    explicit Named(std::vector<std::string> names) : Mirrored(4), names(std::move(names)) {}
    std::vector<train::Score> scores(const train::Sums& sums) const override {
      std::vector<train::Score> all;
      for (const std::string& name : names) all.push_back({name, sums["loss"], false});
      if (names[0] == "more" && sums["count"] > 0) all.push_back({"later", 0});
      return all;
    }
    std::vector<std::string> names;
  };
  auto refusal = [&](const std::string& task, std::vector<std::string> names) {
    registry_.add_whole_task(task, "named", [names] { return std::make_unique<Named>(names); });
    configure(R"({"data": {"name": "points"}, "steps": 1})", {"task.name=" + task});
    return error_of([&] { train(2); });
  };
  EXPECT_THAT(refusal("a", {"\xff"}), HasSubstr("a name is one word of UTF-8, without '='"));
  EXPECT_THAT(refusal("b", {"a\nb"}), HasSubstr("task 'b' has a score that is named 'a\nb'"));
  EXPECT_THAT(refusal("c", {"a b"}), HasSubstr("one word"));
  EXPECT_THAT(refusal("d", {""}), HasSubstr("one word"));
  EXPECT_THAT(refusal("e", {"same", "same"}), HasSubstr("task 'e' has two scores that are named 'same'"));
  EXPECT_FALSE(std::filesystem::exists(config_.runs)) << "refused before anything is made";
  EXPECT_THAT(refusal("f", {"more"}), HasSubstr("the task's scores are more later, and were more before"));
  EXPECT_EQ(refusal("g", {"größe", "mse/m²"}), "no error");
}

}  // namespace
}  // namespace shardgrad
