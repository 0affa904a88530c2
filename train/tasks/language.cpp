#include <shardgrad/train/tasks/language.h>

namespace shardgrad::train {
namespace {

constexpr double kLargest = 1 << 30;
const Rule kCount{.low = 1, .high = kLargest}, kCountOrNone{.low = 0, .high = kLargest},
    kBlocks{.low = 1, .high = kMostBlocks};

void add_vocabulary(OptionList& options, int64_t& size, int64_t& multiple, bool& tied) {
  options.add("vocab_size", size, "tokens there are", kCount);
  options.add("vocab_multiple", multiple, "the table is padded to a multiple of so many rows, which no call sees",
              kCount);
  options.add("tie_word_embeddings", tied, "the head's weight is the table of tokens");
}

}  // namespace

void Gpt2Choice::list(OptionList& options) {
  add_vocabulary(options, model.vocab_size, model.vocab_multiple, model.tie_word_embeddings);
  options.add("n_positions", model.n_positions, "the most tokens in a row", kCount);
  options.add("n_embd", model.n_embd, "numbers of a token", kCount);
  options.add("n_layer", model.n_layer, "blocks", kBlocks);
  options.add("n_head", model.n_head, "heads of attention", kCount);
  options.add("n_inner", model.n_inner, "between the two products after attention; 0: 4 n_embd", kCountOrNone);
  options.add("layer_norm_epsilon", model.layer_norm_epsilon, "of the norms", {.low = 0, .above_low = true});
  options.add("dropout", dropout, "of embeddings, attention and what blocks add",
              {.low = 0, .high = 1, .below_high = true});
}

nn::Gpt2Options Gpt2Choice::options() const {
  nn::Gpt2Options options = model;
  options.embd_pdrop = options.attn_pdrop = options.resid_pdrop = dropout;
  return options;
}

nn::Child<nn::Gpt2> make_gpt2(const Gpt2Choice& choice) { return nn::make<nn::Gpt2>(choice.options()); }

void LlamaChoice::list(OptionList& options) {
  add_vocabulary(options, model.vocab_size, model.vocab_multiple, model.tie_word_embeddings);
  options.add("max_position_embeddings", model.max_position_embeddings, "the most tokens in a row", kCount);
  options.add("hidden_size", model.hidden_size, "numbers of a token", kCount);
  options.add("intermediate_size", model.intermediate_size, "between the products after attention", kCount);
  options.add("num_hidden_layers", model.num_hidden_layers, "blocks", kBlocks);
  options.add("num_attention_heads", model.num_attention_heads, "heads of attention", kCount);
  options.add("num_key_value_heads", model.num_key_value_heads,
              "heads of keys and values, each for as many neighbours; 0: num_attention_heads", kCountOrNone);
  options.add("head_dim", model.head_dim, "numbers of a head; 0: hidden_size / num_attention_heads", kCountOrNone);
  options.add("rms_norm_eps", model.rms_norm_eps, "of the norms", {.low = 0, .above_low = true});
  options.add("attention_dropout", model.attention_dropout, "of the weights of attention",
              {.low = 0, .high = 1, .below_high = true});
  options.add("rope_theta", model.rope.theta, "the base of the rotations", {.low = 0, .above_low = true});
  options.add("rope_scaling", rope_scaling,
              "llama3's: factor, low_freq_factor, high_freq_factor, original_max_position_embeddings; empty: none",
              {.low = 0, .high = kLargest, .above_low = true});
}

nn::LlamaOptions LlamaChoice::options() const {
  nn::LlamaOptions options = model;
  const std::vector<double>& s = rope_scaling;
  SG_CHECK(s.empty() || s.size() == 4, "model.rope_scaling has ", s.size(), " numbers; give none, or 4");
  if (!s.empty()) options.rope.scaling = Llama3Scaling{s[0], s[1], s[2], int64_t(s[3])};
  return options;
}

nn::Child<nn::Llama> make_llama(const LlamaChoice& choice) { return nn::make<nn::Llama>(choice.options()); }

}  // namespace shardgrad::train
