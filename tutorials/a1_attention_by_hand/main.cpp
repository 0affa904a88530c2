// Causal attention of the operations that one knows, with its T² memory in the ledger; then the operation that makes
// none of it. Same numbers, another peak.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/ledger_history.h>
#include <shardgrad/kernels/workspace.h>

using sg::Tensor;

constexpr int64_t kSamples = 2, kHeads = 4, kDepth = 16, kWidth = kHeads * kDepth;

// Columns [begin, begin + kWidth) of qkv as (samples · heads, T, depth).
Tensor heads_of(const Tensor& qkv, int64_t begin) {
  int64_t length = qkv.size(1);
  Tensor rows = reshape(slice(qkv, 2, begin, begin + kWidth), {kSamples, length, kHeads, kDepth});
  return reshape(permute(rows, {0, 2, 1, 3}), {kSamples * kHeads, length, kDepth});
}

// (T, T): 0 where a row may look, minus infinity behind it.
Tensor causal_mask(int64_t length) {
  std::vector<float> mask(size_t(length * length));
  for (int64_t query = 0; query < length; ++query)
    for (int64_t key = 0; key < length; ++key)
      mask[size_t(query * length + key)] = key <= query ? 0 : -std::numeric_limits<float>::infinity();
  return sg::from_vector(mask, {length, length});
}

Tensor attention_by_hand(const Tensor& qkv) {
  int64_t length = qkv.size(1);
  Tensor q = heads_of(qkv, 0), k = heads_of(qkv, kWidth), v = heads_of(qkv, 2 * kWidth);
  Tensor scores = matmul(q, k, false, true) / std::sqrt(double(kDepth));  // (samples · heads, T, T)
  Tensor weights = softmax(scores + causal_mask(length));
  Tensor y = reshape(matmul(weights, v), {kSamples, kHeads, length, kDepth});
  return reshape(permute(y, {0, 2, 1, 3}), {kSamples, length, kWidth});
}

Tensor attention_of_the_library(const Tensor& qkv) { return attention(qkv, Tensor(), {.heads = kHeads}); }

struct Seen {
  std::vector<float> y, gradient;
  double kept, peak;  // MiB beyond qkv: between forward and backward, and at the highest
                      // (without what kernels work in, which is as large as a machine's vectors want it)
};

template <class Attention> Seen look(Attention attend, const Tensor& rows) {
  sg::Ledger& ledger = sg::context().ledger();
  Tensor qkv = clone(rows).set_requires_grad();
  int64_t before = ledger.current();
  sg::LedgerHistory history(ledger, sg::context().recorder());
  Tensor y = attend(qkv);
  double kept = double(ledger.current() - before) / (1 << 20);
  sum(y * y).backward();
  int64_t now = 0, most = 0;
  for (const sg::LedgerChange& change : history.changes())
    if (change.tag.category != sg::Category::workspace) most = std::max(most, now += change.bytes);
  double peak = double(most) / (1 << 20);
  return {y.to_vector<float>(), qkv.grad().to_vector<float>(), kept, peak};
}

// The largest difference, as a part of the largest number.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a[i]) - b[i]));
    largest = std::max(largest, std::abs(double(a[i])));
  }
  return most / largest;
}

// One sample of three places and one head of one number, with a pencil.
void by_pencil() {
  std::vector<float> q{1, 2, 0}, k{1, 0, 1}, v{10, 20, 60};
  for (size_t query = 0; query < 3; ++query) {
    double total = 0, y = 0;
    std::printf("place %zu weighs", query);
    for (size_t key = 0; key <= query; ++key) total += std::exp(q[query] * k[key]);
    for (size_t key = 0; key <= query; ++key) {
      double weight = std::exp(q[query] * k[key]) / total;
      y += weight * v[key];
      std::printf(" %.3f", weight);
    }
    std::printf(" and is %.3f\n", y);
  }
  Tensor qkv = sg::from_vector(std::vector<float>{1, 1, 10, 2, 0, 20, 0, 1, 60}, {1, 3, 3});
  auto y = attention(qkv, Tensor(), {.heads = 1}).to_vector<float>();
  std::printf("the operation: %.3f %.3f %.3f\n\n", y[0], y[1], y[2]);
}

int main() {
  sg::Context context({.seed = 1, .threads = 1});
  by_pencil();
  std::printf("%5s %16s %16s %16s %16s\n", "T", "by hand: kept", "highest", "operation: kept", "highest");
  double most = 0;
  for (int64_t length : {64, 128, 256, 512}) {
    Tensor rows = sg::randn({kSamples, length, 3 * kWidth}, "qkv");
    Seen hand = look(attention_by_hand, rows), library = look(attention_of_the_library, rows);
    std::printf("%5d %16.2f %16.2f %16.2f %16.2f\n", int(length), hand.kept, hand.peak, library.kept, library.peak);
    most = std::max({most, difference(hand.y, library.y), difference(hand.gradient, library.gradient)});
  }
  std::printf("results and gradients agree to a millionth of the largest: %s\n", most < 1e-6 ? "yes" : "no");
}
