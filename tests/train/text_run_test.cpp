// Runs on texts: the same on any number of ranks, and the tokenizer stays with them.

#include <shardgrad/nn/embedding.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/checkpoint/run_lock.h>
#include <shardgrad/train/evaluate_run.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/text/bpe_file.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;

struct WhatFollows : nn::Module {  // depends on a token alone
  nn::Child<nn::Embedding> next;
  explicit WhatFollows(int64_t vocabulary) : next(child<nn::Embedding>("next", vocabulary, vocabulary)) {}
  Tensor forward(const Tensor& tokens) { return next(tokens); }
};
struct WhatFollowsOptions {
  int64_t vocabulary = 256;
  void list(train::OptionList& options) { options.add("vocabulary", vocabulary, "ids", {.low = 1}); }
};

class TextRun : public TrainerTest {
 protected:
  TextRun() {
    auto registry = std::make_shared<train::Registry>();
    registry->add_model<WhatFollowsOptions>("what_follows", "a table of pairs", [](const WhatFollowsOptions& o) {
      return nn::make<WhatFollows>(o.vocabulary);
    });
    config_.registry = registry;
    std::string text;
    for (int i = 0; i < 60; ++i) text += concat("Line ", i, " of a text that is learned by heart.\n");
    folder_.write("a.txt", text);
    config_.data = {"text", {{"path", nlohmann::json(folder_ / "a.txt").dump()}, {"length", "16"}}};
    config_.model = {"what_follows", {}};
    config_.task = {"next_token", {}};
    config_.optimizer.lr = 0.1;
    config_.batch = 8;
    config_.epochs = 2;
  }
  // A tokenizer of its own for the run: bytes, and these.
  void write_tokenizer(const std::vector<std::string>& special) {
    text::NewBpe bpe{.tokens = {}, .special = special, .cuts = false};
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
    folder_.write("tokenizer.json", text::bpe_json(bpe));
    config_.data.options["tokenizer"] = nlohmann::json(folder_ / "tokenizer.json").dump();
    config_.model.options["vocabulary"] = std::to_string(256 + special.size());
  }
  std::string refusal(int ranks) {
    return error_of([&] { train(ranks); });
  }
};

TEST_F(TextRun, AnyNumberOfRanksTrainsTheSameRun) {
  double alone = train(1).scores.at(0).value;
  EXPECT_LT(alone, 3.5) << "nats per token; 5.5 is chance";
  for (int ranks : {2, 4}) EXPECT_NEAR(train(ranks).scores.at(0).value, alone, 1e-5);
}

TEST_F(TextRun, TheRunsFolderHasItsTokenizer) {
  train::Result bytes = train(2);
  auto kept = train::kept_tokenizer(bytes.folder);
  EXPECT_EQ(kept->vocab_size(), 256);
  EXPECT_EQ(kept->encode("a\xff"), (std::vector<int64_t>{'a', 255}));
  write_tokenizer({"<|endoftext|>", "<end>"});
  folder_.write("tokenizer_config.json", R"({"eos_token": "<end>"})");
  config_.data.options["tokenizer"] = nlohmann::json(folder_.path()).dump();
  train::Result run = train(1);
  EXPECT_EQ(train::kept_tokenizer(run.folder)->json(), read_file(folder_ / "tokenizer.json"));
  std::string checkpoint = train::last_checkpoint(run.folder).folder.value();
  EXPECT_EQ(train::kept_tokenizer(checkpoint)->eos(), 257) << "as the folder said";
  EXPECT_THAT(error_of([&] { train::kept_tokenizer(folder_.path() + "/runs"); }),
              HasSubstr("no tokenizer is kept in '"));
}

TEST_F(TextRun, ARunDoesNotGoOnWithAnotherTokenizer) {
  write_tokenizer({"<a>"});
  std::string run = train(2).folder;
  config_.resume = true;
  config_.epochs = 3;
  write_tokenizer({"<b>"});  // all tokens of the text are the same
  EXPECT_THAT(refusal(2), HasSubstr(concat("'", run, "' was trained with another tokenizer than data.tokenizer, '")));
  EXPECT_THAT(refusal(2), HasSubstr(concat("go on with data.tokenizer=", run, "/tokenizer.json")));
  config_.data.options["tokenizer"] = nlohmann::json(run + "/tokenizer.json").dump();
  EXPECT_EQ(refusal(2), "no error");
  EXPECT_THAT(out_.str(), HasSubstr("goes on after step"));
}

// It is the other one's, and goes on.
TEST_F(TextRun, ARunThatIsRefusedChangesNoTokenizer) {
  write_tokenizer({"<a>"});
  std::string run = config_.runs + "/" + config_.name;
  std::filesystem::create_directories(run);
  std::ofstream(run + "/tokenizer.json") << "of the run that has the lock";
  {
    train::RunLock other(run);
    config_.resume = true;
    EXPECT_THAT(refusal(2), HasSubstr("is being written by another job"));
  }
  EXPECT_EQ(read_file(run + "/tokenizer.json"), "of the run that has the lock");
  config_.resume = false;
  config_.name = "new";
  config_.keep = 1 << 30;  // there is no room for as many
  EXPECT_THAT(refusal(2), HasSubstr("cannot take"));
  EXPECT_FALSE(std::filesystem::exists(config_.runs + "/new"));
}

// The first run was killed before it had saved anything: nothing was trained by its tokenizer.
TEST_F(TextRun, AFolderWithoutACheckpointGetsTheTokenizerOfTheRunThatBegins) {
  std::filesystem::create_directories(config_.runs + "/" + config_.name);
  std::ofstream(config_.runs + "/" + config_.name + "/tokenizer.json") << "half of ano";
  config_.resume = true;
  EXPECT_EQ(train::kept_tokenizer(train(2).folder)->vocab_size(), 256);
}

TEST_F(TextRun, AnEvaluationByAnotherTokenizerIsRefused) {
  write_tokenizer({"<a>"});
  std::string run = train(1).folder;
  auto evaluate = [&] {
    dist::run_ranks(1, [&](dist::ProcessGroup& world) { train::evaluate_run(config_, run, world, out_); });
  };
  EXPECT_EQ(error_of(evaluate), "no error");
  write_tokenizer({"<b>"});
  EXPECT_THAT(error_of(evaluate), HasSubstr("data 'text' has other tokenizer than"));
}

}  // namespace
}  // namespace shardgrad
