// Language models with a cache of keys and values: the logits of every token, however many are read at a time, and the
// bytes that the cache takes. With SHARDGRAD_GEMM=own (nn.kv_cache_own) the bits are equal too.

#include <shardgrad/kernels/choices.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/nn/kv_cache.h>
#include <shardgrad/nn/llama.h>
#include <tests/autograd/support.h>
#include <tests/nn/small_models.h>

namespace shardgrad::test {
namespace {

using nn::KvCache;
using nn::LanguageModel;
using nn::TextCall;

nn::Child<LanguageModel> make_gpt2(int64_t positions = 64) {
  nn::Gpt2Options options = small_gpt2();
  options.n_positions = positions;
  options.vocab_multiple = 16;
  auto model = nn::make<nn::Gpt2>(options);
  model->eval();
  return model;
}
nn::Child<LanguageModel> make_llama(int64_t positions = 64, int64_t kv_heads = 2) {
  nn::LlamaOptions options = small_llama();
  options.max_position_embeddings = positions;
  options.num_key_value_heads = kv_heads;
  auto model = nn::make<nn::Llama>(options);
  model->eval();
  return model;
}
// Weights as large as a trained model's, so that tokens matter.
nn::Child<LanguageModel> widened(nn::Child<LanguageModel> model) {
  model->materialize();
  for (const auto& [name, tensor] : model->named_parameters())
    if (tensor.ndim() == 2) copy_into(tensor, tensor.detach() * 8);
  return model;
}

Tensor tokens_of(int64_t samples, int64_t length) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < samples * length; ++i) ids.push_back(int64_t(philox(5, 1, uint64_t(i))[0] % 50));
  return from_vector(ids, {samples, length});
}

void expect_same(const Tensor& actual, const Tensor& expected, const std::string& what) {
  if (own_products_wanted()) {
    EXPECT_EQ(bits(actual), bits(expected)) << what;
  }
  expect_close(values(actual), values(expected), 1e-5, what);
}

// Reads ids in pieces of these sizes, then one by one.
Tensor in_pieces(const nn::Child<LanguageModel>& model, const Tensor& ids, const std::vector<int64_t>& sizes,
                 const Tensor& starts = Tensor()) {
  KvCache cache(ids.size(1), starts);
  std::vector<Tensor> logits;
  for (int64_t first = 0, n = 0; first < ids.size(1); first += n) {
    n = logits.size() < sizes.size() ? sizes[logits.size()] : 1;
    logits.push_back(model(slice(ids, 1, first, first + n), TextCall{.cache = &cache}));
  }
  EXPECT_EQ(cache.length(), ids.size(1));
  return cat(logits, 1);
}

TEST(KvCacheOfModels, TokensInAnyPiecesHaveTheLogitsOfAllAtOnce) {
  Context context;
  NoGrad no_grad;
  for (const auto& model : {widened(make_gpt2()), widened(make_llama()), widened(make_llama(64, 1))}) {
    Tensor ids = tokens_of(2, 33), whole = model(ids);
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, {20}, {9, 11, 2}})
      expect_same(in_pieces(model, ids, sizes), whole, model->type_name());
  }
}

TEST(KvCacheOfModels, APaddedRowHasTheLogitsOfTheRowAlone) {
  Context context;
  NoGrad no_grad;
  for (const auto& model : {widened(make_gpt2()), widened(make_llama())}) {
    Tensor ids = tokens_of(3, 20), starts = from_vector<int64_t>({0, 7, 13}, {3});
    Tensor together = in_pieces(model, ids, {15}, starts);
    for (int64_t row : {0, 1, 2}) {
      int64_t start = starts.data<int64_t>()[row];
      Tensor alone = in_pieces(model, slice(ids.rows(row, row + 1), 1, start, 20), {15 - start});
      expect_same(slice(together.rows(row, row + 1), 1, start, 20), alone, concat(model->type_name(), " row ", row));
    }
  }
}

TEST(KvCacheOfModels, TheLastTokensLogitsAreThoseOfAll) {
  Context context;
  NoGrad no_grad;
  nn::Child<LanguageModel> model = make_gpt2();
  Tensor ids = tokens_of(2, 9), all = model(ids), last = model(ids, TextCall{.last_only = true});
  EXPECT_EQ(last.shape(), Shape({2, 1, 50}));
  expect_same(last, slice(all, 1, 8, 9), "last");
}

// All that it will ever take is there after the first token, with the table of LLaMA's rotations.
void expect_no_growth(const nn::Child<LanguageModel>& model, int64_t cache_bytes, int64_t beside) {
  Ledger& ledger = context().ledger();
  Tensor token = tokens_of(1, 1);
  model(token);
  int64_t before = ledger.current(), plan = cache_bytes + beside;
  {
    KvCache cache(2010);
    EXPECT_EQ(ledger.current(Category::kv_cache), 0);
    for (int64_t i = 0; i < 2; ++i) model(token, TextCall{.cache = &cache});
    EXPECT_EQ(ledger.current() - before, plan);
    ledger.reset_peaks();
    model(token, TextCall{.cache = &cache});
    int64_t peak = ledger.peak();
    for (int64_t i = 3; i < 2000; ++i) model(token, TextCall{.cache = &cache});
    EXPECT_EQ(ledger.current() - before, plan);
    EXPECT_EQ(ledger.current(Category::kv_cache), cache_bytes);
    EXPECT_EQ(ledger.peak(), peak);
  }
  EXPECT_EQ(ledger.current(), before + beside);
}

TEST(KvCacheOfModels, TwoThousandTokensTakeTheCachesBytesAndNoMore) {
  Context context;
  NoGrad no_grad;
  expect_no_growth(make_gpt2(2100), KvCache::bytes(2, 1, 3, 2010, 8, DType::f32), 0);
  expect_no_growth(make_llama(2100), KvCache::bytes(2, 1, 2, 2010, 8, DType::f32), (2048 - 1) * 8 * 4);
}

TEST(KvCacheOfModels, WhatCannotBeIsRefused) {
  Context context;
  nn::Child<LanguageModel> model = make_gpt2();
  EXPECT_REFUSED(KvCache(0), "cache", "0 positions");
  KvCache cache(5), long_cache(100), other(8, from_vector<int64_t>({0, 1}, {2}));
  Tensor ids = tokens_of(2, 4);
  EXPECT_REFUSED(model(ids, TextCall{.cache = &cache}), "requires grad", "NoGrad");
  NoGrad no_grad;
  model(ids, TextCall{.cache = &cache});
  EXPECT_REFUSED(model(slice(ids, 1, 0, 2), TextCall{.cache = &cache}), "full", "5 places");
  EXPECT_EQ(cache.length(), 4);
  EXPECT_REFUSED(model(ids.rows(0, 1), TextCall{.cache = &cache}), "(1, 3, places, 8)");
  KvCache full(4);
  nn::Child<LanguageModel> llama = make_llama();
  llama(ids, TextCall{.cache = &full});
  EXPECT_REFUSED(llama(slice(ids, 1, 0, 1), TextCall{.cache = &full}), "full", "4 places");
  model(tokens_of(1, 64), TextCall{.cache = &long_cache});
  EXPECT_REFUSED(model(tokens_of(1, 1), TextCall{.cache = &long_cache}), "64 positions", "1 tokens after 64");
  EXPECT_REFUSED(model(ids, TextCall{.labels = ids, .cache = &other}), "labels", "cache");
  EXPECT_REFUSED(model(ids, TextCall{.starts = from_vector<int64_t>({0, 0}, {2}), .cache = &other}), "starts", "cache");
}

}  // namespace
}  // namespace shardgrad::test
