#include <shardgrad/optim/joins.h>

#include <algorithm>
#include <numeric>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {

int64_t Joins::add(Row row, int level) {
  rows_.push_back(row);
  levels_.push_back(level);
  return int64_t(levels_.size()) - 1;
}

int64_t Joins::join(int64_t a, int64_t b) {
  return add({a, b}, 1 + std::max(levels_.at(size_t(a)), levels_.at(size_t(b))));
}

int64_t Joins::nothing() { return add({-1, -1}, 1); }

int64_t Joins::tree(std::vector<int64_t> values) {
  if (values.empty()) return nothing();
  while (values.size() > 1) {
    size_t pairs = values.size() / 2, odd = values.size() % 2;
    for (size_t i = 0; i < pairs; ++i) values[i] = join(values[2 * i], values[2 * i + 1]);
    if (odd) values[pairs] = values.back();
    values.resize(pairs + odd);
  }
  return values[0];
}

// A result that nobody else needs is written to its place at once; a copy of any other comes last.
JoinList Joins::finish(std::span<const int64_t> results, Device device) const {
  std::vector<int64_t> place(levels_.size(), -1);
  std::iota(place.begin(), place.begin() + given_, 0);
  std::vector<Row> copies;  // place, value
  for (size_t i = 0; i < results.size(); ++i) {
    int64_t value = results[i], at = given_ + int64_t(i);
    if (place[size_t(value)] < 0)
      place[size_t(value)] = at;
    else
      copies.push_back({at, value});
  }
  int64_t total = given_ + int64_t(results.size());
  for (int64_t& at : place)
    if (at < 0) at = total++;
  SG_CHECK(total <= INT32_MAX, "a norm of ", total, " values is more than a list of joins can name");
  std::vector<size_t> order(rows_.size());
  std::iota(order.begin(), order.end(), size_t(0));
  auto level = [&](size_t row) { return levels_[size_t(given_) + row]; };
  std::ranges::stable_sort(order, {}, level);
  std::vector<int32_t> joins, levels;
  auto add_row = [&](int64_t into, int64_t a, int64_t b) {
    for (int64_t value : {into, a, b}) joins.push_back(int32_t(value));
  };
  auto end_level = [&] { levels.push_back(int32_t(joins.size() / 3)); };
  auto placed = [&](int64_t value) { return value < 0 ? -1 : place[size_t(value)]; };
  for (size_t i = 0; i < order.size(); ++i) {
    size_t row = order[i];
    add_row(place[size_t(given_) + row], placed(rows_[row].a), placed(rows_[row].b));
    if (i + 1 == order.size() || level(order[i + 1]) != level(row)) end_level();
  }
  for (auto [at, value] : copies) add_row(at, placed(value), -1);
  if (!copies.empty()) end_level();
  auto there = [&](const std::vector<int32_t>& list, const Shape& shape) {
    return from_vector<int32_t>(list, shape, {DType::i32, device});
  };
  return {given_, total, there(joins, {int64_t(joins.size()) / 3, 3}), there(levels, {int64_t(levels.size())})};
}

void JoinList::run(const Tensor& values, double p) const {
  if (levels.numel() > 0) launch(kernels::join_values, values, out(values), joins, levels, p);
}

}  // namespace shardgrad::optim
