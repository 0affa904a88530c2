// attention_cached. A task is a sample's heads that share keys and values; blocks of their keys are shared among
// threads, since one place's queries alone are little work, and a long cache much memory to read.

#include <cstring>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::CachedAttentionArgs;

struct Caches {
  int64_t samples, length, groups, group, places, depth, row;
  const char *qkv, *keys, *values;
  const int64_t* starts;
  char* y;
  size_t size;
  bool accumulate;
  CachedAttentionArgs args;

  Caches(OutView y, View qkv, View keys, View values, View starts, CachedAttentionArgs args)
      : samples(qkv.shape[0]),
        length(qkv.shape[1]),
        groups(args.kv_heads),
        group(args.heads / args.kv_heads),
        places(keys.shape[2]),
        depth(keys.shape[3]),
        row(qkv.shape[2]),
        qkv(qkv.as<char>()),
        keys(keys.as<char>()),
        values(values.as<char>()),
        starts(starts.as<int64_t>()),
        y(y.as<char>()),
        size(size_of(qkv.dtype)),
        accumulate(y.beta != 0),
        args(args) {}

  int64_t start(int64_t sample) const { return starts ? starts[sample] : 0; }
  // Of row t; keys are at most 0 where none is seen.
  CachedAttention task(int64_t sample, int64_t shared, int64_t t) const {
    int64_t begin = start(sample), head = shared * group;
    size_t cached = size_t(((sample * groups + shared) * places + begin) * depth) * size;
    size_t query = size_t((sample * length + t) * row + head * depth) * size;
    size_t result = size_t(((sample * length + t) * args.heads + head) * depth) * size;
    return {.heads = group,
            .keys = args.first + t + 1 - begin,
            .depth = depth,
            .q = qkv + query,
            .k = keys + cached,
            .v = values + cached,
            .y = y + result,
            .scale = args.scale,
            .accumulate = accumulate,
            .workspace = nullptr};
  }
};

void check_starts(const Caches& c) {
  for (int64_t sample = 0; sample < c.samples; ++sample)
    SG_CHECK(c.start(sample) >= 0 && c.start(sample) <= c.args.first + c.length,
             "attention_cached: the start of sample ", sample, " is ", c.start(sample), ", outside [0, ",
             c.args.first + c.length + 1, ")");
}

// Of all samples' rows t.
void attend(const Launch& launch, const Caches& c, int64_t t, int type, char* workspace, size_t each) {
  const AttentionLoops& loop = loops().attention;
  int64_t blocks = (c.args.first + t + kKeyBlock) / kKeyBlock, tasks = c.samples * c.groups;
  auto task_of = [&](int64_t index) {
    CachedAttention task = c.task(index / c.groups, index % c.groups, t);
    task.workspace = workspace + size_t(index) * each;
    return task;
  };
  auto for_blocks = [&](void (*step)(const CachedAttention&, int64_t)) {
    int64_t cost = c.group * c.depth * std::min(kKeyBlock, c.args.first + t + 1) / 2;
    parallel_for(launch.threads, tasks * blocks, grain_for(cost), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        CachedAttention task = task_of(i / blocks);
        if (i % blocks * kKeyBlock < task.keys) step(task, i % blocks);
      }
    });
  };
  for_blocks(loop.cached_scores[type]);
  for_blocks(loop.cached_sums[type]);
  parallel_for(launch.threads, tasks, grain_for(c.group * c.depth * blocks), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      CachedAttention task = task_of(i);
      size_t bytes = size_t(c.group * c.depth) * c.size;
      if (task.keys <= 0 && !c.accumulate) std::memset(task.y, 0, bytes);
      for (int64_t head = 0; head < c.group && task.keys > 0; ++head) loop.cached_result[type](task, head);
    }
  });
}

void attention_cached(const Launch& launch, OutView y, View qkv, View keys, View values, View starts,
                      CachedAttentionArgs args) {
  if (y.numel() == 0) return;
  Caches c(y, qkv, keys, values, starts, args);
  check_starts(c);
  int type = int(qkv.dtype);
  // for a full cache, so that a text needs no more memory as it grows
  size_t each = loops().attention.cached_workspace[type](c.group, c.places, c.depth);
  each = (each + 63) / 64 * 64;
  Workspace workspace(kCpu, each * size_t(c.samples * c.groups));
  for (int64_t t = 0; t < c.length; ++t) attend(launch, c, t, type, workspace.as<char>(), each);
}

const Each registered_attention_cached(kernels::attention_cached, kFloats, attention_cached);

}  // namespace
}  // namespace shardgrad::cpu
