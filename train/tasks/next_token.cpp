#include <shardgrad/train/tasks/next_token.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <shardgrad/autograd/ops.h>

namespace shardgrad::train {
namespace {

void check_fields(std::span<const data::Field> fields) {
  SG_CHECK(fields.size() == 2, "task next_token needs samples of tokens and those that follow; the data has ",
           fields.size(), " fields");
  for (const data::Field& field : fields)
    SG_CHECK(field.dtype == DType::i64 && field.shape.ndim() == 1,
             "task next_token needs tokens, i64 [T]; the data has ", field.dtype, " ", field.shape);
}

}  // namespace

void NextToken::Options::list(OptionList& options) {
  options.add("logit_rows", logit_rows,
              "of a language model: so many tokens' logits at a time are in memory, and made again in backward; 0: all",
              {.low = 0, .high = 1 << 30});
}

void NextToken::prepare(std::span<const data::Field> fields) {
  label_bytes_ = fields.size() == 2 ? fields[1].label_bytes : 0;
  length_ = !fields.empty() && fields[0].shape.ndim() == 1 ? fields[0].shape[0] : 0;
}

// Σ of the losses of this rank's labels, divided by `count`.
Tensor NextToken::loss_of(const data::Batch& batch, double count) {
  const Tensor &tokens = batch.fields[0], &next = batch.fields[1];
  if (const auto& model = model_.language())
    return model(tokens, nn::TextCall{.labels = next, .loss = {.count = count, .rows = options_.logit_rows}});
  Tensor y = at_most_single(model_(tokens));
  return cross_entropy(reshape(y, {next.numel(), y.size(-1)}), reshape(next, {next.numel()}), count);
}

Tensor NextToken::loss(const data::Batch& batch) {
  int64_t labels = batch.global_count * batch.fields[1].size(1) - batch.global_ignored;
  return loss_of(batch, double(std::max<int64_t>(1, labels)));
}

void NextToken::evaluate(const data::Batch& batch, Sums& sums) {
  std::vector<int64_t> labels = batch.fields[1].to_vector<int64_t>();
  sums.add("loss", double(loss_of(batch, 1).item()));
  sums.add("count", double(std::ssize(labels) - std::ranges::count(labels, data::kIgnored)));
}

std::vector<Score> NextToken::scores(const Sums& sums) const {
  double loss = sums["loss"] / sums["count"];
  std::vector<Score> scores{{"loss", loss, false}, {"perplexity", std::exp(loss), false}};
  if (label_bytes_ > 0) scores.push_back({"bits_per_byte", loss / std::numbers::ln2 / label_bytes_, false});
  return scores;
}

void NextToken::check(std::span<const data::Field> fields, const data::Batch& batch) {
  check_fields(fields);
  int64_t ids = fields[1].classes;
  if (const auto& model = model_.language())
    SG_CHECK(ids <= model->vocab_size(), "the data has a vocabulary of ", ids, " tokens, the model one of ",
             model->vocab_size(), "; set model.vocab_size to ", ids, " or more");
  Tensor y = try_model(model_, batch);
  const Tensor& x = batch.fields[0];
  SG_CHECK(y.ndim() == 3 && y.size(0) == 2 && y.size(1) == x.size(1) && y.size(2) >= ids,
           "task next_token needs a number per token of the vocabulary, ", Shape({2, x.size(1), ids}),
           " or more for two samples; the model gives ", y.shape());
}

}  // namespace shardgrad::train
