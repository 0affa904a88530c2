#pragma once
// Counts of bytes above 2^31, for groups of every kind. Slow, and takes 3.3 GB a rank and more for more than two.

#include <tests/dist/group/group_cases.h>

namespace shardgrad::dist::testing {

/// Every rank's contribution is checked at both ends of each slice.
inline void counts_above_2_to_31_bytes(ProcessGroup& group) {
  int64_t n = 1'100'000'001, size = group.size(), rank = group.rank();
  auto make = [&](int64_t count) {
    return Tensor(Storage::make(size_t(count), group.memory(), {}), 0, {count}, DType::u8);
  };
  Tensor full = make(n * size);
  uint8_t* data = full.data<uint8_t>();
  std::fill(data + n * rank, data + n * (rank + 1), uint8_t(rank + 1));
  group.all_gather(full, full.rows(n * rank, n * (rank + 1))).host_wait();
  auto expect_ends = [&](int64_t factor, const char* what) {
    for (int64_t r = 0; r < size; ++r)
      for (int64_t i : {n * r, n * (r + 1) - 1})
        EXPECT_EQ(data[i], factor * (r + 1)) << what << ": slice " << r << " is wrong at " << i;
  };
  expect_ends(1, "all_gather");
  if (rank != 0) std::fill(data, data + full.numel(), uint8_t(0));
  group.broadcast(full, 0).host_wait();
  expect_ends(1, "broadcast");
  group.all_reduce(full).host_wait();
  expect_ends(size, "all_reduce");
  Tensor shard = make(n);
  group.reduce_scatter(shard, full).host_wait();
  for (int64_t i : {int64_t(0), n - 1})
    EXPECT_EQ(shard.data<uint8_t>()[i], uint8_t(size * size * (rank + 1))) << "reduce_scatter";
}

}  // namespace shardgrad::dist::testing
