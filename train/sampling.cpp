#include <shardgrad/train/sampling.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <shardgrad/core/error.h>
#include <shardgrad/core/rng.h>

namespace shardgrad::train {
namespace {

// The first of the largest.
int64_t largest_of(std::span<const float> logits, int64_t sample, int64_t position) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    SG_CHECK(!std::isnan(logits[i]) && logits[i] < INFINITY, "sample ", sample, ", position ", position,
             ": the model gives ", logits[i], " for token ", i, "; no token can be drawn from that");
    if (logits[i] > logits[best]) best = i;
  }
  SG_CHECK(!logits.empty() && std::isfinite(logits[best]), "sample ", sample, ", position ", position,
           ": the model gives -inf for every token; none can be drawn");
  return int64_t(best);
}

// Uniform in [0, 1), with 53 bits.
double uniform(uint64_t seed, int64_t sample, int64_t position) {
  uint64_t stream = stream_of("generate") + uint64_t(sample);
  auto words = philox(seed, stream, uint64_t(position));
  return double((uint64_t(words[0]) << 21) ^ (words[1] >> 11)) * 0x1p-53;
}

struct Candidate {
  int64_t token;
  double weight;
};

// All tokens, or the `count` largest, in order; weights are relative to that of the largest.
std::vector<Candidate> candidates(std::span<const float> logits, double temperature, int64_t count, float largest) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  if (count < std::ssize(order)) {
    auto before = [&](int64_t a, int64_t b) {
      return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
    };
    std::nth_element(order.begin(), order.begin() + count - 1, order.end(), before);
    order.resize(size_t(count));
    std::ranges::sort(order);
  }
  std::vector<Candidate> all;
  all.reserve(order.size());
  for (int64_t token : order)
    all.push_back({token, std::exp((double(logits[size_t(token)]) - double(largest)) / temperature)});
  return all;
}

double sum_of(std::span<const Candidate> all) {
  return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const Candidate& c) { return sum + c.weight; });
}

// Leaves as few of the largest as have at least `share` of all weights together.
void keep_share(std::vector<Candidate>& all, double share) {
  auto below = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
  };
  double wanted = share * sum_of(all), sum = 0;
  std::vector<Candidate> kept;
  std::ranges::make_heap(all, below);
  while (!all.empty() && (kept.empty() || sum < wanted)) {
    std::ranges::pop_heap(all, below);
    kept.push_back(all.back());
    sum += all.back().weight;
    all.pop_back();
  }
  all = std::move(kept);
}

}  // namespace

void check_sampling(const SamplingOptions& o) {
  SG_CHECK(std::isfinite(o.temperature) && o.temperature >= 0, "temperature ", o.temperature,
           " cannot be; it is 0, for the likeliest token, or a positive number");
  SG_CHECK(o.top_k >= 0, "top_k ", o.top_k, " cannot be; it is a number of tokens, or 0 for all");
  SG_CHECK(o.top_p > 0 && o.top_p <= 1, "top_p ", o.top_p, " is not within (0, 1]");
}

int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, int64_t sample, int64_t position) {
  check_sampling(options);
  int64_t best = largest_of(logits, sample, position);
  if (options.temperature == 0 || options.top_k == 1) return best;
  int64_t count = options.top_k > 0 ? options.top_k : std::ssize(logits);
  std::vector<Candidate> all = candidates(logits, options.temperature, count, logits[size_t(best)]);
  if (options.top_p < 1) keep_share(all, options.top_p);
  double left = uniform(options.seed, sample, position) * sum_of(all);
  const Candidate* drawn = nullptr;
  for (const Candidate& each : all) {
    if (each.weight == 0) continue;
    drawn = &each;
    if ((left -= each.weight) < 0) break;
  }
  return drawn->token;
}

}  // namespace shardgrad::train
