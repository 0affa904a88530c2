// A byte-level BPE is learned as its definition says, and is a function of the texts alone.

#include <shardgrad/train/text/bpe_trainer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/text/tokenizers.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LearnedBpe : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::Pattern::available()) GTEST_SKIP() << "built without PCRE2";
  }
  static text::NewBpe learn(const std::vector<std::string>& texts, int64_t vocab_size,
                            std::vector<std::string> special = {}) {
    text::BpeTrainer trainer({vocab_size, std::move(special)});
    for (const std::string& text : texts) trainer.add(text);
    return trainer.train();
  }
  // What was learned beyond the bytes.
  static std::vector<std::string> tokens(const text::NewBpe& bpe) {
    return {bpe.tokens.begin() + 256, bpe.tokens.end()};
  }
};

// low 5 times, lower 2, widest 3, newest 6, as in Sennrich, Haddow and Birch (2016), each with the space before it.
TEST_F(LearnedBpe, TheMostFrequentPairIsMergedFirst) {
  std::string text;
  for (auto [word, count] : {std::pair(" low", 5), {" lower", 2}, {" widest", 3}, {" newest", 6}})
    for (int i = 0; i < count; ++i) text += word;
  // es and st 9 times, of which e has the smaller number; est 9. Then " l", "lo" and "ow" 7, and of the latter two,
  // once " l" is one token, o has the smaller number.
  EXPECT_THAT(tokens(learn({text}, 256 + 5)), ElementsAre("es", "est", " l", "ow", " low"));
}

TEST_F(LearnedBpe, OfEquallyFrequentPairsTheSmallerIdsAreFirst) {
  EXPECT_THAT(tokens(learn({"dc dc ba ba"}, 256 + 4)), ElementsAre(" b", "dc", " ba")) << "and no other pair twice";
}

TEST_F(LearnedBpe, OverlappingPairsAreMergedFromTheLeft) {
  text::NewBpe bpe = learn({"aaaaa", "aaaaa"}, 256 + 3);
  EXPECT_THAT(tokens(bpe), ElementsAre("aa", "aaa", "aaaaa"));
  auto tokenizer = text::bpe_tokenizer("t", text::bpe_json(bpe));
  EXPECT_EQ(tokenizer->encode("aaaaaaa"), (std::vector<int64_t>{256, 258}));
}

TEST_F(LearnedBpe, NothingIsLearnedAcrossWordsTextsOrSpecialTokens) {
  text::NewBpe bpe = learn({"ab<|end|>ab<|end|>", "ab<|end|>ab 12 12"}, 300, {"<|end|>"});
  EXPECT_THAT(tokens(bpe), ElementsAre("ab", " 1", " 12")) << "and then no pair stands twice";
  EXPECT_EQ(bpe.special, std::vector<std::string>{"<|end|>"});
  auto tokenizer = text::bpe_tokenizer("t", text::bpe_json(bpe));
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->encode("ab<|end|>", {.parse_special = true}), (std::vector<int64_t>{256, 259}));
}

// No two pairs make the same bytes, for a pair is merged wherever it stands.
TEST_F(LearnedBpe, EveryTokenIsLearnedOnce) {
  std::string text;
  for (uint64_t i = 0; i < 4000; ++i) {
    auto [length, a, b, c] = philox(1, i, 0);
    text += ' ' + std::string(1 + length % 9, char('a' + a % 2)) + std::string(b % 5, char('a' + c % 2));
  }
  std::vector<std::string> all = tokens(learn({text}, 256 + 60));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

TEST_F(LearnedBpe, TheOrderOfTextsChangesNothing) {
  std::vector<std::string> texts{"the cat sat on the mat", "a rat and the bat", "that cat sat",
                                 "naïve café, naïve café"};
  std::string one = text::bpe_json(learn(texts, 290));
  std::ranges::reverse(texts);
  EXPECT_EQ(text::bpe_json(learn(texts, 290)), one);
}

TEST_F(LearnedBpe, AVocabularyWithoutRoomIsRefused) {
  EXPECT_THAT(error_of([] { learn({"a"}, 256, {"<|end|>"}); }),
              HasSubstr("the vocabulary is to have 256 tokens; 256 bytes and 1 special ones take 257"));
  EXPECT_THAT(error_of([] { learn({"a"}, int64_t(1) << 40); }), HasSubstr("are the most"));
  EXPECT_THAT(error_of([] { learn({"a"}, 300, {"x", "x"}); }), HasSubstr("special tokens must differ"));
  EXPECT_THAT(error_of([] { learn({"a"}, 300, {""}); }), HasSubstr("none may be empty"));
}

TEST_F(LearnedBpe, AnyBytesAreATextToLearnFrom) {
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += char(i * i + i / 7);
  auto tokenizer = text::bpe_tokenizer("t", text::bpe_json(learn({bytes, "", std::string(2, '\0')}, 400)));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  EXPECT_LT(tokenizer->encode(bytes).size(), bytes.size());
}

}  // namespace
}  // namespace shardgrad
