// Text from a run and from a Hugging Face folder: the same on any number of ranks, streamed, with its speed told.

#include <shardgrad/train/export_run.h>
#include <shardgrad/train/generate_run.h>

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
