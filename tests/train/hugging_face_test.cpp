// Models of Hugging Face folders compute what transformers computes with them.

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/train/hf/export.h>

#include "hugging_face.h"

namespace shardgrad {
namespace {

using train::SafetensorsFile;
using train::hf::ModelOptions;
using FileAccess = SafetensorsFile::Access;

SafetensorsFile expected_of(const std::string& name, const char* file = "expected") {
  return {concat(hugging_face_folder(name), "/", file, ".safetensors"), FileAccess::read};
}

nn::Child<nn::LanguageModel> loaded(const std::string& folder, DType dtype = DType::f32) {
  auto model = train::hf::make_model(train::hf::read_model_config(folder));
  if (dtype != DType::f32) model->to(dtype);
  train::load_model(folder, *model);
  model->eval();
  return model;
}

class LogitsOf : public ::testing::TestWithParam<const char*> {};

// Every option that is built is in one of the folders, strong enough to show.
TEST_P(LogitsOf, AFolderAreThoseOfTransformers) {
  Context context;
  NoGrad no_grad;
  SafetensorsFile file = expected_of(GetParam());
  Tensor logits = loaded(hugging_face_folder(GetParam()))(tensor_in(file, "ids"));
  EXPECT_LT(distance(logits, tensor_in(file, "logits")), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, LogitsOf,
                         ::testing::Values("gpt2", "gpt2_untied", "gpt2_inner", "gpt2_old", "gpt2_f16", "llama",
                                           "llama_grouped", "llama_head_dim", "llama_scaled", "llama_old",
                                           "llama_bf16"),
                         [](const auto& info) { return std::string(info.param); });

TEST(HuggingFace, RowsOfAPaddedVocabularyAreZeroAndChangeNothing) {
  Context context;
  NoGrad no_grad;
  std::string folder = hugging_face_folder("gpt2_untied");
  SafetensorsFile file = expected_of("gpt2_untied");
  auto options = std::get<nn::Gpt2Options>(train::hf::read_model_config(folder));
  options.vocab_multiple = 32;
  auto model = nn::make<nn::Gpt2>(options);
  train::load_model(folder, *model);
  model->eval();
  ASSERT_EQ(model->lm_head->weight.size(0), 32);
  for (const Tensor& table : {model->wte->weight, model->lm_head->weight})
    EXPECT_EQ(numbers(table.rows(24, 32)), std::vector<double>(8 * 8));
  EXPECT_LT(distance(model(tensor_in(file, "ids")), tensor_in(file, "logits")), 2e-5);
}

// In f64, so that five steps of another formula anywhere would show.
TEST(HuggingFace, FiveStepsOfAdamWAreThoseOfPlainPyTorch) {
  for (auto [name, norms] : {std::pair("gpt2_steps", "*ln_*"), {"llama_steps", "*norm*"}}) {
    SCOPED_TRACE(name);
    Context context;
    SafetensorsFile after = expected_of(name, "after");
    Tensor ids = tensor_in(after, "ids"), losses = tensor_in(after, "losses");  // (5, 4, 13), (5)
    auto model = loaded(hugging_face_folder(name), DType::f64);
    std::vector<optim::Rule> rules{{norms, {.weight_decay = 0}}};
    if (norms == std::string("*ln_*")) rules.push_back({"*.bias", {.weight_decay = 0}});
    optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1},
                           rules);
    std::vector<int64_t> tokens = ids.to_vector<int64_t>();
    for (size_t step = 0; step < 5; ++step) {
      std::vector<int64_t> inputs, next;
      for (size_t row = step * 4; row < step * 4 + 4; ++row)
        for (size_t t = 0; t < 12; ++t) {
          inputs.push_back(tokens[row * 13 + t]);
          next.push_back(tokens[row * 13 + t + 1]);
        }
      Tensor loss = model(from_vector(inputs, {4, 12}, {DType::i64}),
                          nn::TextCall{.labels = from_vector(next, {4, 12}, {DType::i64})});
      EXPECT_NEAR(loss.item(), numbers(losses)[step], 1e-10);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    // As a folder again, which has their names.
    TemporaryFolder folder;
    std::map<std::string, Tensor> state;
    for (const NamedParameter& parameter : model->named_parameters()) state[parameter.name] = parameter.tensor.detach();
    train::save_safetensors(folder / "trained", state);
    ModelOptions options = train::hf::read_model_config(hugging_face_folder(name));
    train::hf::export_folder(options, {std::make_shared<train::FileWeights>(folder / "trained"), ""}, folder / "out");
    SafetensorsFile out(folder / "out/model.safetensors", FileAccess::read);
    EXPECT_EQ(out.tensors().size() + 2, after.tensors().size());
    for (const auto& [tensor, entry] : out.tensors())
      EXPECT_LT(distance(tensor_in(out, tensor), tensor_in(after, tensor)), 1e-10) << tensor;
  }
}

TEST(HuggingFace, ShardsOfAnyNumberOfRanksHoldWhatOneModelHolds) {
  for (const char* name : {"gpt2", "llama_grouped", "llama_head_dim", "gpt2_f16"}) {
    SCOPED_TRACE(name);
    std::string folder = hugging_face_folder(name);
    std::map<std::string, std::vector<double>> whole;
    {
      Context context;
      for (const NamedParameter& p : loaded(folder)->named_parameters()) whole[p.name] = numbers(p.tensor.detach());
    }
    for (int ranks : {1, 2, 3})
      dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
        auto model = train::hf::make_model(train::hf::read_model_config(folder));
        auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
        train::load_model(folder, *model, *sharded);
        for (const auto& [key, values] : fsdp::full_state_dict(*sharded, false))
          EXPECT_EQ(numbers(values), whole.at(key)) << key << " on " << ranks << " ranks";
      });
  }
}

// Also where the last rank alone reads it, and where it only becomes one in a narrower dtype.
TEST(HuggingFace, NumbersThatAreNotFiniteAreRefusedByFileAndTensor) {
  struct Spoilt {
    const char *folder, *tensor;
    double value;
    DType dtype;
    const char* words;
  };
  for (auto [name, tensor, value, dtype, words] : {
           Spoilt{"gpt2", "transformer.h.1.mlp.c_fc.weight", NAN, DType::f32, " holds NaN; weights must be finite"},
           {"gpt2", "transformer.ln_f.bias", INFINITY, DType::f64, " holds inf when its f32 are made f64; "},
           {"gpt2", "transformer.wte.weight", 1e6, DType::f16, " holds inf when its f32 are made f16; "},
           {"gpt2_f16", "transformer.h.0.attn.c_attn.bias", NAN, DType::f16, " holds NaN; "},
           {"llama_bf16", "model.layers.0.self_attn.v_proj.weight", -INFINITY, DType::bf16, " holds -inf; "},
           {"llama_grouped", "model.layers.1.self_attn.k_proj.weight", NAN, DType::f32, " holds NaN; "},
       }) {
    SCOPED_TRACE(concat(name, " in ", dtype));
    FolderCopy folder(name);
    spoil(folder, tensor, value);
    std::string sentence = concat("'", folder.path(), "/model.safetensors': tensor '", tensor, "'", words);
    {
      Context context;
      EXPECT_THAT(error_of([&, type = dtype] { loaded(folder.path(), type); }), ::testing::StartsWith(sentence));
    }
    dist::run_ranks(2, [&, type = dtype](dist::ProcessGroup& world) {
      auto model = train::hf::make_model(train::hf::read_model_config(folder.path()));
      model->to(type);
      auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
      EXPECT_THAT(error_of([&] { train::load_model(folder.path(), *model, *sharded); }),
                  ::testing::HasSubstr(sentence));
    });
  }
}

struct Masked : nn::Module {
  Tensor weight = param("weight", {3}, nn::init::ones()), mask = buffer("mask", {2});
};

// A mask of a module's own may be of infinities; a parameter may not.
TEST(HuggingFace, AFileOfTensorsIsLookedThroughLikeAFolder) {
  Context context;
  TemporaryFolder folder;
  Tensor infinities = full({2}, -INFINITY), finite = full({3}, 2);
  auto model = nn::make<Masked>();
  train::save_safetensors(folder / "a.safetensors", {{"weight", finite}, {"mask", infinities}});
  train::load_model(folder / "a.safetensors", *model);
  EXPECT_EQ(numbers(model->mask)[1], -INFINITY);
  train::save_safetensors(folder / "a.safetensors", {{"weight", full({3}, NAN)}, {"mask", infinities}});
  EXPECT_THAT(
      error_of([&] { train::load_model(folder / "a.safetensors", *model); }),
      ::testing::EndsWith("a.safetensors': tensor 'weight' holds NaN; weights must be finite: take a model that "
                          "was saved before its training failed"));
}

// A shard, and beside it one tensor that is transposed and two pieces.
TEST(HuggingFace, ARankNeedsMemoryForItsShardAndOneTensor) {
  nn::Gpt2Options options{.vocab_size = 512, .n_positions = 64, .n_embd = 512, .n_layer = 2, .n_head = 8};
  TemporaryFolder folder;
  {
    Context context;
    auto model = nn::make<nn::Gpt2>(options);
    model->materialize();
    train::save_safetensors(folder / "model", model->state_dict());
  }
  train::hf::export_folder(options, {std::make_shared<train::FileWeights>(folder / "model"), ""}, folder / "hf");
  int64_t largest = 4 * 512 * 4 * 512;
  for (int ranks : {1, 2})
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      auto model = train::hf::make_model(options);
      auto sharded = fsdp::fully_shard(*model, world, {.strategy = fsdp::Strategy::zero3});
      Ledger& ledger = context().ledger();
      int64_t shard = ledger.current();
      ledger.reset_peaks();
      train::load_model(folder / "hf", *model, *sharded);
      EXPECT_LE(ledger.peak(), shard + largest + 2 * fsdp::kPieceBytes);
      EXPECT_GE(ledger.peak(), shard + largest) << "it is measured";
      EXPECT_EQ(ledger.current(), shard);
    });
}

}  // namespace
}  // namespace shardgrad
