#pragma once
// Reference versions of attention and its backward; contracts in kernels/ops.h.

#include <algorithm>
#include <cmath>
#include <vector>

#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/certify/reference/rows.h>

namespace shardgrad::reference {

/// A query: one head's at one place of a sample.
struct Query {
  int64_t sample, head, place;
};

struct Attention {
  std::vector<double> qkv;
  View starts;
  kernels::AttentionArgs args;
  int64_t samples, places, row, depth;

  Attention(const View& x, const View& starts, const kernels::AttentionArgs& args)
      : qkv(numbers_of(x)),
        starts(starts),
        args(args),
        samples(x.shape[0]),
        places(x.shape[1]),
        row(x.shape[2]),
        depth(row / (args.heads + 2 * args.kv_heads)) {}

  template <class Visit> void for_each_query(const Visit& visit) const {
    for (int64_t s = 0; s < samples; ++s)
      for (int64_t h = 0; h < args.heads; ++h)
        for (int64_t i = 0; i < places; ++i) visit(Query{s, h, i});
  }
  int64_t start(const Query& of) const { return starts.defined() ? get_integer(starts, of.sample) : 0; }
  /// Where in qkv the query lies, and the key and value at place j that it meets.
  int64_t q(const Query& of) const { return (of.sample * places + of.place) * row + of.head * depth; }
  int64_t k(const Query& of, int64_t j) const {
    return (of.sample * places + j) * row + (args.heads + of.head / (args.heads / args.kv_heads)) * depth;
  }
  int64_t v(const Query& of, int64_t j) const { return k(of, j) + args.kv_heads * depth; }
  /// Where in y and in lse its results lie.
  int64_t y(const Query& of) const { return ((of.sample * places + of.place) * args.heads + of.head) * depth; }
  int64_t lse(const Query& of) const { return (of.sample * args.heads + of.head) * places + of.place; }

  double score(const Query& of, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < depth; ++c) sum += qkv[size_t(q(of) + c)] * qkv[size_t(k(of, j) + c)];
    return args.scale * sum;
  }
  /// The value times what dropout makes of a weight of 1.
  double dropped(const Query& of, int64_t j, double value) const {
    if (args.dropout == 0) return value;
    int64_t i = ((args.first_sample + of.sample) * args.heads + of.head) * places + of.place;
    return uniform_at(args.seed, args.stream, i * places + j) >= args.dropout ? value / (1 - args.dropout) : 0;
  }
};

inline void attention(OutView y, OutView lse, View qkv, View starts, kernels::AttentionArgs args) {
  if (qkv.numel() == 0) return;
  Attention a(qkv, starts, args);
  a.for_each_query([&](const Query& of) {
    std::vector<double> scores, result(static_cast<size_t>(a.depth));
    for (int64_t j = a.start(of); j <= of.place; ++j) scores.push_back(a.score(of, j));
    double top = -INFINITY, sum = 0;
    for (double score : scores) top = std::max(top, score);
    for (double score : scores) sum += std::exp(score - top);
    for (size_t n = 0; n < scores.size(); ++n) {
      int64_t j = a.start(of) + int64_t(n);
      double weight = a.dropped(of, j, std::exp(scores[n] - top));
      for (int64_t c = 0; c < a.depth; ++c) result[size_t(c)] += weight * a.qkv[size_t(a.v(of, j) + c)];
    }
    for (int64_t c = 0; c < a.depth; ++c) put(y, a.y(of) + c, scores.empty() ? 0 : result[size_t(c)] / sum);
    put_wanted(lse, a.lse(of), scores.empty() ? 0 : top + std::log(sum));
  });
}

inline void attention_backward(OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                               kernels::AttentionArgs args) {
  if (qkv.numel() == 0) return;
  Attention a(qkv, starts, args);
  std::vector<double> gradient(a.qkv.size()), upstream = numbers_of(dy), made = numbers_of(y);
  a.for_each_query([&](const Query& of) {
    double mean = 0;
    for (int64_t c = 0; c < a.depth; ++c) mean += upstream[size_t(a.y(of) + c)] * made[size_t(a.y(of) + c)];
    for (int64_t j = a.start(of); j <= of.place; ++j) {
      double p = std::exp(a.score(of, j) - get(lse, a.lse(of))), weight = a.dropped(of, j, p), slope = 0;
      for (int64_t c = 0; c < a.depth; ++c) {
        double g = upstream[size_t(a.y(of) + c)];
        slope += g * a.qkv[size_t(a.v(of, j) + c)];
        gradient[size_t(a.v(of, j) + c)] += weight * g;
      }
      double of_score = args.scale * p * (a.dropped(of, j, slope) - mean);
      for (int64_t c = 0; c < a.depth; ++c) {
        gradient[size_t(a.q(of) + c)] += of_score * a.qkv[size_t(a.k(of, j) + c)];
        gradient[size_t(a.k(of, j) + c)] += of_score * a.qkv[size_t(a.q(of) + c)];
      }
    }
  });
  for (size_t i = 0; i < gradient.size(); ++i) put(dqkv, int64_t(i), gradient[i]);
}

inline void attention_cached(OutView y, View qkv, View keys, View values, View starts,
                             kernels::CachedAttentionArgs args) {
  int64_t rows = qkv.shape[1], places = keys.shape[2], depth = keys.shape[3], row = qkv.shape[2];
  for (int64_t i = 0; i < qkv.shape[0] * rows * args.heads; ++i) {
    int64_t head = i % args.heads, t = i / args.heads % rows, sample = i / args.heads / rows;
    int64_t cache = (sample * args.kv_heads + head / (args.heads / args.kv_heads)) * places;
    std::vector<double> scores, result(static_cast<size_t>(depth));
    int64_t start = starts.defined() ? get_integer(starts, sample) : 0;
    double top = -INFINITY, sum = 0;
    for (int64_t j = start; j <= args.first + t; ++j) {
      double score = 0;
      for (int64_t c = 0; c < depth; ++c)
        score += get(qkv, (sample * rows + t) * row + head * depth + c) * get(keys, (cache + j) * depth + c);
      scores.push_back(args.scale * score);
      top = std::max(top, scores.back());
    }
    for (size_t n = 0; n < scores.size(); ++n) {
      double weight = std::exp(scores[n] - top);
      sum += weight;
      for (int64_t c = 0; c < depth; ++c)
        result[size_t(c)] += weight * get(values, (cache + start + int64_t(n)) * depth + c);
    }
    for (int64_t c = 0; c < depth; ++c) put(y, i * depth + c, scores.empty() ? 0 : result[size_t(c)] / sum);
  }
}

}  // namespace shardgrad::reference
