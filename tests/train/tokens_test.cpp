// Files of tokens as training data.

#include <shardgrad/train/data/tokens.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <filesystem>
#include <limits>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/data_file.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::Splits;
using data::TokenOptions;
using ::testing::HasSubstr;

class Tokens : public ::testing::Test {
 protected:
  template <class T> static std::string raw(const std::vector<int64_t>& ids) {
    std::vector<T> narrow(ids.begin(), ids.end());
    return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(T)};
  }
  static std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
    std::vector<int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    return std::string(reinterpret_cast<const char*>(header.data()), 1024) + tokens;
  }
  Splits read(const std::string& train, const std::string& test = "") {
    folder_.write("train.bin", train);
    options_.train = folder_ / "train.bin";
    if (!test.empty()) {
      folder_.write("test.bin", test);
      options_.test = folder_ / "test.bin";
    }
    return data::read_tokens(options_);
  }
  std::string refusal(const std::string& train, const std::string& test = "") {
    return error_of([&] { read(train, test); });
  }
  static std::vector<int64_t> values(const data::Dataset& dataset, int64_t sample, size_t field) {
    return dataset.fetch(std::vector<int64_t>{sample})[field].to_vector<int64_t>();
  }

  Context context_;
  TemporaryFolder folder_;
  TokenOptions options_{.length = 3};
};

using Ids = std::vector<int64_t>;

TEST_F(Tokens, TheTargetIsWhatFollows) {
  Splits data = read(raw<uint16_t>({5, 1, 4, 2, 8, 3, 7, 9}), raw<uint16_t>({1, 2, 3, 65535}));
  const data::Dataset& train = *data.train;
  EXPECT_EQ(train.fields(), (std::vector<data::Field>{{{3}, DType::i64}, {{3}, DType::i64}}));
  ASSERT_EQ(train.size(), 2) << "the ninth token would be the target of a third sample's first";
  EXPECT_EQ(values(train, 0, 0), (Ids{5, 1, 4}));
  EXPECT_EQ(values(train, 0, 1), (Ids{1, 4, 2}));
  EXPECT_EQ(values(train, 1, 0), (Ids{2, 8, 3}));
  EXPECT_EQ(values(train, 1, 1), (Ids{8, 3, 7}));
  EXPECT_EQ(values(*data.test, 0, 1), (Ids{2, 3, 65535}));
  EXPECT_EQ(data.classes, 65536) << "one more than the largest id of both";
  EXPECT_EQ(train.fetch(Ids{1, 0})[0].to_vector<int64_t>(), (Ids{2, 8, 3, 5, 1, 4}));
}

TEST_F(Tokens, WithoutATestFileTheLastSamplesAreTheTest) {
  options_.length = 1;
  options_.test_share = 0.25;
  Splits data = read(raw<uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_EQ(values(*data.test, 0, 0), Ids{6});
  options_.test_share = 0.001;
  EXPECT_EQ(read(raw<uint16_t>({0, 1, 2})).test->size(), 1) << "one is the least";
  options_.test_share = 0.999;
  EXPECT_EQ(read(raw<uint16_t>({0, 1, 2})).train->size(), 1);
}

TEST_F(Tokens, WideTokensAndLlmcsHeadersAreRead) {
  Ids ids{1, 70'000, 3, 4'000'000'000};
  options_.token_bytes = 4;
  EXPECT_EQ(values(*read(raw<uint32_t>(ids), raw<uint32_t>(ids)).train, 0, 1), (Ids{70'000, 3, 4'000'000'000}));
  std::string narrow = raw<uint16_t>({9, 8, 7, 6});
  EXPECT_EQ(values(*read(llmc(20240520, 1, 4, narrow), llmc(20240520, 1, 4, narrow)).train, 0, 0), (Ids{9, 8, 7}))
      << "the header says how wide tokens are";
  options_.token_bytes = 2;
  EXPECT_EQ(values(*read(llmc(20240801, 7, 4, raw<uint32_t>(ids)), narrow).train, 0, 1),
            (Ids{70'000, 3, 4'000'000'000}));
}

TEST_F(Tokens, ArraysOfIntegersAreRead) {
  auto array = [](const char* descr, const char* shape, const std::string& elements) {
    std::string header = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ", shape, ", }\n");
    return std::string("\x93NUMPY\1\0", 8) + char(header.size()) + '\0' + header + elements;
  };
  auto train_on = [&](const std::string& file) {
    folder_.write("t.npy", file);
    options_.train = folder_ / "t.npy";
    return data::read_tokens(options_);
  };
  Ids ids{7, 1, 200, 3, 9, 9, 9, 9};
  for (const auto& [descr, bytes] : std::map<const char*, std::string>{{"|u1", raw<uint8_t>(ids)},
                                                                       {"<u2", raw<uint16_t>(ids)},
                                                                       {"<u4", raw<uint32_t>(ids)},
                                                                       {"<i4", raw<int32_t>(ids)},
                                                                       {"<i8", raw<int64_t>(ids)}}) {
    Splits data = train_on(array(descr, "(8,)", bytes));
    EXPECT_EQ(values(*data.train, 0, 1), (Ids{1, 200, 3})) << descr;
    EXPECT_EQ(data.classes, 201) << descr;
  }
  options_.length = 1;
  EXPECT_EQ(values(*train_on(array("<u4", "(3,)", raw<uint32_t>({1, 4'000'000'000, 2}))).train, 0, 1),
            Ids{4'000'000'000});
  auto refused = [&](const std::string& file) { return error_of([&] { train_on(file); }); };
  EXPECT_THAT(refused(array("<i4", "(8,)", raw<int32_t>({1, 2, 3, -4, 5, 6, 7, 8}))),
              HasSubstr("t.npy': token 3 is -4; the numbers of tokens are 0 or more"));
  EXPECT_THAT(refused(array("<i8", "(3,)", raw<int64_t>({1, INT64_MAX, 2}))),
              HasSubstr("t.npy': token 1 is 9223372036854775807, which is larger than any vocabulary"));
  EXPECT_THAT(refused(array("<i4", "(4, 2)", raw<int32_t>(ids))),
              HasSubstr("has shape [4, 2]; the numbers of tokens lie in"));
  EXPECT_THAT(refused(array("<f4", "(8,)", raw<float>(ids))), HasSubstr("t.npy' holds no integers"));
  EXPECT_THAT(refused(array("|b1", "(8,)", raw<uint8_t>(ids))), HasSubstr("t.npy' holds no integers"));
  EXPECT_THAT(refused("no array"), HasSubstr("t.npy' as an array: "));
}

TEST_F(Tokens, AnIdThatIsNotInTheVocabularyIsRefusedWithItsPlace) {
  options_.vocabulary = 10;
  EXPECT_EQ(read(raw<uint16_t>({5, 1, 9, 2}), raw<uint16_t>({1, 2, 3, 4})).classes, 10);
  EXPECT_THAT(refusal(raw<uint16_t>({5, 1, 10, 2})),
              HasSubstr("train.bin': token 2 is 10, and the vocabulary has 10 ids"));
  Ids many(1'200'000, 3);
  many[5] = 7;
  many[1'100'000] = 11;
  EXPECT_THAT(refusal(raw<uint16_t>(many)), HasSubstr("token 1100000 is 11"));
  many[1'100'000] = 3;
  options_.vocabulary = 0;
  options_.test.clear();
  EXPECT_EQ(read(raw<uint16_t>(many)).classes, 8) << "of the first block";
  options_.vocabulary = -1;
  EXPECT_THAT(refusal(raw<uint16_t>(many)), HasSubstr("vocabulary is -1"));
}

TEST_F(Tokens, WhatIsNoFileOfTokensIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("is empty; it must hold the numbers of tokens"));
  EXPECT_THAT(refusal(std::string(15, 'x')), HasSubstr("holds 15 bytes of tokens, which is no multiple of 2"));
  EXPECT_THAT(refusal(raw<uint16_t>({1, 2, 3, 4, 5, 6})),
              HasSubstr("has 6 tokens; 2 samples of length 3 and the token after take 7"));
  EXPECT_THAT(refusal(raw<uint16_t>({1, 2, 3, 4}), raw<uint16_t>({1})),
              HasSubstr("has 1 tokens; 1 sample of length 3"));
  std::string tokens = raw<uint16_t>({1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(refusal(llmc(20240520, 2, 7, tokens)), HasSubstr("llm.c's header of version 2; 1 can be read"));
  EXPECT_THAT(refusal(llmc(20240520, 1, 9, tokens)), HasSubstr("announces 9 tokens, and 7 are there: it is truncated"));
  EXPECT_THAT(refusal(llmc(20240520, 1, -1, tokens)), HasSubstr("announces -1 tokens"));
  for (int64_t length : {int64_t(0), int64_t(-3), std::numeric_limits<int64_t>::max()}) {
    options_.length = length;
    EXPECT_THAT(refusal(tokens), HasSubstr("a sample has from 1 to"));
  }
  options_ = {.token_bytes = 3};
  EXPECT_THAT(refusal(tokens), HasSubstr("token_bytes is 3; tokens have 2 or 4 bytes"));
  options_ = {.train = folder_.path()};
  EXPECT_THAT(error_of([&] { data::read_tokens(options_); }), HasSubstr("it is a folder"));
}

// What stands in run.json of every run there is, which would not go on with another: worked out by another program.
TEST_F(Tokens, TheFingerprintIsThatOfTheRunsThatThereAre) {
  std::string text = raw<uint16_t>({0, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(read(text, text).train->fingerprint(), 0xfd6206a96eaf49ec);
}

TEST_F(Tokens, TheFingerprintIsOfWhatIsTrainedOn) {
  std::string text = raw<uint16_t>({0, 1, 2, 3, 4, 5, 6}), other = raw<uint16_t>({0, 1, 2, 3, 4, 5, 7});
  options_.length = 1;
  auto fingerprint = [&](const std::string& tokens) { return read(tokens, text).train->fingerprint(); };
  uint64_t before = fingerprint(text);
  EXPECT_EQ(fingerprint(text), before);
  EXPECT_NE(fingerprint(other), before);
  options_.length = 2;
  EXPECT_NE(fingerprint(text), before);
}

TEST_F(Tokens, ALargeFileIsReadAsItIsNeededAndMustNotChange) {
  folder_.write("train.bin", "");
  options_.train = folder_ / "train.bin";
  options_.length = 1024;
  std::filesystem::resize_file(options_.train, size_t(data::DataFile::kHeld) + 2);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  Splits data = data::read_tokens(options_);
  EXPECT_EQ(values(*data.train, data.train->size() - 1, 0), Ids(1024, 0));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 << 10) << "KiB";
  folder_.write("train.bin", "");
  EXPECT_THAT(error_of([&] { values(*data.train, 0, 0); }), HasSubstr("became shorter while it was read"));
}

// Whatever is in a file, it is read or refused.
TEST_F(Tokens, RandomChangesNeverCrash) {
  const std::string whole = llmc(20240520, 1, 9, raw<uint16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  int refused = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    std::string changed = whole;
    auto at = philox(3, i, 0);
    changed[at[0] % 12] = char(at[1]);
    if (at[2] % 3 == 0) changed.resize(at[3] % whole.size());
    try {
      read(changed);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

}  // namespace
}  // namespace shardgrad
