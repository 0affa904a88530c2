#pragma once
// Language models: predict the token that follows.

#include <shardgrad/train/tasks/supervised.h>

namespace shardgrad::train {

/// The token that follows each one of a text. Fields: tokens i64 (T), and those that follow them, i64 (T), or kIgnored.
/// The model gives a number per token of the vocabulary, (n, T, vocabulary); a language model (nn/language_model.h)
/// gives the loss by itself. Scores: loss (nats per token), perplexity, and where the data knows its labels' bytes
/// bits_per_byte, all over every label that counts, wherever it is.
class NextToken : public Supervised {
 public:
  struct Options {
    int64_t logit_rows = 0;
    void list(OptionList& options);
  };
  explicit NextToken(Model model) : NextToken({}, std::move(model)) {}
  NextToken(Options options, Model model) : Supervised(std::move(model)), options_(options) {}
  void prepare(std::span<const data::Field> fields) override;
  Tensor loss(const data::Batch& batch) override;
  void evaluate(const data::Batch& batch, Sums& sums) override;
  std::vector<Score> scores(const Sums& sums) const override;
  void check(std::span<const data::Field> fields, const data::Batch& batch) override;
  double tokens_per_sample() override { return double(length_); }

 private:
  Tensor loss_of(const data::Batch& batch, double count);
  Options options_;
  int64_t length_ = 0;  // T
  double label_bytes_ = 0;
};

}  // namespace shardgrad::train
