#include <shardgrad/nn/language_model.h>

#include <algorithm>
#include <cmath>

namespace shardgrad::nn {

constexpr double kDeviation = 0.02;

LinearInit usual_init() { return {init::normal(0, kDeviation)}; }
LinearInit residual_init(int64_t layers) { return {init::normal(0, kDeviation / std::sqrt(2.0 * double(layers)))}; }

Tensor LanguageHead::forward(const Tensor& x) {
  return linear(x, vocab_size_ == weight.size(0) ? weight : weight.rows(0, vocab_size_), Tensor());
}

Tensor LanguageHead::forward(const Tensor& x, const Tensor& labels, const LinearCrossEntropyOptions& options) {
  LinearCrossEntropyOptions with_classes = options;
  with_classes.classes = vocab_size_;
  int64_t rows = labels.numel();
  return linear_cross_entropy(reshape(x, {rows, x.size(-1)}), weight, reshape(labels, {rows}), with_classes);
}

LanguageModel::LanguageModel(const Sizes& sizes) : sizes_(sizes) {
  SG_CHECK(sizes.vocab_size > 0 && sizes.max_positions > 0 && sizes.vocab_multiple > 0, "a language model of ",
           sizes.vocab_size, " tokens, padded to a multiple of ", sizes.vocab_multiple, ", and ", sizes.max_positions,
           " positions cannot be; each must be at least 1");
}

int64_t LanguageModel::padded_vocabulary() const {
  return (sizes_.vocab_size + sizes_.vocab_multiple - 1) / sizes_.vocab_multiple * sizes_.vocab_multiple;
}

Tensor attend(const Tensor& qkv, const TextPlace& place, const AttentionOptions& options, std::string_view name) {
  if (place.cache) return place.cache->attend(place.layer, qkv, options);
  return attention(qkv, place.starts, options, name);
}

Tensor LanguageModel::forward(const Tensor& ids, const TextCall& call) {
  check(ids, call);
  Tensor x = features(ids, {.starts = call.cache ? call.cache->starts() : call.starts, .cache = call.cache});
  if (call.cache) call.cache->advance(ids.size(1));
  if (call.last_only) x = slice(x, 1, ids.size(1) - 1, ids.size(1));
  return call.labels.defined() ? head()(x, call.labels, call.loss) : head()(x);
}

// The table refuses them, too, and on a device nobody else does; here it is said before anything runs, and where.
static void check_ids(const Tensor& ids, int64_t vocab_size) {
  if (ids.device() != kCpu) return;
  const int64_t *begin = ids.data<int64_t>(), *end = begin + ids.numel();
  const int64_t* wrong = std::find_if(begin, end, [&](int64_t id) { return id < 0 || id >= vocab_size; });
  SG_CHECK(wrong == end, "token ", *wrong, " in row ", (wrong - begin) / ids.size(1), ", place ",
           (wrong - begin) % ids.size(1), ", is not in the model's vocabulary of ", vocab_size);
}

void LanguageModel::check(const Tensor& ids, const TextCall& call) const {
  SG_CHECK(ids.dtype() == DType::i64 && ids.ndim() == 2, "a language model needs tokens, i64 (rows, tokens), got ",
           ids);
  int64_t before = call.cache ? call.cache->length() : 0;
  SG_CHECK(before + ids.size(1) <= sizes_.max_positions, "the model has ", sizes_.max_positions, " positions; rows of ",
           ids.size(1), " tokens", before > 0 ? concat(" after ", before) : "", " are too long for it");
  SG_CHECK(!call.cache || (!call.labels.defined() && !call.starts.defined()),
           "a call with a cache has neither labels nor starts of its own: a cache serves no training, and has its own");
  SG_CHECK(!call.last_only || ids.size(1) > 0, "rows of no tokens have no last one");
  const Tensor& labels = call.labels;
  SG_CHECK(!labels.defined() || labels.shape() == ids.shape(), "labels ", labels, " do not fit tokens ", ids,
           "; there must be one for each");
  check_ids(ids, sizes_.vocab_size);
}

}  // namespace shardgrad::nn
