// GPT-2 and LLaMA: the names and shapes that others rely on, the same numbers as of operations on whole matrices, and
// nothing of later tokens, of padding or of recompute in any bit.

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

#include "tests/devices.h"
#include "tests/nn/composed_models.h"
#include "tests/nn/small_models.h"

namespace shardgrad {
namespace {

using test::small_gpt2, test::small_llama;

/// One of the two, whichever the test is about.
struct EitherModel : testing::TestWithParam<std::string> {
  bool is_gpt2 = GetParam() == "gpt2";
  nn::Child<nn::LanguageModel> make(int64_t vocab_multiple = 1, double dropout = 0, int64_t depth = 8) const {
    nn::Gpt2Options gpt2 = small_gpt2(dropout);
    nn::LlamaOptions llama = small_llama(dropout);
    gpt2.n_embd = depth * gpt2.n_head;
    llama.head_dim = depth;
    gpt2.vocab_multiple = llama.vocab_multiple = vocab_multiple;
    if (is_gpt2) return nn::make<nn::Gpt2>(gpt2);
    return nn::make<nn::Llama>(llama);
  }
  std::string blocks() const { return is_gpt2 ? "h.?" : "layers.?"; }
};
INSTANTIATE_TEST_SUITE_P(Models, EitherModel, testing::Values("gpt2", "llama"),
                         [](const auto& test) { return test.param; });

Tensor tokens(int64_t samples, int64_t places, int64_t vocabulary = 50, int64_t seed = 1) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < samples * places; ++i) ids.push_back((i * 7919 + seed * 104729 + i * i * 31) % vocabulary);
  return from_vector<int64_t>(ids, {samples, places});
}

std::vector<double> doubles(const Tensor& x) { return x.detach().to(DType::f64).to_vector<double>(); }

// To 1e-12 of the largest.
void expect_same_numbers(const Tensor& ours, const Tensor& other, const std::string& what, double tolerance = 1e-12) {
  std::vector<double> a = doubles(ours), b = doubles(other);
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 0;
  for (double value : b) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << what << " " << i;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// --- names and shapes -----------------------------------------------------------------------------------------------

std::map<std::string, Shape> shapes_of(nn::Module& model) {
  std::map<std::string, Shape> shapes;
  for (const NamedParameter& parameter : model.named_parameters()) shapes[parameter.name] = parameter.tensor.shape();
  return shapes;
}

TEST(Gpt2, ParametersHaveHuggingFacesNamesAndAreOutByIn) {
  Context context;
  nn::Gpt2Options options = small_gpt2();
  options.n_layer = 1;
  auto model = nn::make<nn::Gpt2>(options);
  std::map<std::string, Shape> expected{{"wte.weight", {50, 24}},
                                        {"wpe.weight", {16, 24}},
                                        {"h.0.ln_1.weight", {24}},
                                        {"h.0.ln_1.bias", {24}},
                                        {"h.0.attn.c_attn.weight", {72, 24}},
                                        {"h.0.attn.c_attn.bias", {72}},
                                        {"h.0.attn.c_proj.weight", {24, 24}},
                                        {"h.0.attn.c_proj.bias", {24}},
                                        {"h.0.ln_2.weight", {24}},
                                        {"h.0.ln_2.bias", {24}},
                                        {"h.0.mlp.c_fc.weight", {96, 24}},
                                        {"h.0.mlp.c_fc.bias", {96}},
                                        {"h.0.mlp.c_proj.weight", {24, 96}},
                                        {"h.0.mlp.c_proj.bias", {24}},
                                        {"ln_f.weight", {24}},
                                        {"ln_f.bias", {24}}};
  EXPECT_EQ(shapes_of(*model), expected);
  EXPECT_EQ(model->aliases(), (std::map<std::string, std::string>{{"lm_head.weight", "wte.weight"}}));
  options.tie_word_embeddings = false;
  expected["lm_head.weight"] = {50, 24};
  EXPECT_EQ(shapes_of(*nn::make<nn::Gpt2>(options)), expected);
}

TEST(Llama, ParametersHaveHuggingFacesNamesButForProductsThatAreOne) {
  Context context;
  nn::LlamaOptions options = small_llama();
  options.num_hidden_layers = 1;
  auto model = nn::make<nn::Llama>(options);
  std::map<std::string, Shape> expected{{"embed_tokens.weight", {50, 24}},
                                        {"layers.0.input_layernorm.weight", {24}},
                                        {"layers.0.self_attn.qkv.weight", {64, 24}},  // (4 + 2 · 2) · 8
                                        {"layers.0.self_attn.o_proj.weight", {24, 32}},
                                        {"layers.0.post_attention_layernorm.weight", {24}},
                                        {"layers.0.mlp.gate_up.weight", {80, 24}},
                                        {"layers.0.mlp.down_proj.weight", {24, 40}},
                                        {"norm.weight", {24}},
                                        {"lm_head.weight", {50, 24}}};
  EXPECT_EQ(shapes_of(*model), expected);
}

TEST(Gpt2, TheDefaultsAreGpt2Of124Million) {
  Context context;
  int64_t numel = 0;
  for (const auto& [name, shape] : shapes_of(*nn::make<nn::Gpt2>())) numel += shape.numel();
  EXPECT_EQ(numel, 124'439'808);
}

// A weight meets each token in forward and twice in backward; a token sees those before it and itself, in two products
// of forward and five of backward, the scores' again among them.
TEST(Gpt2, FlopsAreThoseOfTheProductsAndTheHalfOfAttentionThatIsSeen) {
  Context context({.device = kMeta});
  auto model = nn::make<nn::Gpt2>(nn::Gpt2Options{.vocab_size = 50304});
  Tensor ids = empty({2, 1024}, DType::i64);
  double weights = 12.0 * 12 * 768 * 768 + 50304.0 * 768, tokens = 2 * 1024, pairs = 2 * 1024 * 1025 / 2;
  FlopCount forward;
  Tensor loss = model(ids, nn::TextCall{.labels = ids, .loss = {.count = tokens}});
  EXPECT_EQ(forward.get(), 2 * weights * tokens + 2 * 2 * 12 * 768 * pairs);
  FlopCount backward;
  loss.backward();
  EXPECT_EQ(backward.get(), 4 * weights * tokens + 2 * 5 * 12 * 768 * pairs);
}

// What a block adds to its input is narrower: 0.02 / √(2 · 8 layers).
TEST_P(EitherModel, BeginsByTheRecipe) {
  Context context;
  nn::Gpt2Options gpt2{.vocab_size = 300, .n_positions = 200, .n_embd = 128, .n_layer = 8, .n_head = 4};
  nn::LlamaOptions llama{.vocab_size = 300, .hidden_size = 128, .intermediate_size = 200, .num_hidden_layers = 8};
  llama.num_attention_heads = 4, llama.num_key_value_heads = 2;
  nn::Child<nn::LanguageModel> model = nn::make<nn::Gpt2>(gpt2);
  if (!is_gpt2) model = nn::make<nn::Llama>(llama);
  model->materialize();
  int narrow = 0;
  for (const NamedParameter& each : model->named_parameters()) {
    double mean = 0, square = 0, n = double(each.tensor.numel());
    for (double v : doubles(each.tensor)) mean += v / n, square += v * v / n;
    bool is_bias = each.name.ends_with(".bias"), is_gain = each.tensor.ndim() == 1 && !is_bias, ends_block = false;
    for (const char* name : {".c_proj.weight", ".o_proj.weight", ".down_proj.weight"})
      ends_block = ends_block || each.name.ends_with(name);
    double deviation = ends_block ? 0.005 : 0.02;
    narrow += ends_block;
    if (each.tensor.ndim() == 1)
      EXPECT_TRUE(mean == (is_gain ? 1 : 0) && square == mean) << each.name;
    else
      EXPECT_NEAR(std::sqrt(square), deviation, 0.05 * deviation) << each.name;
  }
  EXPECT_EQ(narrow, 2 * 8);
}

// --- the same numbers as the composed form ---------------------------------------------------------------------------

struct LossAndGradients {
  Tensor loss;
  std::map<std::string, Tensor> gradients;
};
LossAndGradients results_of(nn::Module& model, const Tensor& loss) {
  loss.backward();
  LossAndGradients results{loss.detach(), {}};
  for (const NamedParameter& each : model.named_parameters()) results.gradients[each.name] = each.tensor.grad();
  model.zero_grad();
  return results;
}

template <class M, class Options, class Composed>
void expect_composed(const Options& options, const Composed& composed) {
  Context context;
  auto model = nn::make<M>(options);
  model->to(DType::f64);
  Tensor ids = tokens(3, 13), labels = tokens(3, 13, 50, 2);
  Tensor logits = model(ids);
  EXPECT_EQ(logits.shape(), (Shape{3, 13, 50}));
  test::Weights weights = model->state_dict();
  weights["lm_head.weight"] = model->lm_head->weight;  // which may be the table by another name
  expect_same_numbers(logits, composed(weights, options, ids), "logits");
  double count = 39;
  LossAndGradients ours = results_of(*model, model(ids, nn::TextCall{.labels = labels, .loss = {.count = count}}));
  LossAndGradients other = results_of(*model, test::loss_composed(composed(weights, options, ids), labels, count));
  expect_same_numbers(ours.loss, other.loss, "loss");
  for (const auto& [name, gradient] : other.gradients) expect_same_numbers(ours.gradients.at(name), gradient, name);
}

TEST(Gpt2, EqualsTheComposedFormInF64) {
  nn::Gpt2Options options = small_gpt2();
  expect_composed<nn::Gpt2>(options, test::gpt2_composed);
  options.tie_word_embeddings = false;
  options.n_inner = 20;
  options.layer_norm_epsilon = 1e-3;
  expect_composed<nn::Gpt2>(options, test::gpt2_composed);
}

TEST(Llama, EqualsTheComposedFormInF64) {
  nn::LlamaOptions options = small_llama();
  expect_composed<nn::Llama>(options, test::llama_composed);
  options.tie_word_embeddings = true;
  options.num_key_value_heads = 0;
  options.head_dim = 0;
  options.rms_norm_eps = 1e-3;
  options.rope.theta = 500;
  expect_composed<nn::Llama>(options, test::llama_composed);
}

// --- what must not change a bit --------------------------------------------------------------------------------------

TEST_P(EitherModel, LaterTokensChangeNoBitOfALogit) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    auto model = make();
    model->to(dtype);
    Tensor ids = tokens(2, 16);
    std::vector<double> first = doubles(model(ids));
    for (int64_t seen : {1, 7, 15}) {
      Tensor other = clone(ids);
      for (int64_t sample : {0, 1})
        for (int64_t t = seen; t < 16; ++t) other.data<int64_t>()[sample * 16 + t] = (t * 11 + seen) % 50;
      std::vector<double> again = doubles(model(other));
      for (size_t sample : {0u, 1u})
        for (size_t i = sample * 800; i < sample * 800 + size_t(seen) * 50; ++i)
          ASSERT_EQ(first[i], again[i]) << dtype << " " << seen << " " << i;
      EXPECT_NE(first, again);
    }
  }
}

// With heads of 16 attention goes by tiles in 16 bits.
TEST_P(EitherModel, LaterTokensChangeNoBitOfALogitOnDevices) {
  for (Device device : test::kernel_devices())
    for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      Context context({.device = device});
      auto model = make(1, 0, 16);
      model->to(dtype);
      Tensor ids = tokens(1, 6).to(device);
      Tensor other = cat(std::vector<Tensor>{slice(ids, 1, 0, 4), slice(ids, 1, 0, 2)}, 1);
      std::vector<double> first = doubles(model(ids)), again = doubles(model(other));
      EXPECT_NE(first, again);
      first.resize(4 * 50), again.resize(4 * 50);
      EXPECT_EQ(first, again) << dtype << " on " << device;
    }
}

TEST_P(EitherModel, PaddingOfTheVocabularyChangesNoBit) {
  Context context;
  Tensor ids = tokens(2, 9);
  nn::TextCall call{.labels = tokens(2, 9, 50, 2)};
  auto plain = make(), padded = make(64);
  EXPECT_EQ(doubles(plain(ids)), doubles(padded(ids)));
  EXPECT_EQ(doubles(plain(ids, call)), doubles(padded(ids, call)));
  call.loss.rows = 5;
  EXPECT_EQ(doubles(plain(ids, call)), doubles(padded(ids, call)));
  padded(ids, call).backward();
  for (const NamedParameter& each : padded->named_parameters()) {
    if (each.tensor.ndim() < 2 || each.tensor.size(0) != 64 || each.tensor.size(1) != 24) continue;
    if (each.name.find("layers.") == 0) continue;  // qkv of LLaMA has as many rows
    std::vector<double> gradient = doubles(each.tensor.grad());
    for (size_t i = 50 * 24; i < gradient.size(); ++i) ASSERT_EQ(gradient[i], 0) << each.name;
  }
}

TEST_P(EitherModel, RecomputeOfBlocksGivesTheSameBits) {
  auto run = [&](bool recompute) {
    Context context({.seed = 5});
    auto model = make(1, 0.1);
    if (recompute) nn::recompute_by_name(*model, {blocks()});
    progress() = {.step = 3, .first_sample = 0};
    model(tokens(2, 9), nn::TextCall{.labels = tokens(2, 9, 50, 2)}).backward();
    std::vector<std::vector<double>> gradients;
    for (const NamedParameter& each : model->named_parameters()) gradients.push_back(doubles(each.tensor.grad()));
    return std::pair(gradients, context.ledger().peak(Category::activation));
  };
  auto kept = run(false), again = run(true);
  EXPECT_EQ(kept.first, again.first);
  EXPECT_LT(again.second, kept.second);
}

TEST_P(EitherModel, RecomputeOfTheWholeModelGivesTheSameBits) {
  auto run = [&](bool recompute) {
    Context context({.seed = 5});
    auto model = make(1, 0.1);
    if (recompute) nn::recompute(*model);
    model(tokens(2, 9), nn::TextCall{.labels = tokens(2, 9, 50, 2)}).backward();
    return doubles(model->named_parameters()[0].tensor.grad());
  };
  EXPECT_EQ(run(false), run(true));
}

// The table of rotations grows while another thread reads it.
TEST(Llama, ThreadsMayCallOneModelAtOnce) {
  Context context({.threads = 1});
  std::map<int64_t, std::vector<double>> expected;
  for (int64_t length : {3, 9}) {
    auto fresh = nn::make<nn::Llama>(small_llama());
    expected[length] = doubles(fresh(tokens(1, length)));
  }
  for (int round = 0; round < 20; ++round) {
    auto shared = nn::make<nn::Llama>(small_llama());
    shared(tokens(1, 1));
    auto call = [&](int64_t length) {
      ContextScope scope(context);
      NoGrad no_grad;
      for (int i = 0; i < 5; ++i) EXPECT_EQ(doubles(shared(tokens(1, length))), expected.at(length));
    };
    std::thread other(call, 9);
    call(3);
    other.join();
  }
}

TEST_P(EitherModel, DropoutIsInTrainingOnly) {
  Context context;
  auto model = make(1, 0.5);
  Tensor ids = tokens(2, 9);
  EXPECT_NE(doubles(model(ids)), doubles(model(ids)));
  model->eval();
  EXPECT_EQ(doubles(model(ids)), doubles(model(ids)));
}

TEST_P(EitherModel, ItMayChangeItsDTypeAfterACall) {
  Context context;
  auto model = make();
  Tensor ids = tokens(2, 9), logits = model(ids);
  model->to(DType::f64);
  expect_same_numbers(logits, model(ids), "in f64", 1e-5);
}

// --- padding at the left ---------------------------------------------------------------------------------------------

TEST_P(EitherModel, ARowThatBeginsLaterIsTheRowAlone) {
  Context context;
  auto model = make();
  Tensor ids = tokens(2, 10), alone = slice(ids.rows(1, 2), 1, 4, 10);
  Tensor logits = model(ids, nn::TextCall{.starts = from_vector<int64_t>({0, 4}, {2})});
  expect_same_numbers(logits.rows(0, 1), model(ids.rows(0, 1)), "whole", 1e-5);
  expect_same_numbers(slice(logits.rows(1, 2), 1, 4, 10), model(alone), "padded", 1e-5);
}

// --- what there is none of -------------------------------------------------------------------------------------------

TEST_P(EitherModel, ARankWithoutSamplesTakesPart) {
  Context context;
  auto model = make(1, 0.1);
  Tensor none = zeros({0, 7}, DType::i64);
  EXPECT_EQ(model(none).shape(), (Shape{0, 7, 50}));
  Tensor loss = model(none, nn::TextCall{.labels = none, .loss = {.count = 14}});
  loss.backward();
  EXPECT_EQ(loss.item(), 0);
  for (const NamedParameter& each : model->named_parameters())
    for (double value : doubles(each.tensor.grad())) ASSERT_EQ(value, 0) << each.name;
}

TEST_P(EitherModel, WhatItCannotReadIsRefusedInASentence) {
  Context context;
  auto model = make(64);
  EXPECT_EQ(refusal_of([&] { model(tokens(1, 17)); }),
            "the model has 16 positions; rows of 17 tokens are too long for it");
  EXPECT_EQ(refusal_of([&] {
              model(from_vector<int64_t>({1, 2, 3, 50}, {2, 2}));
            }),
            "token 50 in row 1, place 1, is not in the model's vocabulary of 50");
  EXPECT_EQ(refusal_of([&] {
              model(zeros({2, 3}));
            }),
            "a language model needs tokens, i64 (rows, tokens), got f32[2, 3] on cpu");
  EXPECT_EQ(refusal_of([&] { model(tokens(2, 3), nn::TextCall{.labels = tokens(3, 2)}); }),
            "labels i64[3, 2] on cpu do not fit tokens i64[2, 3] on cpu; there must be one for each");
}

// Row 50 of the table is padding; what it holds would be read as any other.
TEST_P(EitherModel, OnDevicesAnIdBeyondTheVocabularyIsRefusedAtTheNextWait) {
  std::vector<Device> devices = test::kernel_devices();
  std::erase(devices, kCuda);  // a GPU's fault leaves nothing to go on with
  devices.push_back(kAcc);
  for (Device device : devices)
    for (int64_t id : {49, 50, 63, 64}) {
      Context context({.device = device});
      auto model = make(64);
      std::string refused = refusal_of([&] { doubles(model(from_vector<int64_t>({1, 2, 3, id}, {2, 2}).to(device))); });
      EXPECT_EQ(refused.find(concat("index 3 is ", id, ", outside [0, 50)")) != std::string::npos, id >= 50)
          << device << ' ' << id << ": " << refused;
      EXPECT_EQ(refused.empty(), id < 50) << device << ' ' << id << ": " << refused;
    }
}

TEST(Gpt2, SizesThatDoNotGoTogetherAreRefused) {
  Context context;
  nn::Gpt2Options options = small_gpt2();
  options.n_head = 5;
  EXPECT_NE(refusal_of([&] { nn::make<nn::Gpt2>(options); }).find("n_embd must be a multiple of n_head"),
            std::string::npos);
  options = small_gpt2();
  options.vocab_size = 0;
  EXPECT_NE(refusal_of([&] { nn::make<nn::Gpt2>(options); }).find("each must be at least 1"), std::string::npos);
}

TEST(Llama, SizesThatDoNotGoTogetherAreRefused) {
  Context context;
  nn::LlamaOptions options = small_llama();
  options.num_key_value_heads = 3;
  EXPECT_NE(refusal_of([&] { nn::make<nn::Llama>(options); }).find("multiple of kv heads"), std::string::npos);
  options = small_llama();
  options.head_dim = 7;
  EXPECT_NE(refusal_of([&] { nn::make<nn::Llama>(options); }).find("must be even"), std::string::npos);
}

}  // namespace
}  // namespace shardgrad
