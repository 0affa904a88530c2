#include <shardgrad/fsdp/setup/whole_rounds.h>

#include <algorithm>

namespace shardgrad::fsdp {
namespace {

int64_t numel_of(const Spread& spread) {
  int64_t total = 0;
  for (const Extent& part : spread.parts) total += part.count;
  return total;
}

bool of_one_kind(const Spread& a, const Spread& b) { return a.dtype == b.dtype && a.device == b.device; }

}  // namespace

std::vector<WholeRound> plan_rounds(std::span<const WholeTensor> tensors, int ranks) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (numel_of(tensors[i].spread) > 0) order.push_back(i);
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (tensors[a].spread.dtype != tensors[b].spread.dtype) return tensors[a].spread.dtype < tensors[b].spread.dtype;
    return tensors[a].cost > tensors[b].cost;
  });
  std::vector<WholeRound> rounds;
  for (size_t i : order) {
    const Spread& spread = tensors[i].spread;
    bool fits = !rounds.empty() && rounds.back().tensors.size() < size_t(ranks) &&
                of_one_kind(tensors[rounds.back().tensors[0]].spread, spread);
    WholeRound& round = fits ? rounds.back() : rounds.emplace_back();
    round.tensors.push_back(i);
    for (const Extent& part : spread.parts) round.slot = std::max(round.slot, part.count);
  }
  return rounds;
}

void WholeRounds::compute(std::span<const WholeTensor> tensors, WholeWork& work) {
  for (const WholeRound& round : plan_rounds(tensors, ranks_.size())) {
    Tensors of_round;
    for (size_t i : round.tensors) of_round.push_back(&tensors[i]);
    compute_round(of_round, round.slot, work);
  }
}

void WholeRounds::compute_round(const Tensors& tensors, int64_t slot, WholeWork& work) {
  int64_t all = slot * ranks_.size();
  auto mine_of = [&](int k) { return tensors[size_t(k)]->spread.parts[size_t(ranks_.rank())]; };
  int count = int(tensors.size()), rank = ranks_.rank();
  Tensor sent = buffer(all, tensors[0]->spread), arrived;
  for (int k = 0; k < count; ++k)
    if (mine_of(k).count > 0) copy_into(slot_of(sent, k, mine_of(k).count), work.part(tensors[size_t(k)]->index));
  arrived = exchange(sent);
  sent = Tensor();
  if (rank < count) {
    const WholeTensor& own = *tensors[size_t(rank)];
    Tensor result = computed(own, std::exchange(arrived, Tensor()), work);
    sent = buffer(all, own.spread);
    for (int to = 0; to < ranks_.size(); ++to)
      if (auto [begin, length] = own.spread.parts[size_t(to)]; length > 0)
        copy_into(slot_of(sent, to, length), result.rows(begin, begin + length));
  } else {
    sent = std::exchange(arrived, Tensor());  // nobody reads what this rank sends
  }
  arrived = exchange(std::exchange(sent, Tensor()));
  for (int k = 0; k < count; ++k)
    if (mine_of(k).count > 0) work.take(tensors[size_t(k)]->index, slot_of(arrived, k, mine_of(k).count));
}

// Gives back what has arrived before it computes.
Tensor WholeRounds::computed(const WholeTensor& mine, Tensor arrived, WholeWork& work) {
  Tensor whole = empty({numel_of(mine.spread)}, {mine.spread.dtype, mine.spread.device});
  for (int from = 0; from < ranks_.size(); ++from)
    if (auto [begin, count] = mine.spread.parts[size_t(from)]; count > 0)
      copy_into(whole.rows(begin, begin + count), slot_of(arrived, from, count));
  arrived = Tensor();
  return work.compute(mine.index, std::move(whole));
}

Tensor WholeRounds::exchange(const Tensor& sent) {
  Tensor arrived = buffer(sent.numel(), {.dtype = sent.dtype(), .device = sent.device()});
  dist::CollectiveOptions options{{"", "step"}};
  options.detail = "whole tensors";
  ranks_.all_to_all(arrived, sent, options).wait(context().backend(sent.device()).compute());
  return arrived;
}

// In memory that the group sends from without a copy.
Tensor WholeRounds::buffer(int64_t numel, const Spread& like) const {
  size_t bytes = size_t(numel) * size_of(like.dtype);
  return Tensor(Storage::make(bytes, ranks_.memory(), {Category::whole_tensor}), 0, {numel}, like.dtype);
}

// What goes to, or comes from, a rank.
Tensor WholeRounds::slot_of(const Tensor& buffer, int rank, int64_t count) const {
  int64_t begin = buffer.numel() / ranks_.size() * rank;
  return buffer.rows(begin, begin + count);
}

}  // namespace shardgrad::fsdp
