// config.json of Hugging Face folders: what is taken over, and what is refused by its key.

#include <shardgrad/train/hf/config.h>

#include "temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardgrad {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using train::hf::ModelOptions;

class HuggingFaceConfig : public ::testing::Test {
 protected:
  ModelOptions read(const std::string& text) {
    folder_.write("config.json", text);
    return train::hf::read_model_config(folder_.path());
  }
  nn::Gpt2Options gpt2(const std::string& keys) {
    return std::get<nn::Gpt2Options>(read(R"({"model_type": "gpt2")" + keys + "}"));
  }
  nn::LlamaOptions llama(const std::string& keys) {
    return std::get<nn::LlamaOptions>(read(R"({"model_type": "llama")" + keys + "}"));
  }
  // What is said after the place: the file, and the line of a key that is there.
  std::string refusal(const std::string& type, const std::string& keys) {
    std::string text = error_of([&] { read(concat("{\"model_type\": \"", type, "\",\n", keys, "}")); });
    std::string place = folder_ / (text.find(" is missing") == std::string::npos ? "config.json:2: " : "config.json: ");
    EXPECT_THAT(text, StartsWith(place));
    EXPECT_EQ(text.find('\n'), std::string::npos) << "one sentence";
    return text.substr(std::min(text.size(), place.size()));
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingFaceConfig, KeysThatAreMissingAreAsTransformersHasThem) {
  nn::Gpt2Options gpt2 = this->gpt2("");
  EXPECT_EQ(gpt2.vocab_size, 50257);
  EXPECT_EQ(gpt2.n_layer, 12);
  EXPECT_EQ(gpt2.attn_pdrop, 0.1);
  EXPECT_TRUE(gpt2.tie_word_embeddings);
  nn::LlamaOptions llama = this->llama("");
  EXPECT_EQ(llama.hidden_size, 4096);
  EXPECT_EQ(llama.kv_heads(), 32);
  EXPECT_EQ(llama.depth(), 128);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope.theta, 10000);
  EXPECT_EQ(llama.attention_dropout, 0);
  EXPECT_FALSE(llama.tie_word_embeddings);
}

TEST_F(HuggingFaceConfig, WhatSaysNothingOfTheComputationIsIgnored) {
  gpt2(R"(, "task_specific_params": {"text-generation": {"do_sample": true}}, "n_inner": null, "use_cache": true,
         "architectures": ["GPT2LMHeadModel"], "dtype": "bfloat16", "a key of tomorrow": [1, [2]])");
}

// transformers 5 has one group for all of it.
TEST_F(HuggingFaceConfig, RotationsHaveTwoSpellings) {
  const std::string members = R"("factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 4.5,
                                "original_max_position_embeddings": 64, )";
  for (const std::string& keys :
       {R"(, "rope_theta": 500000, "rope_scaling": {)" + members + R"("rope_type": "llama3"})",
        R"(, "rope_theta": 500000, "rope_scaling": {)" + members + R"("type": "llama3"})",
        R"(, "rope_parameters": {"rope_theta": 500000, )" + members + R"("rope_type": "llama3"})"}) {
    RopeOptions rope = llama(keys).rope;
    EXPECT_EQ(rope.theta, 500000) << keys;
    ASSERT_TRUE(rope.scaling) << keys;
    EXPECT_EQ(rope.scaling->factor, 8);
    EXPECT_EQ(rope.scaling->low_freq_factor, 1.5);
    EXPECT_EQ(rope.scaling->high_freq_factor, 4.5);
    EXPECT_EQ(rope.scaling->original_positions, 64);
  }
  for (const char* keys : {R"(, "rope_scaling": null)", R"(, "rope_parameters": {"rope_type": "default"})"})
    EXPECT_FALSE(llama(keys).rope.scaling) << keys;
}

// As transformers' attribute_map has it: what it sets last is what it computes with.
TEST_F(HuggingFaceConfig, SizesOfGpt2HaveLlamasNamesToo) {
  nn::Gpt2Options gpt2 = this->gpt2(
      R"(, "n_head": 2, "num_attention_heads": 6, "hidden_size": 24, "num_hidden_layers": 3,
         "max_position_embeddings": 9)");
  EXPECT_EQ(gpt2.n_head, 6);
  EXPECT_EQ(gpt2.n_embd, 24);
  EXPECT_EQ(gpt2.n_layer, 3);
  EXPECT_EQ(gpt2.n_positions, 9);
}

// Read as a group without members it would hide the other one.
TEST_F(HuggingFaceConfig, AGroupOfRotationsIsAnObject) {
  for (const char* value : {"[]", "0", "false", R"("linear")"})
    for (std::string key : {"rope_scaling", "rope_parameters"}) {
      std::string other = key == "rope_scaling" ? "rope_parameters" : "rope_scaling";
      EXPECT_EQ(refusal("llama", concat("\"", key, "\": ", value, ", \"", other, "\": {\"rope_theta\": 5}")),
                concat(key, " is ", value, "; it must be an object, or null"));
    }
}

TEST_F(HuggingFaceConfig, WhatWouldBeComputedOtherwiseIsRefusedByItsKey) {
  struct Refused {
    const char *type, *keys, *words;
  };
  for (auto [type, keys, words] : {
           Refused{"gpt2", R"("activation_function": "gelu")", R"(activation_function is "gelu"; built are gelu_new)"},
           {"gpt2", R"("scale_attn_weights": false)", "scale_attn_weights is false; "},
           {"gpt2", R"("scale_attn_by_inverse_layer_idx": true)", "scale_attn_by_inverse_layer_idx is true; "},
           {"gpt2", R"("reorder_and_upcast_attn": true)", "reorder_and_upcast_attn is true; "},
           {"gpt2", R"("add_cross_attention": true)", "add_cross_attention is true; "},
           {"llama", R"("hidden_act": "gelu")", R"(hidden_act is "gelu"; built is silu)"},
           {"llama", R"("attention_bias": true)", "attention_bias is true; "},
           {"llama", R"("mlp_bias": true)", "mlp_bias is true; "},
           {"llama", R"("sliding_window": 4096)", "sliding_window is 4096; "},
           {"llama", R"("partial_rotary_factor": 0.5)", "partial_rotary_factor is 0.5; "},
           {"llama", R"("rope_scaling": {"type": "linear", "factor": 2})",
            R"(rope_scaling.type is "linear"; built are default and llama3)"},
           {"llama", R"("rope_parameters": {"rope_type": "yarn"})",
            R"(rope_parameters.rope_type is "yarn"; built are)"},
       })
    EXPECT_THAT(refusal(type, keys), StartsWith(words));
  EXPECT_THAT(error_of([&] { gpt2(R"(, "quantization_config": {"bits": 4})"); }),
              HasSubstr("there is a quantization_config; weights of few bits cannot be read"));
}

TEST_F(HuggingFaceConfig, ImpossibleValuesAreRefused) {
  EXPECT_EQ(refusal("gpt2", R"("n_embd": 10, "n_head": 4)"), "n_embd is 10; it must be a multiple of n_head, 4");
  EXPECT_THAT(refusal("gpt2", R"("n_layer": 0)"), StartsWith("n_layer is 0; it must be an integer from 1 to "));
  EXPECT_THAT(refusal("gpt2", R"("n_layer": 1e30)"), StartsWith("n_layer is 1e+30; it must be an integer"));
  EXPECT_EQ(refusal("gpt2", R"("n_layer": 4097)"), "n_layer is 4097; it must be an integer from 1 to 4096");
  EXPECT_EQ(refusal("llama", R"("num_hidden_layers": 100000)"),
            "num_hidden_layers is 100000; it must be an integer from 1 to 4096");
  EXPECT_THAT(refusal("gpt2", R"("vocab_size": "all")"), StartsWith("vocab_size is \"all\"; it must be an integer"));
  EXPECT_EQ(refusal("gpt2", R"("resid_pdrop": 1)"), "resid_pdrop is 1; it must be from 0 to below 1");
  EXPECT_EQ(refusal("llama", R"("rms_norm_eps": 0)"), "rms_norm_eps is 0; it must be above 0");
  EXPECT_EQ(refusal("llama", R"("tie_word_embeddings": 1)"), "tie_word_embeddings is 1; it must be true or false");
  EXPECT_EQ(refusal("llama", R"("num_key_value_heads": 5)"),
            "num_attention_heads is missing; it must be a multiple of num_key_value_heads, 5");
  EXPECT_EQ(refusal("llama", R"("head_dim": 7)"),
            "head_dim is 7; heads are rotated by pairs, so their width must be even");
  EXPECT_EQ(refusal("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"),
            "rope_scaling.low_freq_factor is missing; llama3's scaling needs it");
}

TEST_F(HuggingFaceConfig, AnotherArchitectureAndBrokenFilesAreRefused) {
  EXPECT_THAT(error_of([&] { read(R"({"model_type": "mistral"})"); }),
              EndsWith(R"(config.json:1: model_type is "mistral"; built are gpt2 and llama)"));
  EXPECT_THAT(error_of([&] { read(R"({"name": "run"})"); }),
              EndsWith("config.json: model_type is missing; built are gpt2 and llama"));
  EXPECT_THAT(error_of([&] { read("{\"model_type\": \"gpt2\",\n \"n_layer\": }"); }), HasSubstr("config.json:2: "));
  EXPECT_THAT(error_of([&] { read("[]"); }), HasSubstr("the file must hold one object"));
  EXPECT_THAT(error_of([&] { train::hf::read_model_config(folder_ / "nothing"); }),
              HasSubstr("cannot read '" + (folder_ / "nothing/config.json")));
}

// What is written is read back as it was, with the bits of every number.
TEST_F(HuggingFaceConfig, WhatIsWrittenIsReadBack) {
  nn::Gpt2Options gpt2{.vocab_size = 7, .n_inner = 12, .layer_norm_epsilon = 1e-7 / 3, .tie_word_embeddings = false};
  auto again = std::get<nn::Gpt2Options>(read(train::hf::model_config_text(gpt2, DType::bf16)));
  EXPECT_EQ(again.vocab_size, 7);
  EXPECT_EQ(again.n_inner, 12);
  EXPECT_EQ(again.layer_norm_epsilon, gpt2.layer_norm_epsilon);
  EXPECT_EQ(again.attn_pdrop, 0);
  EXPECT_FALSE(again.tie_word_embeddings);
  nn::LlamaOptions llama{
      .num_key_value_heads = 8, .head_dim = 64, .attention_dropout = 0.25, .tie_word_embeddings = true};
  llama.rope = {.theta = 5e5, .scaling = Llama3Scaling{.factor = 32}};
  std::string text = train::hf::model_config_text(llama, DType::f32, {{"eos_token_id", "[1, 2]"}});
  EXPECT_THAT(text, HasSubstr("\"eos_token_id\": [\n"));
  EXPECT_THAT(text, HasSubstr("\"bos_token_id\": null"));
  auto same = std::get<nn::LlamaOptions>(read(text));
  EXPECT_EQ(same.kv_heads(), 8);
  EXPECT_EQ(same.depth(), 64);
  EXPECT_EQ(same.rope.theta, 5e5);
  EXPECT_EQ(same.rope.scaling->factor, 32);
  EXPECT_EQ(same.attention_dropout, 0.25);
  EXPECT_TRUE(same.tie_word_embeddings);
}

}  // namespace
}  // namespace shardgrad
