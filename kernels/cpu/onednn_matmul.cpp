// Matrix products by oneDNN, 2.6 and 3.x. Primitives are cached per thread: one that two threads run at once returns
// wrong numbers without a word. Their scratch memory comes from the ledger.

#include <optional>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include <shardgrad/core/float_mode.h>
#include <shardgrad/kernels/cpu/matmul.h>
#include <shardgrad/kernels/table.h>
#include <shardgrad/kernels/workspace.h>

// oneDNN brings its OpenMP runtime along, whether this file is compiled with OpenMP or not.
extern "C" [[gnu::weak]] int omp_get_max_threads();
extern "C" [[gnu::weak]] void omp_set_num_threads(int);

namespace shardgrad::cpu {
namespace {

using kernels::Epilogue;

constexpr size_t kCacheLimit = 256;  // primitives per thread

// What decides a primitive.
struct Key {
  int64_t batch, m, n, k;
  int threads;
  DType dtype;
  bool trans_a, trans_b, accumulate, bias;
  Epilogue epilogue;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = 0;
    auto mix = [&](int64_t value) { hash = (hash ^ size_t(value)) * 0x9e3779b97f4a7c15u + (hash >> 29); };
    for (int64_t value : {key.batch, key.m, key.n, key.k, int64_t(key.threads), int64_t(key.dtype)}) mix(value);
    mix(key.trans_a + 2 * key.trans_b + 4 * key.accumulate + 8 * key.bias + 16 * int(key.epilogue));
    return hash;
  }
};

struct Entry {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, bias, scratch;
  std::unordered_map<int, dnnl::memory> arguments;
  size_t scratch_bytes = 0;
  bool usable = false;  // false where oneDNN has only its slow reference implementation
};

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Key, Entry, KeyHash> cache;
};

Library& library() {
  static thread_local Library library;
  return library;
}

// oneDNN's threads begin as the one that starts them is, and that flushes subnormals; but the program's own parallel
// regions may have started them before.
void flush_on_workers([[maybe_unused]] int threads) {
#if defined(_OPENMP)
  static thread_local int flushing = 1;
  if (threads <= flushing) return;
#pragma omp parallel num_threads(threads)
  SubnormalMode::flush_for_good();
  flushing = threads;
#endif
}

// oneDNN runs on the OpenMP threads that the calling thread is allowed.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : previous_(omp_get_max_threads ? omp_get_max_threads() : 0) {
    if (previous_) omp_set_num_threads(threads);
  }
  ~ThreadLimit() {
    if (previous_) omp_set_num_threads(previous_);
  }
  ThreadLimit(const ThreadLimit&) = delete;

 private:
  int previous_;
};

dnnl::memory::desc describe(const Key& key, int64_t rows, int64_t cols, bool transposed) {
  auto type = key.dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  dnnl::memory::dims dims{rows, cols}, strides{cols, 1};
  if (transposed) strides = {1, rows};
  if (key.batch > 1) {
    dims.insert(dims.begin(), key.batch);
    strides.insert(strides.begin(), rows * cols);
  }
  return {dims, type, strides};
}

dnnl::memory::desc describe_bias(const Key& key) {
  auto type = key.dtype == DType::f32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  dnnl::memory::dims dims{1, key.n}, strides{key.n, 1};
  if (key.batch > 1) {
    dims.insert(dims.begin(), 1);
    strides.insert(strides.begin(), key.n);
  }
  return {dims, type, strides};
}

using Description = dnnl::matmul::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
void append_gelu(dnnl::post_ops& ops) { ops.append_eltwise(dnnl::algorithm::eltwise_gelu_tanh, 0, 0); }
Description make_description(const dnnl::engine& engine, const Key& key, const dnnl::primitive_attr& attributes) {
  auto a = describe(key, key.m, key.k, key.trans_a), b = describe(key, key.k, key.n, key.trans_b);
  auto c = describe(key, key.m, key.n, false);
  return key.bias ? Description(engine, a, b, describe_bias(key), c, attributes)
                  : Description(engine, a, b, c, attributes);
}
#else
void append_gelu(dnnl::post_ops& ops) { ops.append_eltwise(1, dnnl::algorithm::eltwise_gelu_tanh, 0, 0); }
Description make_description(const dnnl::engine& engine, const Key& key, const dnnl::primitive_attr& attributes) {
  auto a = describe(key, key.m, key.k, key.trans_a), b = describe(key, key.k, key.n, key.trans_b);
  auto c = describe(key, key.m, key.n, false);
  dnnl::matmul::desc plain(a, b, c);
  return Description(key.bias ? dnnl::matmul::desc(a, b, describe_bias(key), c) : plain, attributes, engine);
}
#endif

Entry make_entry(Library& lib, const Key& key) try {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops ops;
  if (key.accumulate) ops.append_sum(1);
  if (key.epilogue == Epilogue::gelu_tanh) append_gelu(ops);
  attributes.set_post_ops(ops);
  Description description = make_description(lib.engine, key, attributes);
  Entry entry;
  entry.usable = std::string(description.impl_info_str()).find("ref") == std::string::npos;
  if (!entry.usable) return entry;
  entry.primitive = dnnl::matmul(description);
  entry.scratch_bytes = description.scratchpad_desc().get_size();
  auto bound = [&](const dnnl::memory::desc& desc, int argument) {
    dnnl::memory memory(desc, lib.engine, nullptr);
    entry.arguments.insert({argument, memory});
    return memory;
  };
  entry.a = bound(description.src_desc(), DNNL_ARG_SRC);
  entry.b = bound(description.weights_desc(), DNNL_ARG_WEIGHTS);
  entry.c = bound(description.dst_desc(), DNNL_ARG_DST);
  if (key.bias) entry.bias = bound(description.bias_desc(), DNNL_ARG_BIAS);
  if (entry.scratch_bytes > 0) entry.scratch = bound(description.scratchpad_desc(), DNNL_ARG_SCRATCHPAD);
  return entry;
} catch (const dnnl::error&) {
  return {};  // no implementation for this case: the own product takes it
}

void point_to(dnnl::memory& memory, const void* data) { memory.set_data_handle(const_cast<void*>(data)); }

bool product(const Product& p, Epilogue epilogue) {
  Key key{p.batch, p.m, p.n, p.k, p.threads, p.dtype, p.trans_a, p.trans_b, p.accumulate, p.bias != nullptr, epilogue};
  Library& lib = library();
  ThreadLimit limit(p.threads);
  flush_on_workers(p.threads);
  auto found = lib.cache.find(key);
  if (found == lib.cache.end()) {
    if (lib.cache.size() >= kCacheLimit) lib.cache.clear();
    found = lib.cache.emplace(key, make_entry(lib, key)).first;
  }
  Entry& entry = found->second;
  if (!entry.usable) return false;
  std::optional<Workspace> scratch;
  if (entry.scratch_bytes > 0) point_to(entry.scratch, scratch.emplace(kCpu, entry.scratch_bytes).as<char>());
  point_to(entry.a, p.a);
  point_to(entry.b, p.b);
  point_to(entry.c, p.c);
  if (p.bias) point_to(entry.bias, p.bias);
  entry.primitive.execute(lib.stream, entry.arguments);
  lib.stream.wait();
  return true;
}

bool has_bf16() {
  int wanted = int(dnnl::cpu_isa::avx512_core_bf16);
  return (int(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

// oneDNN picks its own instruction set; a lower one asked for by SHARDGRAD_ISA holds for it too.
const bool registered = [] {
  try {
#if defined(__x86_64__)
    if (best_isa() == Isa::plain) return false;
    if (best_isa() == Isa::avx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
#endif
  } catch (const Error&) {
    return false;  // SHARDGRAD_ISA is no instruction set: the first kernel says so, not the loading of the library
  }
  set_product_library({product, has_bf16()});
  return true;
}();

}  // namespace
}  // namespace shardgrad::cpu
