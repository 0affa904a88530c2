#include <shardgrad/train/generate.h>

#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/nn/kv_cache.h>
#include <shardgrad/train/evaluation_mode.h>
#include <shardgrad/train/text/utf8.h>

namespace shardgrad::train {
namespace {

int64_t longest_of(const std::vector<Tokens>& prompts) {
  return std::ssize(*std::ranges::max_element(prompts, {}, [](const Tokens& prompt) { return prompt.size(); }));
}

void check_prompts(const nn::LanguageModel& model, const std::vector<Tokens>& prompts, const GenerateOptions& options) {
  check_sampling(options.sampling);
  SG_CHECK(options.tokens > 0, "generate: ", options.tokens, " tokens cannot be generated; ask for 1 or more");
  SG_CHECK(!prompts.empty(), "generate: there is no prompt");
  for (size_t i = 0; i < prompts.size(); ++i) {
    SG_CHECK(!prompts[i].empty(), "generate: prompt ", i, " is empty; a model goes on from one token or more");
    for (int64_t token : prompts[i])
      SG_CHECK(token >= 0 && token < model.vocab_size(), "generate: prompt ", i, " has token ", token,
               ", and the model a vocabulary of ", model.vocab_size());
  }
  for (int64_t token : options.suppress)
    SG_CHECK(token >= 0 && token < model.vocab_size(), "generate: token ", token,
             " is to be suppressed, and the model has a vocabulary of ", model.vocab_size());
  int64_t longest = longest_of(prompts), positions = model.max_positions();
  SG_CHECK(longest <= positions, "generate: a prompt of ", longest, " tokens is longer than the ", positions,
           " positions that the model has");
  // the last token that is generated is not read
  SG_CHECK(options.tokens <= positions - longest + 1, "generate: ", options.tokens, " tokens after a prompt of ",
           longest, " are more than the ", positions, " positions that the model has; ask for at most ",
           positions - longest + 1);
}

// Prompts end together; what stands before shorter ones is padding.
struct Padded {
  Tensor ids, starts;
};
Padded padded(const std::vector<Tokens>& prompts, Device device) {
  int64_t longest = longest_of(prompts), count = std::ssize(prompts);
  Tokens ids, starts;
  for (const Tokens& prompt : prompts) {
    starts.push_back(longest - std::ssize(prompt));
    ids.insert(ids.end(), size_t(starts.back()), 0);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
  }
  bool equal = std::ranges::all_of(starts, [](int64_t start) { return start == 0; });
  return {from_vector(ids, {count, longest}, {DType::i64, device}),
          equal ? Tensor() : from_vector(starts, {count}, {DType::i64, device})};
}

// One call of generate.
class Generation {
 public:
  Generation(const std::vector<Tokens>& prompts, const GenerateOptions& options, const OnToken& on_token)
      : prompts_(prompts), options_(options), on_token_(on_token), texts_(prompts.size()), done_(prompts.size()) {}

  // The next token of each prompt, (prompts, 1), from logits (prompts, 1, vocabulary).
  Tensor next(const Tensor& logits) {
    int64_t width = logits.size(-1);
    std::vector<float> numbers = logits.to(DType::f32).to_vector<float>();
    Tokens drawn(prompts_.size());
    for (size_t i = 0; i < drawn.size(); ++i) {
      auto row = std::span(numbers).subspan(i * size_t(width), size_t(width));
      for (int64_t token : options_.suppress) row[size_t(token)] = -INFINITY;
      int64_t position = std::ssize(prompts_[i]) + std::ssize(texts_[i]);
      drawn[i] = sample_token(row, options_.sampling, int64_t(i), position);
    }
    if (options_.agree) drawn = options_.agree(drawn);
    for (size_t i = 0; i < drawn.size(); ++i) take(i, drawn[i]);
    return from_vector(drawn, {std::ssize(drawn), 1}, {DType::i64, logits.device()});
  }
  bool done() const {
    return std::ranges::all_of(done_, [](bool each) { return each; });
  }
  std::vector<Tokens> texts() { return std::move(texts_); }

 private:
  void take(size_t prompt, int64_t token) {
    if (done_[prompt]) return;
    texts_[prompt].push_back(token);
    bool stops = std::ranges::find(options_.stop, token) != options_.stop.end();
    done_[prompt] = stops || std::ssize(texts_[prompt]) == options_.tokens;
    if (on_token_) on_token_(int64_t(prompt), token);
  }

  const std::vector<Tokens>& prompts_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  std::vector<Tokens> texts_;
  std::vector<bool> done_;
};

}  // namespace

std::vector<Tokens> generate(const nn::Child<nn::LanguageModel>& model, const std::vector<Tokens>& prompts,
                             const GenerateOptions& options, const OnToken& on_token) {
  check_prompts(*model, prompts, options);
  NoGrad no_grad;
  EvaluationMode evaluating(*model);
  Device device = model->named_parameters().front().tensor.device();
  auto [ids, starts] = padded(prompts, device);
  nn::KvCache cache(ids.size(1) + options.tokens - 1, starts);
  Generation generation(prompts, options, on_token);
  for (Tensor read = ids;;) {
    read = generation.next(model(read, nn::TextCall{.cache = &cache, .last_only = true}));
    if (generation.done()) return generation.texts();
  }
}

std::vector<std::string> generate(const nn::Child<nn::LanguageModel>& model, const text::Tokenizer& tokenizer,
                                  const std::vector<std::string>& prompts, const GenerateOptions& options,
                                  const OnText& on_text) {
  std::vector<Tokens> ids;
  for (const std::string& prompt : prompts) ids.push_back(tokenizer.encode(prompt, {.add_special = true}));
  std::vector<text::Utf8Stream> streams(prompts.size());
  auto tell = [&](int64_t prompt, int64_t token) {
    const text::Token& known = tokenizer.token(token);
    std::string text = known.special ? "" : streams[size_t(prompt)].add(known.bytes);
    if (on_text && !text.empty()) on_text(prompt, text);
  };
  GenerateOptions known = options;
  for (int64_t token = 0; token < model->vocab_size(); ++token)
    if (!tokenizer.has(token)) known.suppress.push_back(token);
  std::vector<std::string> texts;
  for (const Tokens& tokens : generate(model, ids, known, tell)) texts.push_back(tokenizer.decode(tokens));
  for (size_t i = 0; i < streams.size(); ++i)
    if (std::string rest = streams[i].finish(); on_text && !rest.empty()) on_text(int64_t(i), rest);
  return texts;
}

}  // namespace shardgrad::train
