#pragma once
// One suite for every kind of group: each case is a small program that all ranks run. The groups' tests (threads,
// forked processes, MPI) run all of them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist::testing {

struct GroupCase {
  const char* name;
  std::function<void(ProcessGroup&)> run;
};

inline const std::vector<int64_t> kSizes = {0, 1, 3, 17, 2051};
inline const std::vector<DType> kDTypes = {DType::f32, DType::f64, DType::bf16, DType::f16,
                                           DType::i32, DType::i64, DType::u8};

/// Where a tensor of a case lives. `mixed`: odd ranks in group memory, even ranks outside.
enum class Where { group_memory, plain, mixed };

inline Tensor make(ProcessGroup& group, int64_t n, DType dtype, Where where) {
  bool inside = where == Where::group_memory || (where == Where::mixed && group.rank() % 2 == 1);
  size_t bytes = size_t(n) * size_of(dtype);
  if (!inside) return empty({n}, {dtype, kCpu});
  return Tensor(Storage::make(bytes, group.memory(), {Category::communication, 0}), 0, {n}, dtype);
}

/// Rank `rank`'s n values: a function of (rank, index). Floats of all sizes, so that the order of a sum shows.
template <class T> std::vector<T> values(int rank, int64_t n) {
  std::vector<T> result(static_cast<size_t>(n));
  for (size_t i = 0; i < result.size(); ++i) {
    uint64_t bits = (i + 1) * 0x9e3779b97f4a7c15u + uint64_t(rank) * 0xbf58476d1ce4e5b9u;  // cheap: there are millions
    bits = (bits ^ bits >> 29) * 0x94d049bb133111ebu;
    double x = (double(bits >> 11) * 0x1p-52 - 1) * double(1 << bits % 8);
    if constexpr (std::is_integral_v<T>)
      result[i] = T(bits % 100);
    else
      result[i] = T(float(x));
  }
  return result;
}

/// The sum over ranks of `n` values each, in tree order, one level at a time.
template <class T> std::vector<T> reduced(int size, int64_t n) {
  using A = std::conditional_t<sizeof(T) == 2, float, T>;
  std::vector<std::vector<A>> level;
  for (int r = 0; r < size; ++r) {
    level.emplace_back();
    for (T value : values<T>(r, n)) level.back().push_back(A(value));
  }
  while (level.size() > 1) {
    std::vector<std::vector<A>> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      next.push_back(level[i]);
      if (i + 1 == level.size()) break;  // an odd last one is carried up
      for (size_t k = 0; k < level[i].size(); ++k) next.back()[k] = A(level[i][k] + level[i + 1][k]);
    }
    level = next;
  }
  std::vector<T> result;
  for (A value : level[0]) result.push_back(T(value));
  return result;
}

template <class T> void fill(const Tensor& t, const std::vector<T>& from) {
  copy_into(t, from_vector(from, t.shape()));
}

/// Bits, so that -0 differs from 0 and NaN equals NaN.
template <class T> void expect_same_bits(const Tensor& t, const std::vector<T>& expected, const std::string& what) {
  std::vector<T> actual = t.to_vector<T>();
  ASSERT_EQ(actual.size(), expected.size()) << what;
  bool same = actual.empty() || std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(T)) == 0;
  EXPECT_TRUE(same) << what;
}

/// Group memory is different from other memory in some groups only.
inline std::vector<Where> places(const ProcessGroup& group) {
  if (group.kind() == "shared_memory" || group.kind() == "two_level")
    return {Where::group_memory, Where::plain, Where::mixed};
  return {Where::group_memory};
}

/// Calls body.operator()<T>(n, place, text) for every dtype, size and place.
template <class Body> void for_all(ProcessGroup& group, Body&& body) {
  for (DType dtype : kDTypes)
    for (int64_t n : kSizes)
      for (Where place : places(group))
        dispatch(dtype, [&]<class T>() {
          body.template operator()<T>(n, place, concat(dtype, " n=", n, " place ", int(place), " rank ", group.rank()));
        });
}

template <class T> std::vector<T> slice(const std::vector<T>& all, int64_t begin, int64_t n) {
  return {all.begin() + begin, all.begin() + begin + n};
}

inline void all_gather_puts_shards_in_rank_order(ProcessGroup& group) {
  for_all(group, [&]<class T>(int64_t n, Where place, const std::string& what) {
    std::vector<T> expected;
    for (int r = 0; r < group.size(); ++r) {
      std::vector<T> part = values<T>(r, n);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    Tensor full = make(group, n * group.size(), dtype_of<T>, place), shard = make(group, n, dtype_of<T>, place);
    fill(shard, values<T>(group.rank(), n));
    group.all_gather(full, shard).host_wait();
    expect_same_bits(full, expected, what);

    Tensor own = make(group, n * group.size(), dtype_of<T>, place);
    Tensor slice = own.rows(n * group.rank(), n * (group.rank() + 1));
    fill(slice, values<T>(group.rank(), n));
    group.all_gather(own, slice).host_wait();
    expect_same_bits(own, expected, what + " in place");
  });
}

// Buffers of two dtypes and sizes, one of them without elements.
inline void all_gather_of_several_buffers_is_one_call(ProcessGroup& group) {
  int64_t size = group.size();
  for (Where place : {Where::group_memory, Where::plain, Where::mixed}) {
    std::vector<ProcessGroup::GatherOf> buffers;
    for (auto [n, dtype] :
         {std::pair(int64_t(2051), DType::f32), std::pair(int64_t(0), DType::f32), std::pair(int64_t(17), DType::i64)})
      buffers.push_back({make(group, n * size, dtype, place), make(group, n, dtype, place)});
    fill(buffers[0].shard, values<float>(group.rank(), 2051));
    fill(buffers[2].shard, values<int64_t>(group.rank(), 17));
    context().recorder().clear();
    group.all_gather(buffers, Label{"u", "forward"}).host_wait();
    std::vector<Record> records = context().recorder().records();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].elements, (2051 + 17) * size);
    EXPECT_EQ(records[0].bytes_sent, (2051 * 4 + 17 * 8) * (size - 1));
    std::vector<float> floats;
    std::vector<int64_t> integers;
    for (int r = 0; r < group.size(); ++r) {
      std::ranges::copy(values<float>(r, 2051), std::back_inserter(floats));
      std::ranges::copy(values<int64_t>(r, 17), std::back_inserter(integers));
    }
    expect_same_bits(buffers[0].full, floats, "f32");
    expect_same_bits(buffers[2].full, integers, "i64");
  }
}

inline void reduce_scatter_sums_in_tree_order(ProcessGroup& group) {
  for_all(group, [&]<class T>(int64_t n, Where place, const std::string& what) {
    int64_t total = n * group.size();
    std::vector<T> expected = slice(reduced<T>(group.size(), total), n * group.rank(), n);
    Tensor full = make(group, total, dtype_of<T>, place), shard = make(group, n, dtype_of<T>, place);
    fill(full, values<T>(group.rank(), total));
    group.reduce_scatter(shard, full).host_wait();
    expect_same_bits(shard, expected, what);
    expect_same_bits(full, values<T>(group.rank(), total), what + " leaves its input alone");

    Tensor own = full.rows(n * group.rank(), n * (group.rank() + 1));
    group.reduce_scatter(own, full).host_wait();
    expect_same_bits(own, expected, what + " in place");
  });
}

inline void all_reduce_sums_in_tree_order(ProcessGroup& group) {
  for_all(group, [&]<class T>(int64_t n, Where place, const std::string& what) {
    Tensor t = make(group, n, dtype_of<T>, place);
    fill(t, values<T>(group.rank(), n));
    group.all_reduce(t).host_wait();
    expect_same_bits(t, reduced<T>(group.size(), n), what);
  });
}

inline void broadcast_copies_the_root(ProcessGroup& group) {
  for (int root = 0; root < group.size(); ++root)
    for_all(group, [&]<class T>(int64_t n, Where place, const std::string& what) {
      Tensor t = make(group, n, dtype_of<T>, place);
      fill(t, values<T>(group.rank(), n));
      group.broadcast(t, root).host_wait();
      expect_same_bits(t, values<T>(root, n), what + concat(" root ", root));
    });
}

inline void all_to_all_transposes(ProcessGroup& group) {
  for_all(group, [&]<class T>(int64_t n, Where place, const std::string& what) {
    int64_t total = n * group.size();
    std::vector<T> expected;
    for (int r = 0; r < group.size(); ++r)
      for (T value : slice(values<T>(r, total), n * group.rank(), n)) expected.push_back(value);
    Tensor in = make(group, total, dtype_of<T>, place), out = make(group, total, dtype_of<T>, place);
    fill(in, values<T>(group.rank(), total));
    group.all_to_all(out, in).host_wait();
    expect_same_bits(out, expected, what);
  });
}

/// Larger than a bounce region, so that staged buffers take several rounds, the last one odd.
/// n numbers: these again and again. For buffers that are large.
template <class T> std::vector<T> repeated(const std::vector<T>& period, int64_t n) {
  std::vector<T> result;
  for (result.reserve(size_t(n)); int64_t(result.size()) < n;) {
    int64_t more = std::min(int64_t(period.size()), n - int64_t(result.size()));
    result.insert(result.end(), period.begin(), period.begin() + more);
  }
  return result;
}

// More than a megabyte from each rank, which groups send in several pieces. The period is prime, so that a piece in the
// place of another is seen.
inline void large_buffers_arrive_whole(ProcessGroup& group) {
  constexpr int64_t kCount = 300'003, kPeriod = 4099;
  int64_t total = kCount * group.size(), begin = kCount * group.rank();
  std::vector<float> own = repeated(values<float>(group.rank(), kPeriod), total);
  std::vector<float> sum = repeated(reduced<float>(group.size(), kPeriod), total);
  for (Where place : places(group)) {
    std::string what = concat("place ", int(place));
    Tensor full = make(group, total, DType::f32, place), shard = make(group, kCount, DType::f32, place);
    fill(full, own);
    group.reduce_scatter(shard, full).host_wait();
    expect_same_bits(shard, slice(sum, begin, kCount), "reduce_scatter, " + what);
    group.all_reduce(full).host_wait();
    expect_same_bits(full, sum, "all_reduce, " + what);
    fill(full, std::vector<float>(size_t(total), -1.f));
    group.all_gather(full, shard).host_wait();
    expect_same_bits(full, sum, "all_gather, " + what);
    Tensor out = make(group, total, DType::f32, place);
    group.all_to_all(out, full).host_wait();
    for (int r = 0; r < group.size(); ++r)
      expect_same_bits(out.rows(kCount * r, kCount * (r + 1)), slice(sum, begin, kCount), "all_to_all, " + what);
    if (group.rank() == group.size() - 1)
      fill(out, sum);
    else
      fill(out, std::vector<float>(size_t(total), -1.f));
    group.broadcast(out, group.size() - 1).host_wait();
    expect_same_bits(out, sum, "broadcast, " + what);
  }
}

inline void queued_collectives_run_in_order(ProcessGroup& group) {
  constexpr int kCalls = 50;
  int64_t n = 33;
  std::vector<Tensor> tensors;
  for (int i = 0; i < kCalls; ++i) {
    tensors.push_back(make(group, n, DType::i64, Where::group_memory));
    fill(tensors.back(), std::vector<int64_t>(size_t(n), i + group.rank()));
    group.all_reduce(tensors.back());
  }
  group.barrier();
  int64_t ranks = group.size();
  for (int i = 0; i < kCalls; ++i)
    expect_same_bits(tensors[size_t(i)], std::vector<int64_t>(size_t(n), i * ranks + ranks * (ranks - 1) / 2),
                     concat("call ", i));
}

inline void expect_sum_of_members(ProcessGroup& group) {
  int64_t expected = 0;
  for (int r = 0; r < group.size(); ++r) expected += group.global_rank(r);
  Tensor t = from_vector<int64_t>({group.global_rank(group.rank())}, {1});
  group.all_reduce(t).host_wait();
  EXPECT_EQ(t.item(), double(expected));
}

inline void split_groups_are_groups(ProcessGroup& group) {
  auto parity = group.split(group.rank() % 2, group.rank());
  EXPECT_EQ(parity->size(), (group.size() + 1 - group.rank() % 2) / 2);
  EXPECT_EQ(parity->global_rank(parity->rank()), group.global_rank(group.rank()));
  expect_sum_of_members(*parity);
  reduce_scatter_sums_in_tree_order(*parity);

  auto reversed = group.split(0, -group.rank());
  EXPECT_EQ(reversed->rank(), group.size() - 1 - group.rank());
  Tensor t = from_vector<int64_t>({group.rank()}, {1});
  reversed->broadcast(t, 0).host_wait();
  EXPECT_EQ(t.item(), group.size() - 1);

  auto alone = parity->split(parity->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  expect_sum_of_members(*alone);
  expect_sum_of_members(group);
}

/// Two groups of a rank do not wait for each other: ranks may queue their calls in any order between groups.
inline void groups_run_beside_each_other(ProcessGroup& group) {
  auto rows = group.split(group.rank() / 2, 0), columns = group.split(group.rank() % 2, 0);
  for (int i = 0; i < 20; ++i) {
    Tensor a = from_vector<int32_t>({1}, {1}), b = from_vector<int32_t>({1}, {1});
    bool rows_first = (group.rank() + i) % 2 == 0;
    Work first = rows_first ? rows->all_reduce(a) : columns->all_reduce(b);
    Work second = rows_first ? columns->all_reduce(b) : rows->all_reduce(a);
    second.host_wait();
    first.host_wait();
    EXPECT_EQ(a.item(), rows->size());
    EXPECT_EQ(b.item(), columns->size());
  }
}

/// The message of the Error(input) that `call` throws.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

inline void misuse_is_refused_by_name(ProcessGroup& group) {
  int size = group.size();
  Tensor shard = empty({5}), full = empty({5 * size}), wrong = empty({5 * size + 1});
  Tensor other = empty({5 * size}, DType::i32);
  std::string text = refusal([&] { group.all_gather(wrong, shard, Label{"layers.0", "forward"}); });
  EXPECT_NE(text.find(concat("all_gather on rank ", group.rank(), " of ", size, " (unit 'layers.0')")), text.npos)
      << text;
  EXPECT_NE(text.find(concat("f32[", 5 * size + 1, "]")), text.npos) << text;
  EXPECT_NE(text.find("f32[5]"), text.npos) << text;
  EXPECT_NE(refusal([&] { group.all_gather(other, shard); }).find("i32"), text.npos);
  EXPECT_NE(refusal([&] { group.reduce_scatter(shard, wrong); }).find("reduce_scatter"), text.npos);
  EXPECT_NE(refusal([&] { group.broadcast(full, size); }).find(concat("root ", size)), text.npos);
  EXPECT_NE(refusal([&] { group.all_to_all(wrong, full); }).find("all_to_all"), text.npos);
  EXPECT_NE(refusal([&] { group.all_to_all(full, full); }).find("overlap"), text.npos);
  if (size > 1) {
    Tensor middle = full.rows(2, 7);
    EXPECT_NE(refusal([&] { group.all_gather(full, middle); }).find("overlaps full"), text.npos);
  }
  Tensor elsewhere = empty({5}, kMeta);
  EXPECT_NE(refusal([&] { group.all_gather(full, elsewhere); }).find("meta"), text.npos);
  EXPECT_NE(refusal([&] { group.all_reduce(Tensor()); }).find("undefined"), text.npos);
  for (const auto& [out, in] : {std::pair{full, Tensor()}, {Tensor(), full}})
    EXPECT_NE(refusal([&, out = out, in = in] { group.all_to_all(out, in); }).find("an operand is undefined"),
              text.npos);
  group.barrier();
}

inline void records_name_every_call_and_its_exact_bytes(ProcessGroup& group) {
  Context& ctx = context();
  ctx.recorder().clear();
  int64_t before = ctx.recorder().total_bytes_sent(), size = group.size();
  Tensor full = empty({12 * size}), shard = empty({12});
  group.all_gather(full, shard, Label{"u1", "forward"});
  group.reduce_scatter(shard, full, Label{"u1", "backward"});
  group.barrier();
  std::vector<Record> records = ctx.recorder().records();
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0].op, "all_gather");
  EXPECT_EQ(records[0].unit, "u1");
  EXPECT_EQ(records[0].phase, "forward");
  EXPECT_EQ(records[1].op, "reduce_scatter");
  for (int i : {0, 1}) {
    EXPECT_EQ(records[size_t(i)].elements, 12 * size);
    EXPECT_EQ(records[size_t(i)].bytes_sent, 12 * size * 4 * (size - 1) / size);
    EXPECT_GE(records[size_t(i)].end, records[size_t(i)].begin);
  }
  EXPECT_EQ(ctx.recorder().total_bytes_sent() - before, 2 * 12 * 4 * (size - 1));
}

// Of elements that do not divide by the ranks each goes to the rank that sums it, and from there to all.
inline void an_all_reduce_records_what_each_rank_sends(ProcessGroup& group) {
  context().recorder().clear();
  group.all_reduce(empty({7})).host_wait();
  int64_t sent = 0;
  for (int64_t bytes : group.share<int64_t>({context().recorder().records().at(0).bytes_sent}, {})) sent += bytes;
  EXPECT_EQ(sent, 2 * 7 * 4 * (group.size() - 1));
}

inline void meta_is_recorded_and_not_moved(ProcessGroup& group) {
  Context& ctx = context();
  ctx.recorder().clear();
  int64_t huge = int64_t(1) << 40;
  Tensor full = empty({huge * group.size()}, kMeta), shard = empty({huge}, kMeta);
  EXPECT_TRUE(group.all_gather(full, shard, Label{"u", "forward"}).done());
  EXPECT_EQ(ctx.recorder().records().at(0).bytes_sent, huge * 4 * (group.size() - 1));
}

inline const std::vector<GroupCase>& group_cases() {
  static const std::vector<GroupCase> cases = {
      {"all_gather_puts_shards_in_rank_order", all_gather_puts_shards_in_rank_order},
      {"all_gather_of_several_buffers_is_one_call", all_gather_of_several_buffers_is_one_call},
      {"reduce_scatter_sums_in_tree_order", reduce_scatter_sums_in_tree_order},
      {"all_reduce_sums_in_tree_order", all_reduce_sums_in_tree_order},
      {"broadcast_copies_the_root", broadcast_copies_the_root},
      {"all_to_all_transposes", all_to_all_transposes},
      {"large_buffers_arrive_whole", large_buffers_arrive_whole},
      {"queued_collectives_run_in_order", queued_collectives_run_in_order},
      {"split_groups_are_groups", split_groups_are_groups},
      {"groups_run_beside_each_other", groups_run_beside_each_other},
      {"misuse_is_refused_by_name", misuse_is_refused_by_name},
      {"records_name_every_call_and_its_exact_bytes", records_name_every_call_and_its_exact_bytes},
      {"an_all_reduce_records_what_each_rank_sends", an_all_reduce_records_what_each_rank_sends},
      {"meta_is_recorded_and_not_moved", meta_is_recorded_and_not_moved},
  };
  return cases;
}

}  // namespace shardgrad::dist::testing
