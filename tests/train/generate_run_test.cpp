// Text from a run and from a Hugging Face folder: the same on any number of ranks, streamed, with its speed told.

#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/export_run.h>
#include <shardgrad/train/generate_run.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/text/bpe_file.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TextOfARun : public TrainerTest {
 protected:
  TextOfARun() {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "A text that is learned by heart.\n";
    folder_.write("a.txt", text);
    config_.data = {"text", {{"path", nlohmann::json(folder_ / "a.txt").dump()}, {"length", "48"}}};
    config_.model = {
        "gpt2", {{"n_embd", "32"}, {"n_layer", "2"}, {"n_head", "2"}, {"n_positions", "64"}, {"vocab_size", "256"}}};
    config_.task = {"next_token", {}};
    config_.optimizer.lr = 0.01;
    config_.batch = 4;
    config_.epochs = 40;
  }
  struct Texts {
    std::string out, notes;
  };
  Texts generate(const std::string& from, const train::TextRequest& request, int ranks = 1) {
    std::ostringstream out, notes;
    auto body = [&](dist::ProcessGroup& world) {
      std::ostringstream unused;
      bool first = world.rank() == 0;
      train::generate_run(config_, from, world, request, first ? out : unused, first ? notes : unused);
      EXPECT_EQ(unused.str(), "");
    };
    dist::run_ranks(ranks, body, {.threads = 1});
    return {out.str(), notes.str()};
  }
  const train::TextRequest greedy_{.prompts = {"A text"}, .options = {.tokens = 40, .sampling = {.temperature = 0}}};
};

TEST_F(TextOfARun, WhatWasLearnedIsSaidOnAnyNumberOfRanksAndFromAHuggingFaceFolder) {
  std::string run = train(1).folder;
  Texts alone = generate(run, greedy_);
  EXPECT_EQ(alone.out, "A text that is learned by heart.\nA text that i\n");
  EXPECT_THAT(alone.notes, HasSubstr("first token after "));
  EXPECT_THAT(alone.notes, HasSubstr(" tokens/s, 40 tokens"));
  for (const char* strategy : {"zero3", "ddp"}) {
    config_.strategy = strategy;
    EXPECT_EQ(generate(run, greedy_, 2).out, alone.out) << strategy;
  }
  train::TextRequest narrow = greedy_;
  narrow.dtype = DType::bf16;
  EXPECT_EQ(generate(run, narrow).out, alone.out);
  train::export_run(config_, run, folder_ / "hf");
  EXPECT_EQ(generate(folder_ / "hf", greedy_).out, alone.out);
  std::string checkpoint = *train::latest_checkpoint(run);
  EXPECT_EQ(generate(checkpoint, greedy_).out, alone.out);
  for (const std::string& from : {run, run + "/", checkpoint, checkpoint + "/"})
    EXPECT_TRUE(std::filesystem::equivalent(train::run_of(from), run)) << from;
}

// What was saved in f32 is converted a piece at a time: no shard of f32 stays beside weights of 16 bits.
TEST_F(TextOfARun, WeightsOf16BitsAreTheOnlyOnes) {
  std::string run = train(1).folder;
  train::export_run(config_, run, folder_ / "hf");
  train::TextRequest narrow = greedy_;
  narrow.dtype = DType::bf16;
  config_.strategy = "zero3";
  const int64_t count = 256 * 32 + 64 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32;
  for (const std::string& from : {run, folder_ / "hf"})
    for (int ranks : {1, 2})
      dist::run_ranks(ranks,
                      [&](dist::ProcessGroup& world) {
                        std::ostringstream out, notes;
                        train::generate_run(config_, from, world, narrow, out, notes);
                        const Ledger& ledger = context().ledger();
                        double shard = double(ledger.peak(Category::parameter_shard)), whole = 2 * double(count);
                        EXPECT_NEAR(shard, whole / ranks, 0.01 * whole) << from << ", but for padding";
                        EXPECT_LT(ledger.peak(Category::other), 4 * count) << "as much as in f32, from " << from;
                        if (ranks == 1) {
                          EXPECT_EQ(ledger.peak(Category::gathered_parameter), 0);
                        }
                      },
                      {.threads = 1});
}

// With a tokenizer that has such a token.
TEST_F(TextOfARun, AnExportedFolderSaysWhereTextsEnd) {
  text::NewBpe bpe{.tokens = {}, .special = {"<|endoftext|>"}, .cuts = false};
  for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
  folder_.write("ends.json", text::bpe_json(bpe));
  config_.data.options["tokenizer"] = nlohmann::json(folder_ / "ends.json").dump();
  config_.model.options["vocab_size"] = "257";
  config_.epochs = 1;
  train::export_run(config_, train(1).folder, folder_ / "hf");
  EXPECT_EQ(train::hf::read_token_ids(folder_ / "hf"), (train::hf::TokenIds{{"eos_token_id", "256"}}));
}

TEST_F(TextOfARun, SeveralPromptsAreEachAWhole) {
  std::string run = train(1).folder;
  train::TextRequest two = greedy_;
  two.prompts = {"A text", "learned"};
  two.options.tokens = 10;
  EXPECT_EQ(generate(run, two).out, "A text that is l\n\nlearned by heart.\n");
}

TEST_F(TextOfARun, WhatHasNoTextIsRefused) {
  config_.epochs = 1;
  std::string run = train(1).folder;
  train::TextRequest request = greedy_;
  request.options.tokens = 100;
  EXPECT_THAT(error_of([&] { generate(run, request); }), HasSubstr("100 tokens after a prompt of 6"));
  std::filesystem::remove(run + "/tokenizer.json");
  EXPECT_THAT(error_of([&] { generate(run, greedy_); }), HasSubstr("no tokenizer is kept in"));
  EXPECT_THAT(error_of([&] { generate(folder_ / "nowhere", greedy_); }), HasSubstr("nowhere"));
}

}  // namespace
}  // namespace shardgrad
