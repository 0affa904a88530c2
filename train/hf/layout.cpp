#include <shardgrad/train/hf/layout.h>

namespace shardgrad::train::hf {
namespace {

constexpr const char *kGpt2 = "transformer.", *kLlama = "model.";

// The module's name in the place of `ours`, at the end of a parameter's.
std::string renamed(const std::string& name, const std::string& ours, const std::string& theirs) {
  return kLlama + name.substr(0, name.size() - ours.size()) + theirs;
}

Part table(const std::string& name, const std::string& prefix, int64_t rows, int64_t columns) {
  return {name == kHead ? name : prefix + name, {rows, columns}, false, true};
}

std::vector<Part> parts_of(const nn::Gpt2Options& o, const std::string& name, const Shape& shape) {
  if (name == kHead || name == "wte.weight") return {table(name, kGpt2, o.vocab_size, shape[1])};
  bool transposed = name.starts_with("h.") && shape.ndim() == 2;
  return {{kGpt2 + name, transposed ? Shape{shape[1], shape[0]} : shape, transposed}};
}

std::vector<Part> parts_of(const nn::LlamaOptions& o, const std::string& name, const Shape& shape) {
  if (name == kHead || name == "embed_tokens.weight") return {table(name, kLlama, o.vocab_size, shape[1])};
  const std::string qkv = "qkv.weight", gate_up = "gate_up.weight";
  if (name.ends_with(gate_up))
    return {{renamed(name, gate_up, "gate_proj.weight"), {o.intermediate_size, shape[1]}},
            {renamed(name, gate_up, "up_proj.weight"), {o.intermediate_size, shape[1]}}};
  if (!name.ends_with(qkv)) return {{kLlama + name, shape}};
  return {{renamed(name, qkv, "q_proj.weight"), {o.num_attention_heads * o.depth(), shape[1]}},
          {renamed(name, qkv, "k_proj.weight"), {o.kv_heads() * o.depth(), shape[1]}},
          {renamed(name, qkv, "v_proj.weight"), {o.kv_heads() * o.depth(), shape[1]}}};
}

}  // namespace

Layout layout_of(const ModelOptions& options) {
  Layout layout;
  nn::Child<nn::LanguageModel> model = make_model(options);
  for (const NamedParameter& parameter : model->named_parameters())
    layout[parameter.name] =
        std::visit([&](const auto& o) { return parts_of(o, parameter.name, parameter.tensor.shape()); }, options);
  return layout;
}

std::string bare_name(const std::string& name) {
  for (const std::string prefix : {kGpt2, kLlama})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

bool is_left_over(const std::string& name) {
  for (const char* end : {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace shardgrad::train::hf
