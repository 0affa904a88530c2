#pragma once
// config.json of Hugging Face's models gpt2 and llama, and the options of the same models here. What is computed there
// as here is taken over; an option with which it would be computed otherwise is refused by its key.

#include <map>
#include <string>
#include <variant>

#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/llama.h>

namespace shardgrad::train::hf {

using ModelOptions = std::variant<nn::Gpt2Options, nn::LlamaOptions>;

/// The model_type: "gpt2" or "llama".
const char* name_of(const ModelOptions& options);

inline constexpr const char* kConfigFile = "config.json";

/// Whether there is a folder with a config.json that names a `model_type`. That of a run here has none.
bool is_model_folder(const std::string& path);

/// What config.json of a folder says, as transformers 4 or 5 writes it; keys that are missing have transformers'
/// defaults. Throws Error(input), with file, line, key and reason, for another model_type, a value that is impossible,
/// and an option that is not built.
ModelOptions read_model_config(const std::string& folder);

/// Keys that say which tokens begin and end a text: values as JSON, by name.
using TokenIds = std::map<std::string, std::string>;
TokenIds read_token_ids(const std::string& folder);

/// A config.json that both versions read. Without TokenIds no token ends a text.
std::string model_config_text(const ModelOptions& options, DType dtype, const TokenIds& tokens = {});

/// A model without values, as nn::make gives it.
nn::Child<nn::LanguageModel> make_model(const ModelOptions& options);

}  // namespace shardgrad::train::hf
