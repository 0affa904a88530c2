// Texts as training data.

#include <shardgrad/train/data/text_data.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/train/data/tokens.h>
#include <shardgrad/train/text/bpe_file.h>
#include <shardgrad/train/text/tokenizers.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::Splits;
using ::testing::HasSubstr;

class TextData : public ::testing::Test {
 protected:
  Splits read(const std::string& text) {
    folder_.write("a.txt", text);
    options_.path = {folder_ / "a.txt"};
    return data::read_text(options_);
  }
  std::string refusal(const std::string& text) {
    return error_of([&] { read(text); });
  }
  static std::string letters(const data::Dataset& dataset, int64_t sample, size_t field) {
    auto ids = dataset.fetch(std::vector<int64_t>{sample})[field].to_vector<int64_t>();
    return {ids.begin(), ids.end()};
  }
  // A tokenizer without a pattern, so that every build has it: "ab" is 256, <|endoftext|> 257, then as many as are
  // asked for.
  void write_tokenizer(int more = 0) {
    text::NewBpe bpe{.tokens = {}, .merges = {{'a', 'b', 256}}, .special = {"<|endoftext|>"}, .cuts = false};
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
    bpe.tokens.emplace_back("ab");
    for (int i = 0; i < more; ++i) bpe.special.push_back(concat("<", i, ">"));
    folder_.write("tokenizer.json", text::bpe_json(bpe));
    options_.tokenizer = folder_.path();
  }

  Context context_;
  TemporaryFolder folder_;
  data::TextOptions options_{.length = 3};
};

TEST_F(TextData, TheTargetIsWhatFollowsAndTheTestIsTheEnd) {
  options_.test_share = 0.3;
  Splits data = read("abcdefghijk");  // three windows, and one that would lack its last target
  EXPECT_EQ(data.classes, 256);
  ASSERT_EQ(data.train->size(), 2);
  EXPECT_EQ(letters(*data.train, 0, 0), "abc");
  EXPECT_EQ(letters(*data.train, 0, 1), "bcd");
  EXPECT_EQ(letters(*data.train, 1, 0), "def");
  ASSERT_EQ(data.test->size(), 1) << "a window's boundary";
  EXPECT_EQ(letters(*data.test, 0, 0), "ghi");
  EXPECT_EQ(letters(*data.test, 0, 1), "hij");
  EXPECT_EQ(data.tokenizer->name(), "bytes");
  EXPECT_EQ(data.fields()[1], (data::Field{{3}, DType::i64, 256, 1.0}));
}

TEST_F(TextData, FilesFollowEachOtherWithTheEndOfTextBetween) {
  write_tokenizer();
  folder_.write("b.txt", "cab");
  folder_.write("c.txt", "aab<|endoftext|>x");
  options_.length = 5;
  options_.test = {folder_ / "c.txt"};
  folder_.write("a.txt", "xaby");
  options_.path = {folder_ / "a.txt", folder_ / "b.txt"};
  auto windows = [&] { return data::read_text(options_); };
  Splits data = windows();
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(data.train->fetch(Ids{0})[0].to_vector<int64_t>(), (Ids{'x', 256, 'y', 257, 'c'}));
  EXPECT_EQ(data.train->fetch(Ids{0})[1].to_vector<int64_t>(), (Ids{256, 'y', 257, 'c', 256}));
  EXPECT_EQ(data.test->fetch(Ids{0})[0].to_vector<int64_t>(), (Ids{'a', 256, '<', '|', 'e'}));
  EXPECT_DOUBLE_EQ(data.bytes_per_token, 16.0 / 15) << "ab, and fourteen of one byte";
  options_.parse_special = true;
  options_.length = 2;
  data = windows();
  EXPECT_EQ(data.test->fetch(Ids{0})[1].to_vector<int64_t>(), (Ids{256, 257}));
  EXPECT_DOUBLE_EQ(data.bytes_per_token, 1) << "ab, and the end of a text, which is none of its bytes";
}

TEST_F(TextData, IdsAreHeldInTwoBytesWhereTheyFit) {
  std::string text(40'000, 'a');
  int64_t before = context().ledger().current(Category::data);
  {
    Splits data = read(text);
    EXPECT_EQ(context().ledger().current(Category::data) - before, 80'000);
  }
  write_tokenizer(66'000);
  Splits data = read(text + "<65999>");
  EXPECT_EQ(context().ledger().current(Category::data) - before, 160'028) << "40,007 ids of four bytes";
}

TEST_F(TextData, AnyBytesAreAText) {
  for (int tokenizers = 0; tokenizers < 2; ++tokenizers) {
    std::string text("a\0b\xff\xfe\xc3\x28\0\0zzzz", 13);
    Splits data = read(text);
    EXPECT_EQ(letters(*data.train, 1, 0), "\xff\xfe\xc3");
    write_tokenizer();
  }
}

TEST_F(TextData, TheFingerprintIsOfTextTokenizerAndLength) {
  auto fingerprint = [&](const std::string& text) { return read(text).train->fingerprint(); };
  uint64_t before = fingerprint("abcdefghijk");
  EXPECT_EQ(fingerprint("abcdefghijk"), before);
  EXPECT_NE(fingerprint("abcdeXghijk"), before);
  options_.length = 2;
  EXPECT_NE(fingerprint("abcdefghijk"), before);
  options_.length = 3;
  write_tokenizer();
  EXPECT_NE(fingerprint("abcdefghijk"), before);
}

TEST_F(TextData, WhatIsNoTextToTrainOnIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("a.txt' is empty; it must hold a text"));
  EXPECT_THAT(refusal("abcdef"), HasSubstr("a.txt' has 6 tokens; 2 samples of length 3 and the token after take 7"));
  options_.test = {folder_ / "nothing.txt"};
  EXPECT_THAT(refusal("abcdefg"), HasSubstr("cannot read '" + (folder_ / "nothing.txt") + "': No such file"));
  options_.test = {folder_.path()};
  EXPECT_THAT(refusal("abcdefg"), HasSubstr("it is a folder; name the file"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  options_.test = {folder_ / "pipe"};
  EXPECT_THAT(refusal("abcdefg"), HasSubstr("it is no regular file"));
  folder_.write("short", "abc");
  options_.test = {folder_ / "short"};
  EXPECT_THAT(refusal("abcdefg"), HasSubstr("short' has 3 tokens; 1 sample of length 3"));
  options_.test = {};
  options_.tokenizer = folder_ / "short";
  EXPECT_THAT(refusal("abcdefg"), HasSubstr("short' as a tokenizer: it is no tokenizer.json"));
  folder_.write("b.txt", "abc");
  options_ = {.path = {folder_ / "b.txt", folder_ / "b.txt"}, .length = 9};
  EXPECT_THAT(error_of([&] { data::read_text(options_); }), HasSubstr("b.txt' and 1 more has 6 tokens; 2 samples"));
}

// The files of tokens, by their tokenizer.
TEST_F(TextData, TokensOfAKnownTokenizerAreHeldToItsVocabulary) {
  write_tokenizer();
  auto tokens = [&](std::vector<uint16_t> ids, int64_t vocabulary = 0) {
    folder_.write("t.bin", {reinterpret_cast<const char*>(ids.data()), ids.size() * 2});
    return data::read_tokens(
        {.train = folder_ / "t.bin", .length = 1, .vocabulary = vocabulary, .tokenizer = folder_.path()});
  };
  Splits data = tokens({1, 2, 256});
  EXPECT_EQ(data.classes, 258);
  EXPECT_EQ(data.bytes_per_token, 2);
  EXPECT_EQ(data.tokenizer->eos(), 257);
  EXPECT_THAT(error_of([&] { tokens({1, 258, 2}); }), HasSubstr("token 1 is 258, and the vocabulary has 258 ids"));
  EXPECT_EQ(tokens({1, 2, 256}, 320).classes, 320) << "a padded vocabulary";
  EXPECT_EQ(tokens({1, 2, 256}, 320).bytes_per_token, 2);
  EXPECT_THAT(error_of([&] {
                tokens({1, 2, 258}, 320);
              }),
              HasSubstr("token 2 is 258, and the vocabulary has 258 ids"))
      << "whose bytes nobody knows";
  EXPECT_THAT(error_of([&] { tokens({1, 2, 256}, 256); }), HasSubstr("token 2 is 256, and the vocabulary has 256 ids"));
}

}  // namespace
}  // namespace shardgrad
