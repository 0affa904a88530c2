#include <shardgrad/dist/transports/pass_sums.h>

#include <utility>

namespace shardgrad::dist {

bool PassSums::adds_to_last(int64_t pass) const { return !sums_.empty() && sums_.back().is_left_of({0, pass, {}}); }

void PassSums::take(int64_t pass, const Tensor& value) {
  if (adds_to_last(pass)) {
    add_(sums_.back().value, value);
    sums_.back().rise();
  } else {
    // What waits for a neighbour of which no pass has brought anything is the sum of both.
    while (!sums_.empty() && sums_.back().end_with_neighbour() <= pass) {
      sums_.back().rise();
      join_neighbours();
    }
    add_(sums_.emplace_back(Sum{0, pass, {}}).value, value);
  }
  join_neighbours();
}

void PassSums::join_last_two() {
  Tensor last = std::move(sums_.back().value);
  sums_.pop_back();
  add_(sums_.back().value, last);
}

void PassSums::join_neighbours() {
  while (sums_.size() > 1 && sums_[sums_.size() - 2].is_left_of(sums_.back())) {
    join_last_two();
    sums_.back().rise();
  }
}

// From the last one up: an odd last one is carried up until there is one before it.
void PassSums::join(Tensor& total) {
  while (sums_.size() > 1) join_last_two();
  if (sums_.empty()) return;
  Tensor sum = std::move(sums_.back().value);
  sums_.clear();
  add_(total, sum);
}

std::vector<Tensor> PassSums::tensors() const {
  std::vector<Tensor> all;
  for (const Sum& sum : sums_) all.push_back(sum.value);
  return all;
}

}  // namespace shardgrad::dist
