// Tokenizers encode as Hugging Face's do, decode what they encoded, and refuse what they would do otherwise.

#include <shardgrad/train/text/tokenizer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <numeric>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/text/bpe_file.h>
#include <shardgrad/train/text/byte_level.h>
#include <shardgrad/train/text/pattern.h>
#include <shardgrad/train/text/tokenizers.h>
#include <shardgrad/train/text/utf8.h>

#include "../fixtures/read.h"
#include "temporary_folder.h"

namespace shardgrad {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using text::Tokenizer;
using TokenIds = std::vector<int64_t>;

#define NEEDS_PATTERNS() \
  if (!text::Pattern::available()) GTEST_SKIP() << "built without PCRE2"

// Valid UTF-8, as Python shows it.
std::string shown(const std::string& bytes) {
  text::Utf8Stream stream;
  std::string text = stream.add(bytes);
  return text + stream.finish();
}

// What PyPI's `tokenizers` said of small tokenizers of many kinds: make_tokenizer_fixture.py.
class TokenizerKinds : public ::testing::Test {
 protected:
  // A file as that script completes it.
  json complete(const json& kind) const {
    json file = kind["file"], vocabulary = fixture_["vocab"], merges = json::array();
    bool unknown = file["model"]["unk_token"].is_string();
    auto gone = [&](const std::string& letters) {
      return unknown &&
             std::ranges::any_of(*text::from_letters(letters), [](char byte) { return uint8_t(byte) >= 0xC0; });
    };
    for (const json& pair : fixture_["merges"])
      if (!gone(pair[0].get<std::string>() + pair[1].get<std::string>())) merges.push_back(pair);
    if (unknown) {
      for (const auto& [name, id] : fixture_["vocab"].items())
        if (gone(name)) {
          vocabulary.erase(name);
          vocabulary[concat("<gone ", id.get<int>(), ">")] = id;
        }
      vocabulary["<unk>"] = 556;
    }
    // Tokens that no merge makes.
    if (file["model"]["ignore_merges"]) merges.erase(merges.end() - 50, merges.end());
    file["model"]["vocab"] = vocabulary;
    file["model"]["merges"] = merges;
    return file;
  }
  void expect_same(const Tokenizer& tokenizer, const json& kind) const {
    json as_letters = json::array();
    for (size_t i = 0; i < texts().size(); ++i) {
      const auto& text = texts()[i].get_ref<const std::string&>();
      TokenIds ids = tokenizer.encode(text, {.parse_special = true});
      EXPECT_EQ(json(ids), kind["ids"][i]) << text;
      EXPECT_EQ(shown(tokenizer.decode(ids)), kind["decoded"].is_null() ? texts()[i] : kind["decoded"][i]) << text;
      if (text.find("<|") != std::string::npos) as_letters.push_back(tokenizer.encode(text));
    }
    EXPECT_EQ(as_letters, kind["as_letters"]);
    EXPECT_EQ(json(tokenizer.encode("In the", {.add_special = true})), kind["add_special"]);
  }
  const json& texts() const { return fixture_["texts"]; }

  json fixture_ = test::fixture("tokenizers.json");
};

TEST_F(TokenizerKinds, AwkwardTextsAreEncodedAndDecodedAsByHuggingFacesTokenizers) {
  NEEDS_PATTERNS();
  for (const json& kind : fixture_["kinds"]) {
    SCOPED_TRACE(kind["name"]);
    expect_same(*text::bpe_tokenizer("t", complete(kind).dump()), kind);
  }
}

TEST_F(TokenizerKinds, MergesMayBeTextsAndAModelWithoutATypeIsBpe) {
  NEEDS_PATTERNS();
  json file = complete(fixture_["kinds"][0]);
  for (json& merge : file["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  file["model"]["merges"].insert(file["model"]["merges"].begin(), "#version: 0.2");
  file["model"].erase("type");
  expect_same(*text::bpe_tokenizer("t", file.dump()), fixture_["kinds"][0]);
}

// In small: what a text was, whatever it was, is what comes back.
TEST_F(TokenizerKinds, AnyBytesComeBack) {
  NEEDS_PATTERNS();
  auto tokenizer = text::bpe_tokenizer("t", complete(fixture_["kinds"][0]).dump());
  for (uint64_t i = 0; i < 300; ++i) {
    std::string bytes;
    for (uint64_t k = 0; k < 1 + philox(1, i, 0)[0] % 60; ++k) {
      auto [kind, value, a, b] = philox(2, i, k);
      bytes += kind % 3 == 0   ? std::string(1, char(value))
               : kind % 3 == 1 ? "the \xC3\xA9"
                               : std::string(1, char(a % 128));
    }
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
    EXPECT_EQ(text::byte_tokenizer()->decode(text::byte_tokenizer()->encode(bytes)), bytes);
  }
}

// A search for the best pair among all, after every merge, would take hours.
TEST_F(TokenizerKinds, AVeryLongWordIsNoTrouble) {
  NEEDS_PATTERNS();
  auto tokenizer = text::bpe_tokenizer("t", complete(fixture_["kinds"][0]).dump());
  std::string word;
  for (int i = 0; i < 300'000; ++i) word += char('a' + philox(5, 0, uint64_t(i))[0] % 3);
  TokenIds ids = tokenizer->encode(word);
  EXPECT_LT(ids.size(), 250'000U);
  EXPECT_EQ(tokenizer->decode(ids), word);
}

// A file of one word, which needs no pattern: so this holds in builds without PCRE2, too.
class TokenizerFiles : public ::testing::Test {
 protected:
  // a b ab abb <|endoftext|>
  static json small_file() {
    text::NewBpe bpe{
        .tokens = {}, .merges = {{'a', 'b', 256}, {256, 'b', 257}}, .special = {"<|endoftext|>"}, .cuts = false};
    for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
    bpe.tokens.insert(bpe.tokens.end(), {"ab", "abb"});
    return json::parse(text::bpe_json(bpe));
  }
  std::string refusal(const json& file) const {
    folder_.write("t.json", file.dump());
    return error_of([&] { text::load_tokenizer(folder_ / "t.json"); });
  }
  // Of the file with this in the place of something, given as a path in it.
  std::string refusal(const char* place, const json& value) const {
    json file = small_file();
    file[json::json_pointer(place)] = value;
    return refusal(file);
  }
  TemporaryFolder folder_;
};

TEST_F(TokenizerFiles, PairsAreMergedAsTheyWereLearned) {
  auto tokenizer = text::bpe_tokenizer("t", small_file().dump());
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->encode("abbab b"), (TokenIds{257, 256, ' ', 'b'}));
  EXPECT_EQ(tokenizer->encode(""), TokenIds{});
  EXPECT_EQ(tokenizer->token(257).bytes, "abb");
  EXPECT_EQ(tokenizer->find("abb"), 257);
  EXPECT_EQ(tokenizer->find("bb"), std::nullopt);
}

TEST_F(TokenizerFiles, SpecialTokensAreLettersUnlessToldOtherwise) {
  auto tokenizer = text::bpe_tokenizer("t", small_file().dump());
  EXPECT_EQ(tokenizer->encode("ab<|endoftext|>ab", {.parse_special = true}), (TokenIds{256, 258, 256}));
  EXPECT_EQ(tokenizer->encode("<|endoftext|>").size(), 13U);
  EXPECT_EQ(tokenizer->decode(TokenIds{256, 258, 256}), "abab");
  EXPECT_EQ(tokenizer->decode(TokenIds{256, 258, 256}, false), "ab<|endoftext|>ab");
  EXPECT_EQ(tokenizer->eos(), 258) << "by its name";
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->bytes_of_text(257), 3);
  EXPECT_EQ(tokenizer->bytes_of_text(258), 0);
}

TEST_F(TokenizerFiles, OnlyASpecialTokenEndsATextByItsName) {
  json file = small_file();
  file["added_tokens"][0]["special"] = false;
  auto tokenizer = text::bpe_tokenizer("t", file.dump());
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), TokenIds{258}) << "which is found in any text";
}

TEST_F(TokenizerFiles, BytesAreTheirOwnNumbers) {
  auto bytes = text::load_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab_size(), 256);
  EXPECT_EQ(bytes->name(), "bytes");
  EXPECT_EQ(bytes->encode(std::string("a\0\xff", 3)), (TokenIds{'a', 0, 255}));
  EXPECT_EQ(bytes->eos(), std::nullopt);
  std::string all(3000, '\0');
  std::iota(all.begin(), all.end(), '\0');
  auto read_again = text::bpe_tokenizer("t", bytes->json());
  EXPECT_EQ(read_again->encode(all), bytes->encode(all));
  EXPECT_EQ(read_again->vocab_size(), 256);
  EXPECT_EQ(text::bpe_tokenizer("t", read_again->json())->json(), bytes->json());
}

TEST_F(TokenizerFiles, AFolderSaysWhereTextsBeginAndEnd) {
  json file = small_file();
  for (const char* name : {"<s>", "<|im_end|>"})
    file["added_tokens"].push_back(
        {{"id", 259 + file["added_tokens"].size() - 1}, {"content", name}, {"special", true}});
  folder_.write("tokenizer.json", file.dump());
  EXPECT_EQ(text::load_tokenizer(folder_.path())->eos(), 258);
  folder_.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "<|im_end|>"})");
  auto tokenizer = text::load_tokenizer(folder_.path());
  EXPECT_EQ(tokenizer->bos(), 259);
  EXPECT_EQ(tokenizer->eos(), 260);
  EXPECT_EQ(tokenizer->name(), folder_ / "tokenizer.json");
  folder_.write("tokenizer_config.json", R"({"bos_token": 5, "eos_token": "nothing"})");
  EXPECT_EQ(text::load_tokenizer(folder_.path())->eos(), 258);
  folder_.write("tokenizer_config.json",
                R"({"eos_token": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  EXPECT_EQ(text::load_tokenizer(folder_.path())->eos(), 258);
  folder_.write("tokenizer_config.json", "[");
  EXPECT_THAT(error_of([&] { text::load_tokenizer(folder_.path()); }),
              HasSubstr("tokenizer_config.json' is no JSON object"));
}

TEST_F(TokenizerFiles, WhatWouldBeDoneOtherwiseIsRefusedByItsName) {
  EXPECT_EQ(refusal(small_file()), "no error");
  EXPECT_THAT(refusal("/normalizer", {{"type", "NFC"}}), HasSubstr("t.json' as a tokenizer: its normalizer is NFC"));
  EXPECT_EQ(refusal("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array()}}), "no error");
  EXPECT_THAT(refusal("/model/type", "WordPiece"), HasSubstr("its model is WordPiece; BPE is known here"));
  EXPECT_THAT(refusal("/model/byte_fallback", true), HasSubstr("its model has byte_fallback"));
  EXPECT_THAT(refusal("/model/dropout", 0.1), HasSubstr("its model has dropout"));
  EXPECT_EQ(refusal("/model/dropout", 0.0), "no error");
  EXPECT_THAT(refusal("/model/continuing_subword_prefix", "##"), HasSubstr("has continuing_subword_prefix"));
  EXPECT_THAT(refusal("/pre_tokenizer", {{"type", "Metaspace"}}), HasSubstr("its pre-tokenizer is Metaspace"));
  EXPECT_THAT(refusal("/pre_tokenizer", nullptr), HasSubstr("it has no pre-tokenizer"));
  EXPECT_THAT(refusal("/decoder", {{"type", "WordPiece"}}), HasSubstr("its decoder is WordPiece"));
  EXPECT_THAT(refusal("/decoder", nullptr), HasSubstr("it has no decoder"));
  EXPECT_THAT(refusal("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("its post-processor is BertProcessing"));
  EXPECT_THAT(refusal("/added_tokens/0/lstrip", true), HasSubstr("its added token '<|endoftext|>' has lstrip"));
  EXPECT_THAT(refusal("/added_tokens/0/content", "ab"),
              HasSubstr("its added token 'ab' has the id 258, and the one of that name in its vocabulary 256; they"));
}

TEST_F(TokenizerFiles, PatternsAndTheirUsesAreRefusedByTheirName) {
  NEEDS_PATTERNS();
  auto with = [&](const json& split) {
    json file = small_file();
    json last = file["pre_tokenizer"];
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array({split, last})}};
    return refusal(file);
  };
  json split{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(with(split), "no error");
  EXPECT_THAT(with({{"type", "ByteLevel"}}), HasSubstr("does not have ByteLevel once, as the last step"));
  split["behavior"] = "MergedWithNext";
  EXPECT_THAT(with(split), HasSubstr("Split has the behavior MergedWithNext"));
  split["behavior"] = "Removed";
  for (auto [pattern, part] :
       std::vector<std::pair<const char*, const char*>>{{"\\w+", "its pattern has '\\w'"},
                                                        {"\\h", "its pattern has '\\h'"},
                                                        {"[[:alpha:]]", "a class within a class"},
                                                        {"a{1,3}+", "its pattern has '}+'"},
                                                        {"a(", "cannot be read: missing closing"},
                                                        {"\\p{Nonsense}", "cannot be read: unknown property"},
                                                        {"\\", "its pattern ends with '\\'"}}) {
    split["pattern"]["Regex"] = pattern;
    EXPECT_THAT(with(split), HasSubstr(part));
  }
}

TEST_F(TokenizerFiles, ABuildWithoutPatternsSaysWhatIsMissing) {
  EXPECT_THAT(refusal("/pre_tokenizer/use_regex", true),
              HasSubstr(text::Pattern::available() ? "no error" : "this build has no PCRE2: install libpcre2-dev"));
}

TEST_F(TokenizerFiles, WhatIsNoTokenizerIsRefused) {
  EXPECT_THAT(refusal(json::array()), HasSubstr("it has no model; is it a tokenizer.json of Hugging Face?"));
  EXPECT_THAT(refusal("/model/vocab/a", 255), HasSubstr("two of its tokens have the id 255"));
  EXPECT_THAT(refusal("/model/vocab/a", -1), HasSubstr("the id of its token 'a' is -1; ids are from 0 to"));
  EXPECT_THAT(refusal("/model/vocab/a", 4'000'000'000), HasSubstr("the id of its token 'a' is 4000000000"));
  EXPECT_THAT(refusal("/model/vocab/a", "x"), HasSubstr("the id of its token 'a' is string"));
  EXPECT_THAT(refusal("/model/vocab", json::object()), HasSubstr("its vocabulary is empty"));
  EXPECT_THAT(refusal("/model/merges", json::array({"a b c"})), HasSubstr("its merge 'a b c' is no pair of tokens"));
  EXPECT_THAT(refusal("/model/merges", json::array({json::array({"a", "b", "c"})})),
              HasSubstr(R"(its merge ["a","b","c"] is no pair of tokens)"));
  EXPECT_THAT(refusal("/model/merges", json::array({"b a"})),
              HasSubstr("needs the token 'ba', which its vocabulary has not"));
  json nested = nullptr;
  for (int i = 0; i < 50; ++i) nested = {{"type", "Sequence"}, {"pretokenizers", json::array({nested})}};
  EXPECT_THAT(refusal("/pre_tokenizer", nested), HasSubstr("lie in each other more than 8 deep"));
  folder_.write("t.json", "{\"model\": ");
  EXPECT_THAT(error_of([&] { text::load_tokenizer(folder_ / "t.json"); }),
              HasSubstr("t.json' as a tokenizer: it is no tokenizer.json: "));
  std::string deep =
      std::string(100'000, '[') + std::string(100'000, ']');  // more than a stack holds, if it is followed
  folder_.write("t.json", R"({"model": {"vocab": {"a": )" + deep + "}}}");
  EXPECT_THAT(error_of([&] { text::load_tokenizer(folder_ / "t.json"); }),
              HasSubstr("the id of its token 'a' is array"));
  folder_.write("t.json", std::string(100'000, '['));
  EXPECT_THAT(error_of([&] { text::load_tokenizer(folder_ / "t.json"); }), HasSubstr("it is no tokenizer.json: "));
}

// By what it is, and not in the words of a JSON library.
TEST_F(TokenizerFiles, WhatIsOfAnotherKindIsSaidByItsName) {
  for (auto [place, value, words] : std::vector<std::tuple<const char*, json, const char*>>{
           {"/model", 5, "it has model of type number; that must be an object"},
           {"/model/merges", 5, "its model has merges of type number; that must be a list"},
           {"/model/vocab", json::array(), "its model has vocab of type array; that must be an object"},
           {"/model/merges/0", json::array({1, 2}), "its merge array is no pair of tokens"},
           {"/model/unk_token", 3, "its model has unk_token of type number; that must be a text"},
           {"/decoder", json::object(), "one of its parts has no type, which must be a text"},
           {"/pre_tokenizer/type", 7, "one of its parts has type of type number; that must be a text"},
           {"/pre_tokenizer", {{"type", "Sequence"}}, "a sequence has no pretokenizers, which must be a list"},
           {"/pre_tokenizer/use_regex", "no",
            "its pre-tokenizer ByteLevel has use_regex of type string; that must be true or false"},
           {"/pre_tokenizer", {{"type", "Split"}}, "its pre-tokenizer Split has no pattern, which must be an object"},
           {"/added_tokens/0/content", nullptr,
            "one of its added_tokens has content of type null; that must be a text"},
           {"/post_processor", {{"type", "TemplateProcessing"}}, "its template has no single, which must be a list"},
           {"/post_processor",
            {{"type", "TemplateProcessing"},
             {"single", json::array({{{"SpecialToken", {{"id", "<s>"}}}}})},
             {"special_tokens", json::object()}},
            "its special_tokens has no <s>, which must be an object"}})
    EXPECT_THAT(refusal(place, value), EndsWith(concat("t.json' as a tokenizer: ", words)));
}

TEST_F(TokenizerFiles, WhatIsNoJsonIsRefusedByItsPlace) {
  auto said = [&](const std::string& text) {
    folder_.write("t.json", text);
    return error_of([&] { text::load_tokenizer(folder_ / "t.json"); });
  };
  const std::string begin = "as a tokenizer: it is no tokenizer.json: ";
  EXPECT_THAT(said("{\"model\":\n  {\"é\": x}}"), EndsWith(begin + "line 2, column 9: invalid literal at '\"é\": x'"));
  EXPECT_THAT(said("{\"model\": {}"), EndsWith(begin + "line 1, column 13: unexpected end of input; expected '}'"));
  EXPECT_THAT(said("{model"),
              EndsWith(begin + "line 1, column 2: invalid literal at '{m'; expected a text in double quotes"));
  EXPECT_THAT(said("[1] 2"), EndsWith(begin + "line 1, column 5: unexpected number literal; expected end of input"));
  EXPECT_THAT(said("[}"), EndsWith(begin + "line 1, column 2: unexpected '}'; expected a value"));
  EXPECT_THAT(said("[\"a"), EndsWith(begin + "line 1, column 4: invalid string: missing closing quote at '\"a'"));
  EXPECT_THAT(said("[1e999]"), EndsWith(begin + "number overflow parsing '1e999'"));
}

TEST_F(TokenizerFiles, FilesThatCannotBeReadAreRefusedWithTheirPath) {
  auto refused = [&](const std::string& path) { return error_of([&] { text::load_tokenizer(path); }); };
  EXPECT_THAT(refused(folder_ / "nothing.json"), HasSubstr("nothing.json': No such file or directory"));
  EXPECT_THAT(refused(folder_.path()), HasSubstr("tokenizer.json': No such file or directory"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refused(folder_ / "pipe"), HasSubstr("pipe': it is no regular file"));
  folder_.write("empty", "");
  EXPECT_THAT(refused(folder_ / "empty"), HasSubstr("it is no tokenizer.json: "));
}

TEST_F(TokenizerFiles, IdsThatAreNoTokensAreRefused) {
  json file = small_file();
  file["added_tokens"][0]["id"] = 300;
  auto tokenizer = text::bpe_tokenizer("my file", file.dump());
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  for (int64_t id : {int64_t(-1), int64_t(301), int64_t(299), int64_t(1) << 40})
    EXPECT_THAT(error_of([&] { tokenizer->decode(TokenIds{id}); }),
                HasSubstr(concat("token ", id, " is not in the vocabulary of 'my file', whose ids are below 301")));
}

TEST_F(TokenizerFiles, AByteWithoutATokenIsRefusedWhenItComes) {
  json file = small_file();
  file["model"]["vocab"].erase("z");
  auto tokenizer = text::bpe_tokenizer("t", file.dump());
  EXPECT_EQ(tokenizer->encode("ab"), TokenIds{256});
  EXPECT_THAT(error_of([&] { tokenizer->encode("abz"); }), HasSubstr("the tokenizer has no token for the byte 122"));
}

// Whatever is in a file, it is read or refused, and what was read encodes or refuses.
TEST_F(TokenizerFiles, RandomChangesNeverCrash) {
  json full = small_file();
  full["post_processor"] = json::parse(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "e"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"e": {"id": "e", "ids": [258]}}})");
  if (text::Pattern::available())
    full["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", "\\s+|[^b\\p{L}]"}}}, {"behavior", "Isolated"}},
          {{"type", "Digits"}},
          full["pre_tokenizer"]}}};
  // Fewer bytes of vocabulary, so that more of the changes are elsewhere.
  for (int byte = 0x80; byte < 256; ++byte) full["model"]["vocab"].erase(text::to_letters(std::string(1, char(byte))));
  const std::string whole = full.dump();
  int refused = 0;
  for (uint64_t i = 0; i < 1500; ++i) {
    std::string changed = whole;
    for (uint64_t k = 0; k <= i % 3; ++k) {
      auto [at, kind, byte, from] = philox(3, i, k);
      if (kind % 4 == 0) changed[at % changed.size()] = char(byte);
      if (kind % 4 == 1) changed.erase(at % changed.size(), byte % 20);
      if (kind % 4 == 2) changed.insert(at % changed.size(), changed.substr(from % changed.size(), byte % 20));
      if (kind % 4 == 3) changed[at % changed.size()] = "0\"{}[],:tfn\\"[byte % 12];
    }
    try {
      auto tokenizer = text::bpe_tokenizer("t", changed);
      tokenizer->decode(tokenizer->encode("abb 12<|endoftext|>", {.parse_special = true, .add_special = true}));
    } catch (const Error& error) {
      bool no_patterns = error.kind() == ErrorKind::missing && !text::Pattern::available();
      EXPECT_TRUE(error.kind() == ErrorKind::input || no_patterns) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_LT(refused, 1450);
}

// Where PCRE2 and Ruby, by whose rules tokenizers are written, do not agree by themselves.
TEST(Pattern, MeansWhatItMeansInRuby) {
  NEEDS_PATTERNS();
  auto matches = [](const char* pattern, std::string_view text) {
    std::vector<std::string> found;
    text::Pattern(pattern).for_each(
        text, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
    return found;
  };
  using Found = std::vector<std::string>;
  EXPECT_EQ(matches("\\s+", "a\u0085\u00a0\u2028b\u180ec\u200bd"), Found{"\u0085\u00a0\u2028"});
  EXPECT_EQ(matches("[^\\s,]+|\\S", "a\u3000b,c"), (Found{"a", "b", ",", "c"}));
  EXPECT_EQ(matches("\\d+", "12\u0663\u0664\u00bd"), Found{"12\u0663\u0664"});
  EXPECT_EQ(matches("(?i:'S)", "'s'\u017f'x"), (Found{"'s", "'\u017f"}));
  EXPECT_EQ(matches("^b$", "a\nb\nb"), (Found{"b", "b"}));
  EXPECT_EQ(matches("a*", "baab"), (Found{"", "aa"})) << "a match of nothing is none where one ended";
  EXPECT_EQ(matches("\\p{Lu}\\x41+.", "\u00c9AA\nEA\r"), (Found{"\u00c9AA", "EA\r"}));
  EXPECT_EQ(matches(text::literally(".*").c_str(), "a.*b"), Found{".*"});
}

// As (?=(\\d{3})+(?!\\d)) does, which cuts numbers at thousands.
TEST(Pattern, MatchesOfNothingAreCuts) {
  NEEDS_PATTERNS();
  auto cuts = [](const char* pattern) {
    std::vector<std::pair<size_t, size_t>> found;
    text::Pattern(pattern).for_each("hello", [&](size_t begin, size_t end) { found.emplace_back(begin, end); });
    return found;
  };
  EXPECT_THAT(cuts("(?=l)"), ::testing::ElementsAre(std::pair(2, 2), std::pair(3, 3)));
  EXPECT_THAT(cuts("l?"), ::testing::ElementsAre(std::pair(0, 0), std::pair(1, 1), std::pair(2, 3), std::pair(3, 4)));
}

TEST(Pattern, GoesOnBehindBytesThatAreNoText) {
  NEEDS_PATTERNS();
  std::vector<std::string> found;
  std::string_view text = "1a\xff,2b\xff\xff,34";
  text::Pattern("\\d+").for_each(
      text, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  EXPECT_EQ(found, (std::vector<std::string>{"1", "2", "34"}));
}

TEST(Utf8, AStreamWaitsForTheRestOfACharacter) {
  text::Utf8Stream stream;
  EXPECT_EQ(stream.add("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.add("\x98"), "");
  EXPECT_EQ(stream.add("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.add("\xE2\x82"), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

// As bytes.decode(errors="replace") of Python does.
TEST(Utf8, WhatIsNoneIsReplacedAsPythonDoes) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(shown("\xff"
                  "a\x80\xC3z"),
            r + "a" + r + r + "z");
  EXPECT_EQ(shown("\xC0\x80"), r + r) << "too long";
  EXPECT_EQ(shown("\xED\xA0\x80"), r + r + r) << "a surrogate";
  EXPECT_EQ(shown("\xF4\x90\x80\x80"), r + r + r + r) << "above U+10FFFF";
  EXPECT_EQ(shown("\xF0\x9F\x98 \xE2\x82\xE2\x82\xAC"), r + " " + r + "\xE2\x82\xAC") << "cut";
  EXPECT_EQ(shown(std::string("\0\x7f", 2)), std::string("\0\x7f", 2));
  EXPECT_EQ(text::whole_characters("\xFFz\xE2\x82"), r + "z" + r) << "all at once";
}

TEST(Utf8, ValidBytesAreCounted) {
  EXPECT_EQ(text::valid_utf8(""), 0U);
  EXPECT_EQ(text::valid_utf8("0123456789abcdef\xC3\xA9xyz"), 21U);
  EXPECT_EQ(text::valid_utf8("01234567\xFF"
                             "9abcdef"),
            8U);
  EXPECT_EQ(text::valid_utf8("0123456789\xC3"), 10U);
}

TEST(ByteLevel, EveryByteHasALetterOfItsOwn) {
  EXPECT_EQ(text::to_letters("a b\n"),
            "a\xC4\xA0"
            "b\xC4\x8A");
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  EXPECT_EQ(text::from_letters(text::to_letters(all)), all);
  EXPECT_EQ(text::from_letters("a b"), std::nullopt);
  EXPECT_EQ(text::from_letters("\xE4\xB8\x80"), std::nullopt);
  EXPECT_EQ(text::from_letters("\xC3"), std::nullopt);
}

}  // namespace
}  // namespace shardgrad
