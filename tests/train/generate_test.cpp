// train::generate: the tokens of a loop that reads everything again each time, alone and in a batch; text comes in
// whole characters; and what cannot be is refused before the model is called.

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>
#include <shardgrad/train/generate.h>
#include <tests/autograd/support.h>
#include <tests/nn/small_models.h>
#include <tests/train/temporary_folder.h>

namespace shardgrad::test {
namespace {

using train::generate;
using train::GenerateOptions;
using train::Tokens;

constexpr int64_t kVocabulary = 256;

nn::Child<nn::LanguageModel> with_wide_weights(nn::Child<nn::LanguageModel> model) {
  model->materialize();
  for (const auto& [name, tensor] : model->named_parameters())
    if (tensor.ndim() == 2) copy_into(tensor, tensor.detach() * 8);
  return model;
}
nn::Child<nn::LanguageModel> tiny_gpt2(double dropout = 0) {
  nn::Gpt2Options options = small_gpt2(dropout);
  options.vocab_size = kVocabulary;
  options.vocab_multiple = 48;
  options.n_positions = 40;
  return with_wide_weights(nn::make<nn::Gpt2>(options));
}
nn::Child<nn::LanguageModel> tiny_llama() {
  nn::LlamaOptions options = small_llama();
  options.vocab_size = kVocabulary;
  options.max_position_embeddings = 40;
  return with_wide_weights(nn::make<nn::Llama>(options));
}

// The likeliest tokens, by reading everything again for each.
Tokens without_cache(const nn::Child<nn::LanguageModel>& model, Tokens text, int64_t tokens) {
  NoGrad no_grad;
  model->eval();
  Tokens drawn;
  for (int64_t i = 0; i < tokens; ++i) {
    Tensor logits = model(from_vector(text, {1, std::ssize(text)}));
    Tensor last = slice(logits, 1, std::ssize(text) - 1, std::ssize(text));
    text.push_back(argmax(last, -1).to_vector<int64_t>()[0]);
    drawn.push_back(text.back());
  }
  return drawn;
}

const std::vector<Tokens> kPrompts = {
    {3, 141, 59, 26, 5}, {200}, {35, 8, 97, 93, 2, 38, 46, 26, 43, 38, 32, 7}, {11, 12}};
const GenerateOptions kGreedy{.tokens = 20, .sampling = {.temperature = 0}};

TEST(Generate, GreedyTokensAreThoseWithoutACacheAloneAndInABatch) {
  Context context;
  for (const auto& model : {tiny_gpt2(), tiny_llama()}) {
    std::vector<Tokens> together = generate(model, kPrompts, kGreedy);
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      Tokens expected = without_cache(model, kPrompts[i], 20);
      EXPECT_EQ(generate(model, {kPrompts[i]}, kGreedy)[0], expected) << model->type_name() << ", prompt " << i;
      EXPECT_EQ(together[i], expected) << model->type_name() << ", prompt " << i;
    }
    EXPECT_NE(together[0], together[1]) << "the prompt matters";
  }
}

TEST(Generate, DrawsAreAFunctionOfSeedAndPromptNumber) {
  Context context;
  auto model = tiny_gpt2();
  GenerateOptions options{.tokens = 12, .sampling = {.seed = 4}};
  std::vector<Tokens> once = generate(model, {kPrompts[0], kPrompts[0]}, options);
  EXPECT_EQ(generate(model, {kPrompts[0], kPrompts[0]}, options), once);
  EXPECT_EQ(generate(model, {kPrompts[0]}, options)[0], once[0]) << "others in the batch change nothing";
  EXPECT_NE(once[0], once[1]);
  options.tokens = 5;
  Tokens begun = kPrompts[0], first = generate(model, {kPrompts[0]}, options)[0];
  begun.insert(begun.end(), first.begin(), first.end());
  options.tokens = 7;
  EXPECT_EQ(generate(model, {begun}, options)[0], Tokens(once[0].begin() + 5, once[0].end())) << "it goes on alike";
  options.tokens = 12;
  options.sampling.seed = 5;
  EXPECT_NE(generate(model, {kPrompts[0], kPrompts[0]}, options), once);
}

TEST(Generate, DrawsNoTokenOfAPaddedVocabulary) {
  Context context;
  auto model = nn::make<nn::Gpt2>(nn::Gpt2Options{
      .vocab_size = 5, .n_positions = 200, .n_embd = 8, .n_layer = 1, .n_head = 1, .vocab_multiple = 64});
  GenerateOptions options{.tokens = 200, .sampling = {.temperature = 1e9}};
  std::vector<bool> seen(5);
  Tokens drawn = generate(model, {{1}}, options)[0];
  for (int64_t token : drawn) seen.at(size_t(token)) = true;
  EXPECT_EQ(seen, std::vector<bool>(5, true));
  options.suppress = {0, 3};
  drawn = generate(model, {{3}}, options)[0];
  for (int64_t token : drawn) EXPECT_TRUE(token != 0 && token != 3) << token;
}

// A model may have more ids than its tokenizer, and that may have holes.
TEST(Generate, DrawsNoTokenThatTheTokenizerHasNot) {
  Context context;
  std::string json = text::load_tokenizer("bytes")->json();
  size_t at = json.find("\"z\": 122,");
  ASSERT_NE(at, std::string::npos);
  TemporaryFolder folder;
  folder.write("tokenizer.json", json.replace(at, 9, "\"z\": 258,"));
  auto tokenizer = text::load_tokenizer(folder / "tokenizer.json");
  nn::Gpt2Options options{.vocab_size = 300, .n_positions = 2000, .n_embd = 8, .n_layer = 1, .n_head = 1};
  std::string text =
      generate(nn::make<nn::Gpt2>(options), *tokenizer, {"a"}, {.tokens = 2000, .sampling = {.temperature = 1e9}})[0];
  EXPECT_EQ(std::ssize(text), 2000);
  EXPECT_NE(text.find('z'), std::string::npos);
}

TEST(Generate, ATextEndsWithAStopTokenAndOthersGoOn) {
  Context context;
  auto model = tiny_gpt2();
  std::vector<Tokens> whole = generate(model, kPrompts, kGreedy);
  GenerateOptions options = kGreedy;
  options.stop = {whole[0][6], whole[0][4]};
  size_t end = 0;
  while (whole[0][end] != whole[0][6] && whole[0][end] != whole[0][4]) ++end;
  std::vector<std::pair<int64_t, int64_t>> told;
  auto on_token = [&](int64_t prompt, int64_t token) { told.push_back({prompt, token}); };
  std::vector<Tokens> stopped = generate(model, {kPrompts[0], kPrompts[1]}, options, on_token);
  EXPECT_EQ(stopped[0], Tokens(whole[0].begin(), whole[0].begin() + int64_t(end) + 1));
  EXPECT_EQ(std::ssize(told), std::ssize(stopped[0]) + std::ssize(stopped[1]));
  EXPECT_EQ(told[0], (std::pair<int64_t, int64_t>(0, stopped[0][0])));
  EXPECT_EQ(told[1], (std::pair<int64_t, int64_t>(1, stopped[1][0])));
}

TEST(Generate, LeavesTheModelAsItWasAndRecordsNothing) {
  Context context;
  auto model = tiny_gpt2(0.9);
  int64_t before = context.ledger().current();
  std::vector<Tokens> texts = generate(model, kPrompts, kGreedy);
  EXPECT_EQ(context.ledger().current(), before);
  EXPECT_TRUE(model->training());
  model->eval();
  EXPECT_EQ(generate(model, kPrompts, kGreedy), texts) << "no dropout";
  EXPECT_FALSE(model->training());
}

TEST(Generate, LeavesWhatIsInEvaluationModeInIt) {
  Context context;
  auto model = tiny_gpt2(0.9);
  nn::Module& frozen = *model->named_modules().back().second;
  frozen.eval();
  generate(model, kPrompts, kGreedy);
  EXPECT_FALSE(frozen.training());
  EXPECT_TRUE(model->training());
}

// The drawn tokens are replaced by the bytes of a text, as ranks agree.
TEST(Generate, TextComesInWholeCharacters) {
  Context context;
  auto tokenizer = text::load_tokenizer("bytes");
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  size_t next = 0;
  GenerateOptions options = kGreedy;
  options.tokens = std::ssize(text);
  options.agree = [&](const Tokens&) { return Tokens{uint8_t(text[next++])}; };
  std::vector<std::string> pieces;
  auto on_text = [&](int64_t, std::string_view piece) { pieces.push_back(std::string(piece)); };
  EXPECT_EQ(generate(tiny_gpt2(), *tokenizer, {"x"}, options, on_text)[0], text);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "z"}));
  next = 0, pieces.clear();
  options.tokens = 2;
  generate(tiny_gpt2(), *tokenizer, {"x"}, options, on_text);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\xEF\xBF\xBD"})) << "what never became whole";
}

TEST(Generate, RunsInBf16) {
  Context context;
  auto model = tiny_gpt2();
  model->to(DType::bf16);
  Tokens drawn = generate(model, {kPrompts[0]}, kGreedy)[0];
  EXPECT_EQ(drawn, generate(model, kPrompts, kGreedy)[0]);
}

TEST(Generate, WhatCannotBeIsRefusedBeforeTheModelIsCalled) {
  Context context;
  auto model = tiny_gpt2();
  auto with = [](auto change) {
    GenerateOptions options = kGreedy;
    change(options);
    return options;
  };
  EXPECT_REFUSED(generate(model, std::vector<Tokens>{}, kGreedy), "no prompt");
  EXPECT_REFUSED(generate(model, {{1}, {}}, kGreedy), "prompt 1", "empty");
  EXPECT_REFUSED(generate(model, {{1}, {2, 256}}, kGreedy), "prompt 1", "token 256", "vocabulary of 256");
  EXPECT_REFUSED(generate(model, {{-1}}, kGreedy), "token -1");
  EXPECT_REFUSED(generate(model, {Tokens(41, 1)}, kGreedy), "prompt of 41", "40 positions");
  EXPECT_REFUSED(generate(model, {Tokens(30, 1)}, kGreedy), "20 tokens after a prompt of 30", "at most 11");
  EXPECT_REFUSED(generate(model, {{1, 2}}, with([](auto& o) { o.tokens = INT64_MAX; })), "at most 39");
  EXPECT_EQ(generate(model, {Tokens(30, 1)}, with([](auto& o) { o.tokens = 11; }))[0].size(), 11u);
  EXPECT_REFUSED(generate(model, {{1}}, with([](auto& o) { o.tokens = 0; })), "0 tokens");
  EXPECT_REFUSED(generate(model, {{1}}, with([](auto& o) { o.sampling.temperature = -1; })), "temperature -1");
  EXPECT_REFUSED(generate(model, {{1}}, with([](auto& o) { o.sampling.top_p = 0; })), "top_p 0");
  EXPECT_REFUSED(generate(model, {{1}}, with([](auto& o) { o.sampling.top_k = -2; })), "top_k -2");
  EXPECT_REFUSED(generate(model, {{1}}, with([](auto& o) { o.suppress = {256}; })), "token 256", "suppressed");
  EXPECT_REFUSED(generate(model, *text::load_tokenizer("bytes"), {"a", ""}, kGreedy), "prompt 1", "empty");
  for (const auto& [name, tensor] : model->named_parameters())
    if (name == "ln_f.bias") fill_(tensor, NAN);
  EXPECT_REFUSED(generate(model, {{1}}, kGreedy), "sample 0", "position 1", "nan");
}

}  // namespace
}  // namespace shardgrad::test
