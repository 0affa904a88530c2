#include <shardgrad/train/hf/config.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/hf/keys.h>
#include <shardgrad/train/tasks/language.h>

namespace shardgrad::train::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTokenIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// An option that must be what it is here, which is also what it is when it is missing.
void check_off(const Keys& keys, const char* key, const char* why) {
  if (keys.flag(key, false)) keys.refuse(key, why);
}

void check_choice(const Keys& keys, const char* key, const std::vector<std::string>& choices, const char* why) {
  if (!std::ranges::count(choices, keys.text(key, choices[0]))) keys.refuse(key, why);
}

double probability(const Keys& keys, const char* key, double otherwise) {
  double value = keys.number(key, otherwise);
  if (!(value >= 0 && value < 1)) keys.refuse(key, "it must be from 0 to below 1");
  return value;
}

double positive(const Keys& keys, const std::string& key, double otherwise) {
  double value = keys.number(key, otherwise);
  if (!(value > 0)) keys.refuse(key, "it must be above 0");
  return value;
}

void check_multiple(const Keys& keys, const char* key, int64_t value, const char* of, int64_t unit) {
  if (value % unit != 0) keys.refuse(key, concat("it must be a multiple of ", of, ", ", unit));
}

void check_common(const Keys& keys) {
  if (keys.has("quantization_config"))
    fail(keys.path(), ": there is a quantization_config; weights of few bits cannot be read, save the model without");
}

// transformers knows GPT-2's sizes under LLaMA's names, too; where both are, those are taken.
int64_t gpt2_size(const Keys& keys, const char* key, const char* other, int64_t otherwise, int64_t most = Keys::kMost) {
  return keys.integer(keys.has(other) ? other : key, otherwise, most);
}

nn::Gpt2Options gpt2_options(const Keys& keys) {
  check_choice(keys, "activation_function", {"gelu_new", "gelu_pytorch_tanh"},
               "built are gelu_new and gelu_pytorch_tanh, the form with tanh (\"gelu\" is that with erf)");
  if (!keys.flag("scale_attn_weights", true))
    keys.refuse("scale_attn_weights", "scores of attention are always divided by the root of a head's width here");
  check_off(keys, "scale_attn_by_inverse_layer_idx", "scores of attention are not divided by a layer's number here");
  check_off(keys, "reorder_and_upcast_attn", "attention has no other form in 16 bits here");
  check_off(keys, "add_cross_attention", "there is no attention to another text here");
  nn::Gpt2Options o;
  o.vocab_size = keys.integer("vocab_size", 50257);
  o.n_positions = gpt2_size(keys, "n_positions", "max_position_embeddings", 1024);
  o.n_embd = gpt2_size(keys, "n_embd", "hidden_size", 768);
  o.n_layer = gpt2_size(keys, "n_layer", "num_hidden_layers", 12, kMostBlocks);
  o.n_head = gpt2_size(keys, "n_head", "num_attention_heads", 12);
  o.n_inner = keys.has("n_inner") ? keys.integer("n_inner", 0) : 0;
  o.layer_norm_epsilon = positive(keys, "layer_norm_epsilon", 1e-5);
  o.embd_pdrop = probability(keys, "embd_pdrop", 0.1);
  o.attn_pdrop = probability(keys, "attn_pdrop", 0.1);
  o.resid_pdrop = probability(keys, "resid_pdrop", 0.1);
  o.tie_word_embeddings = keys.flag("tie_word_embeddings", true);
  check_multiple(keys, "n_embd", o.n_embd, "n_head", o.n_head);
  return o;
}

// transformers 5 writes one group rope_parameters; 4 writes rope_theta, and rope_scaling where there is one. Where both
// are, transformers takes rope_scaling.
RopeOptions rope_options(const Keys& keys, int64_t positions) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (keys.json(key) != "null") keys.refuse(key, "it must be an object, or null");
  std::string group = keys.has("rope_scaling") ? "rope_scaling." : "rope_parameters.";
  RopeOptions rope;
  rope.theta = positive(keys, keys.has(group + "rope_theta") ? group + "rope_theta" : "rope_theta", 10000);
  for (const std::string& key : {std::string("partial_rotary_factor"), group + "partial_rotary_factor"})
    if (keys.number(key, 1) != 1) keys.refuse(key, "heads are rotated whole here");
  std::string type = group + (keys.has(group + "rope_type") ? "rope_type" : "type");
  std::string kind = keys.text(type, "default");
  if (kind == "default") return rope;
  if (kind != "llama3") keys.refuse(type, "built are default and llama3");
  Llama3Scaling scaling;
  for (auto [name, field] :
       {std::pair("factor", &scaling.factor), std::pair("low_freq_factor", &scaling.low_freq_factor),
        std::pair("high_freq_factor", &scaling.high_freq_factor)}) {
    if (!keys.has(group + name)) keys.refuse(group + name, "llama3's scaling needs it");
    *field = positive(keys, group + name, 0);
  }
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    keys.refuse(group + "high_freq_factor", "it must be above low_freq_factor");
  scaling.original_positions = keys.integer("original_max_position_embeddings",
                                            keys.integer(group + "original_max_position_embeddings", positions));
  rope.scaling = scaling;
  return rope;
}

nn::LlamaOptions llama_options(const Keys& keys) {
  check_choice(keys, "hidden_act", {"silu", "swish"}, "built is silu");
  check_off(keys, "attention_bias", "the products of attention have no biases here");
  check_off(keys, "mlp_bias", "the products of mlp have no biases here");
  check_off(keys, "use_sliding_window", "attention sees all that is before here");
  if (keys.has("sliding_window")) keys.refuse("sliding_window", "attention sees all that is before here");
  nn::LlamaOptions o;
  o.vocab_size = keys.integer("vocab_size", 32000);
  o.max_position_embeddings = keys.integer("max_position_embeddings", 2048);
  o.hidden_size = keys.integer("hidden_size", 4096);
  o.intermediate_size = keys.integer("intermediate_size", 11008);
  o.num_hidden_layers = keys.integer("num_hidden_layers", 32, kMostBlocks);
  o.num_attention_heads = keys.integer("num_attention_heads", 32);
  o.num_key_value_heads = keys.integer("num_key_value_heads", o.num_attention_heads);
  o.head_dim = keys.has("head_dim") ? keys.integer("head_dim", 0) : 0;
  o.rms_norm_eps = positive(keys, "rms_norm_eps", 1e-6);
  o.attention_dropout = probability(keys, "attention_dropout", 0);
  o.tie_word_embeddings = keys.flag("tie_word_embeddings", false);
  o.rope = rope_options(keys, o.max_position_embeddings);
  check_multiple(keys, "num_attention_heads", o.num_attention_heads, "num_key_value_heads", o.num_key_value_heads);
  if (o.head_dim == 0) check_multiple(keys, "hidden_size", o.hidden_size, "num_attention_heads", o.num_attention_heads);
  if (o.depth() % 2 != 0) keys.refuse("head_dim", "heads are rotated by pairs, so their width must be even");
  return o;
}

const char* torch_name(DType dtype) {
  return dtype == DType::bf16  ? "bfloat16"
         : dtype == DType::f16 ? "float16"
         : dtype == DType::f64 ? "float64"
                               : "float32";
}

Json or_null(int64_t value) { return value > 0 ? Json(value) : Json(); }

Json json_of(const nn::Gpt2Options& o) {
  return {{"architectures", Json::array({"GPT2LMHeadModel"})},
          {"model_type", "gpt2"},
          {"vocab_size", o.vocab_size},
          {"n_positions", o.n_positions},
          {"n_embd", o.n_embd},
          {"n_layer", o.n_layer},
          {"n_head", o.n_head},
          {"n_inner", or_null(o.n_inner)},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", o.layer_norm_epsilon},
          {"embd_pdrop", o.embd_pdrop},
          {"attn_pdrop", o.attn_pdrop},
          {"resid_pdrop", o.resid_pdrop},
          {"tie_word_embeddings", o.tie_word_embeddings}};
}

Json scaling_of(const RopeOptions& rope) {
  if (!rope.scaling) return {};
  const Llama3Scaling& s = *rope.scaling;
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", s.original_positions}};
}

Json json_of(const nn::LlamaOptions& o) {
  return {{"architectures", Json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"vocab_size", o.vocab_size},
          {"max_position_embeddings", o.max_position_embeddings},
          {"hidden_size", o.hidden_size},
          {"intermediate_size", o.intermediate_size},
          {"num_hidden_layers", o.num_hidden_layers},
          {"num_attention_heads", o.num_attention_heads},
          {"num_key_value_heads", o.kv_heads()},
          {"head_dim", o.depth()},
          {"hidden_act", "silu"},
          {"rms_norm_eps", o.rms_norm_eps},
          {"attention_dropout", o.attention_dropout},
          {"rope_theta", o.rope.theta},
          {"rope_scaling", scaling_of(o.rope)},
          {"tie_word_embeddings", o.tie_word_embeddings}};
}

// A run's configuration has the same name as a model's.
void check_no_run(const std::string& folder) {
  std::error_code unknown;
  for (const char* file : {"latest", kManifestFile})
    if (std::filesystem::exists(concat(folder, "/", file), unknown))
      fail("'", folder, "' is the folder of a run, and no Hugging Face folder; a run begins with its weights with ",
           "init_from=", folder);
}

}  // namespace

const char* name_of(const ModelOptions& options) {
  return std::holds_alternative<nn::Gpt2Options>(options) ? "gpt2" : "llama";
}

bool is_model_folder(const std::string& path) {
  std::string file = path + "/" + kConfigFile;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(file, unknown)) return false;
  std::vector<std::string> faults;
  auto settings = read_settings(file, faults, kModelConfig);
  return std::ranges::any_of(settings, [](const Setting& setting) { return setting.key == "model_type"; });
}

ModelOptions read_model_config(const std::string& folder) {
  if (!is_model_folder(folder)) check_no_run(folder);
  Keys keys(folder + "/" + kConfigFile);
  std::string type = keys.text("model_type", "");
  if (type != "gpt2" && type != "llama") keys.refuse("model_type", "built are gpt2 and llama");
  check_common(keys);
  if (type == "gpt2") return gpt2_options(keys);
  return llama_options(keys);
}

TokenIds read_token_ids(const std::string& folder) {
  Keys keys(folder + "/" + kConfigFile);
  TokenIds ids;
  for (const char* key : kTokenIds)
    if (keys.has(key)) ids[key] = keys.json(key);
  return ids;
}

std::string model_config_text(const ModelOptions& options, DType dtype, const TokenIds& tokens) {
  Json json = std::visit([](const auto& o) { return json_of(o); }, options);
  for (const char* key : kTokenIds) json[key] = tokens.contains(key) ? Json::parse(tokens.at(key)) : Json();
  json["torch_dtype"] = json["dtype"] = torch_name(dtype);  // of transformers 4 and 5
  return json.dump(2) + "\n";
}

nn::Child<nn::LanguageModel> make_model(const ModelOptions& options) {
  using Model = nn::Child<nn::LanguageModel>;
  if (auto* gpt2 = std::get_if<nn::Gpt2Options>(&options)) return Model(nn::make<nn::Gpt2>(*gpt2));
  return Model(nn::make<nn::Llama>(std::get<nn::LlamaOptions>(options)));
}

}  // namespace shardgrad::train::hf
