// attention and its backward. A task is a head of a sample, in backward the heads that share keys and values, whose
// gradients one thread sums in the order of the heads. A thread takes neighbouring tasks, and brings keys and values
// that they share once.

#include <cmath>
#include <cstring>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::AttentionArgs;

// Where heads lie in qkv (batch, length, row) and y (batch, length, y_row).
struct Heads {
  int64_t batch, length, heads, kv_heads, group, row, depth, y_row;
  int type;
  size_t size, statistic;  // bytes of an element, and of one of lse

  Heads(const View& qkv, const AttentionArgs& args)
      : batch(qkv.shape[0]),
        length(qkv.shape[1]),
        heads(args.heads),
        kv_heads(args.kv_heads),
        group(heads / kv_heads),
        row(qkv.shape[2]),
        depth(row / (heads + 2 * kv_heads)),
        y_row(heads * depth),
        type(int(qkv.dtype)),
        size(size_of(qkv.dtype)),
        statistic(qkv.dtype == DType::f64 ? 8 : 4) {}
  // Bytes before a place of a sample and head, in a tensor like qkv, like y, and in lse.
  size_t at(int64_t sample, int64_t place, int64_t head) const {
    return size_t((sample * length + place) * row + head * depth) * size;
  }
  size_t y_at(int64_t sample, int64_t place, int64_t head) const {
    return size_t((sample * length + place) * y_row + head * depth) * size;
  }
  size_t lse_at(int64_t sample, int64_t place, int64_t head) const {
    return size_t((sample * heads + head) * length + place) * statistic;
  }
};

// The first place of a sample that is seen.
int64_t start_of(const View& starts, int64_t sample) { return starts.defined() ? starts.as<int64_t>()[sample] : 0; }

void check_starts(const View& starts, const Heads& h) {
  for (int64_t sample = 0; sample < h.batch; ++sample) {
    int64_t start = start_of(starts, sample);
    SG_CHECK(start >= 0 && start <= h.length, "attention: the start of sample ", sample, " is ", start,
             ", outside [0, ", h.length + 1, ")");
  }
}

AttentionTask attention_task(const Heads& h, View qkv, View starts, const AttentionArgs& args, int64_t sample,
                             int64_t head, int64_t count, void* workspace) {
  int64_t start = start_of(starts, sample), shared = head / h.group;
  const char* data = qkv.as<char>();
  int64_t first_row = ((args.first_sample + sample) * h.heads + head) * h.length + start;
  return {.heads = count,
          .rows = h.length - start,
          .depth = h.depth,
          .row = h.row,
          .y_row = h.y_row,
          .length = h.length,
          .q = data + h.at(sample, start, head),
          .k = data + h.at(sample, start, h.heads + shared),
          .v = data + h.at(sample, start, h.heads + h.kv_heads + shared),
          .scale = args.scale,
          // random numbers are multiples of 2^-24: the same test, exact in f32
          .dropout = std::ceil(args.dropout * 0x1p24) * 0x1p-24,
          .kept = 1 / (1 - args.dropout),
          .mask = {args.seed, args.stream, first_row * h.length + start},
          .workspace = workspace};
}

// Calls work(begin, end, workspace) for parts of [0, tasks), each with scratch memory of its own.
template <class Work>
void share(const Launch& launch, const Heads& h, int64_t tasks, int64_t work_of_one, bool backward, const Work& work) {
  int64_t worth = std::max<int64_t>(1, tasks / grain_for(work_of_one)),
          parts = std::min<int64_t>(launch.threads, worth);
  int64_t piece = (tasks + parts - 1) / parts;
  size_t each = (loops().attention.workspace[h.type](h.length, h.depth, backward) + 63) / 64 * 64;
  Workspace memory(kCpu, each * size_t(parts));
  char* data = memory.as<char>();
  parallel_for(int(parts), parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      work(part * piece, std::min(tasks, (part + 1) * piece), data + size_t(part) * each);
  });
}

// What stands before the first place that is seen.
void clear_unseen(const Heads& h, OutView y, View starts, size_t row_bytes) {
  for (int64_t sample = 0; sample < h.batch && y.beta == 0; ++sample)
    std::memset(y.as<char>() + size_t(sample * h.length) * row_bytes, 0, size_t(start_of(starts, sample)) * row_bytes);
}
void clear_unseen_lse(const Heads& h, OutView lse, View starts) {
  for (int64_t row = 0; row < h.batch * h.heads && lse.beta == 0; ++row)
    std::memset(lse.as<char>() + size_t(row * h.length) * h.statistic, 0,
                size_t(start_of(starts, row / h.heads)) * h.statistic);
}

// Cheap elements that a head's products cost about as much as.
int64_t head_cost(const Heads& h) { return h.length * h.length * (h.depth / 8 + 1); }

void attention(const Launch& launch, OutView y, OutView lse, View qkv, View starts, AttentionArgs args) {
  if (qkv.numel() == 0) return;
  Heads h(qkv, args);
  check_starts(starts, h);
  clear_unseen(h, y, starts, size_t(h.y_row) * h.size);
  if (lse.defined()) clear_unseen_lse(h, lse, starts);
  share(launch, h, h.batch * h.heads, head_cost(h), false, [&](int64_t begin, int64_t end, void* workspace) {
    for (int64_t task = begin, count = 0; task < end; task += count) {
      int64_t sample = task / h.heads, head = task % h.heads, start = start_of(starts, sample);
      count = std::min(end - task, h.group - head % h.group);
      if (start == h.length) continue;
      AttentionForward t{attention_task(h, qkv, starts, args, sample, head, count, workspace)};
      t.y = y.as<char>() + h.y_at(sample, start, head);
      t.lse = lse.defined() ? lse.as<char>() + h.lse_at(sample, start, head) : nullptr;
      t.accumulate = y.beta != 0;
      t.accumulate_lse = lse.beta != 0;
      loops().attention.forward[h.type](t);
    }
  });
}

void attention_backward(const Launch& launch, OutView dqkv, View dy, View qkv, View y, View lse, View starts,
                        AttentionArgs args) {
  if (qkv.numel() == 0) return;
  Heads h(qkv, args);
  check_starts(starts, h);
  clear_unseen(h, dqkv, starts, size_t(h.row) * h.size);
  int64_t cost = 3 * h.group * head_cost(h);
  share(launch, h, h.batch * h.kv_heads, cost, true, [&](int64_t begin, int64_t end, void* workspace) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t sample = task / h.kv_heads, shared = task % h.kv_heads, head = shared * h.group;
      int64_t start = start_of(starts, sample);
      if (start == h.length) continue;
      AttentionBackward t{attention_task(h, qkv, starts, args, sample, head, h.group, workspace)};
      t.dy = dy.as<char>() + h.y_at(sample, start, head);
      t.y = y.as<char>() + h.y_at(sample, start, head);
      t.lse = lse.as<char>() + h.lse_at(sample, start, head);
      t.dq = dqkv.as<char>() + h.at(sample, start, head);
      t.dk = dqkv.as<char>() + h.at(sample, start, h.heads + shared);
      t.dv = dqkv.as<char>() + h.at(sample, start, h.heads + h.kv_heads + shared);
      t.accumulate = dqkv.beta != 0;
      loops().attention.backward[h.type](t);
    }
  });
}

const Each registered_attention(kernels::attention, kFloats, attention);
const Each registered_attention_backward(kernels::attention_backward, kFloats, attention_backward);

}  // namespace
}  // namespace shardgrad::cpu
