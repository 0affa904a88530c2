#include <shardgrad/kernels/cuda/cublaslt_plan.h>

#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/cuda/launching.h>
#include <shardgrad/kernels/choices.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::gpu {
namespace {

constexpr size_t kCacheLimit = 1024;                  // products per thread
constexpr size_t kWorkspaceLimit = size_t(32) << 20;  // what the largest algorithms for Hopper want
constexpr int kTried = 8;                             // algorithms, where they are timed

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceFault(ErrorKind::internal, concat("cuBLASLt, ", what, ": status ", int(status)));
}

// One product, as cuBLASLt is asked for it: what decides the algorithm.
struct Key {
  int64_t batch, m, n, k;
  bool batched_a, batched_b, trans_a, trans_b, accumulate;
  cublasLtEpilogue_t epilogue;
  DType dtype;
  int align_a, align_b, align_c, align_bias, align_aux;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = 0;
    auto mix = [&](int64_t value) { hash = (hash ^ size_t(value)) * 0x9e3779b97f4a7c15u + (hash >> 29); };
    for (int64_t value : {key.batch, key.m, key.n, key.k, int64_t(key.dtype), int64_t(key.epilogue)}) mix(value);
    for (int value : {key.align_a, key.align_b, key.align_c, key.align_bias, key.align_aux}) mix(value);
    for (bool value : {key.batched_a, key.batched_b, key.trans_a, key.trans_b, key.accumulate}) mix(value);
    return hash;
  }
};

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// What an epilogue reads or writes beside the result: a mask in bits, or values before GELU.
bool has_aux(cublasLtEpilogue_t epilogue) { return (epilogue & 128) != 0; }
bool has_mask(cublasLtEpilogue_t epilogue) { return has_aux(epilogue) && !(epilogue & CUBLASLT_EPILOGUE_GELU); }
// A row-major matrix, seen in columns; with a batch, one behind the other, or one for all.
class Layout {
 public:
  Layout(DType dtype, int64_t rows, int64_t columns, int64_t batch, bool batched) {
    check(cublasLtMatrixLayoutCreate(&layout_, type_of(dtype), uint64_t(columns), uint64_t(rows), columns), "layout");
    if (batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batched ? rows * columns : int64_t(0));
  }
  Layout(Layout&& other) noexcept : layout_(std::exchange(other.layout_, nullptr)) {}
  ~Layout() {
    if (layout_) cublasLtMatrixLayoutDestroy(layout_);
  }
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  template <class T> void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check(cublasLtMatrixLayoutSetAttribute(layout_, attribute, &value, sizeof(value)), "layout attribute");
  }
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// A product whose algorithm is known.
class Plan {
 public:
  Plan(const Key& key, bool tf32);
  Plan(const Plan&) = delete;
  ~Plan() { cublasLtMatmulDescDestroy(description_); }
  /// False where cuBLASLt has no algorithm for it, which is known after the first run.
  bool usable() const { return !offers_.empty(); }
  /// Queues the product; the first time it is found out how. Queues nothing when it is not usable.
  void run(cublasLtHandle_t handle, const Launch& how, const Call& call);
  /// Finds out how; the addresses of the call count by their alignment only.
  void choose(cublasLtHandle_t handle, const Call& call);

 private:
  template <class T> void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof(value)), "product attribute");
  }
  void set_addresses(const Call& call);
  cublasStatus_t queue(cublasLtHandle_t handle, const Launch& how, const Call& call,
                       const cublasLtMatmulHeuristicResult_t& offer, void* to) const;
  void keep_fastest(cublasLtHandle_t handle, const Launch& how, const Call& call);
  Key key_;
  Layout a_, b_, c_;
  cublasLtMatmulDesc_t description_ = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> offers_;  // what cuBLASLt takes to be the fastest comes first
  bool chosen_ = false;
};

Plan::Plan(const Key& key, bool tf32)
    : key_(key),
      a_(key.dtype, key.trans_a ? key.k : key.m, key.trans_a ? key.m : key.k, key.batch, key.batched_a),
      b_(key.dtype, key.trans_b ? key.n : key.k, key.trans_b ? key.k : key.n, key.batch, key.batched_b),
      c_(key.dtype, key.m, key.n, key.batch, true) {
  bool wide = key.dtype == DType::f64;
  cublasComputeType_t compute = wide                              ? CUBLAS_COMPUTE_64F
                                : tf32 && key.dtype == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&description_, compute, wide ? CUDA_R_64F : CUDA_R_32F), "product");
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  if (has_aux(key.epilogue)) {
    int64_t width = has_mask(key.epilogue) ? mask_bits(key.n) : key.n;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, width);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, key.batch == 1 ? int64_t(0) : key.m * width);
  }
}

void Plan::set_addresses(const Call& call) {
  if (call.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  if (call.aux) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, call.aux);
}

// The choice depends on the addresses of bias and aux through their alignment: both are set before.
void Plan::choose(cublasLtHandle_t handle, const Call& call) {
  if (std::exchange(chosen_, true)) return;
  set_addresses(call);
  cublasLtMatmulPreference_t wish;
  check(cublasLtMatmulPreferenceCreate(&wish), "preference");
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(wish, attribute, &value, sizeof(value)), "preference attribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspaceLimit));
  // Where K is cut into pieces, their sums are added in f32, in a fixed order: neither rounded to 16 bits before, nor
  // added up in the result's own memory.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(key_.align_b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(key_.align_a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
         uint32_t(std::min({key_.align_c, key_.align_bias, key_.align_aux})));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
         uint32_t(std::min({key_.align_c, key_.align_bias, key_.align_aux})));
  int found = 0;
  offers_.resize(timed_products_wanted() ? kTried : 1);
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, description_, b_.get(), a_.get(), c_.get(), c_.get(),
                                                         wish, int(offers_.size()), offers_.data(), &found);
  cublasLtMatmulPreferenceDestroy(wish);
  offers_.resize(status == CUBLAS_STATUS_SUCCESS ? size_t(found) : 0);
}

void Plan::run(cublasLtHandle_t handle, const Launch& how, const Call& call) {
  choose(handle, call);
  if (!usable()) return;
  set_addresses(call);
  if (offers_.size() > 1 && !Capture::current()) keep_fastest(handle, how, call);  // timing waits
  check(queue(handle, how, call, offers_[0], call.c.data), "product");
}

// Each once before, for what a first call does beside; into other memory, for the result's may be added to. One that
// refuses is no offer; where all do, the first one's reason is told.
void Plan::keep_fastest(cublasLtHandle_t handle, const Launch& how, const Call& call) {
  constexpr int kTimes = 3;
  Workspace result(launching_device(), call.c.bytes());
  auto timer = context().backend(launching_device()).compute().make_timer();
  double least = std::numeric_limits<double>::infinity();
  std::vector<cublasLtMatmulHeuristicResult_t> fastest;
  for (const auto& offer : offers_) {
    auto queued = [&] { return queue(handle, how, call, offer, result.as<void>()); };
    if (queued() != CUBLAS_STATUS_SUCCESS) {
      cudaGetLastError();  // nobody else's
      continue;
    }
    timer->start();
    for (int i = 0; i < kTimes; ++i) check(queued(), "product");
    timer->stop();
    if (double seconds = timer->seconds(); seconds < least) least = seconds, fastest = {offer};
  }
  if (fastest.empty()) fastest = {offers_[0]};
  offers_ = std::move(fastest);
}

cublasStatus_t Plan::queue(cublasLtHandle_t handle, const Launch& how, const Call& call,
                           const cublasLtMatmulHeuristicResult_t& offer, void* to) const {
  float one = 1, beta = call.c.beta;
  double wide_one = 1, wide_beta = call.c.beta;
  bool wide = key_.dtype == DType::f64;
  const void *alpha_at = wide ? static_cast<const void*>(&wide_one) : &one,
             *beta_at = wide ? static_cast<const void*>(&wide_beta) : &beta;
  Workspace scratch(launching_device(), offer.workspaceSize);
  return cublasLtMatmul(handle, description_, alpha_at, call.b.data, b_.get(), call.a.data, a_.get(), beta_at,
                        call.c.data, c_.get(), to, c_.get(), &offer.algo,
                        offer.workspaceSize ? scratch.as<void>() : nullptr, offer.workspaceSize,
                        static_cast<cudaStream_t>(how.native_stream));
}

// Of one GPU and thread.
struct Library {
  Library() { check(cublasLtCreate(&handle), "start"); }
  Library(const Library&) = delete;
  ~Library() {
    cache.clear();
    cublasLtDestroy(handle);
  }
  cublasLtHandle_t handle = nullptr;
  bool tf32 = tf32_wanted();
  std::unordered_map<Key, Plan, KeyHash> cache;
};

Library& library() {
  static thread_local std::unordered_map<int, Library> libraries;
  return libraries[launching_device().index];
}

int alignment_of(const void* data) {
  auto address = reinterpret_cast<uintptr_t>(data);
  int alignment = kLargestAlignment;
  while (address % uintptr_t(alignment) != 0) alignment /= 2;
  return alignment;
}

int64_t batch_of(const Shape& shape) {
  int64_t batch = 1;
  for (int d = 0; d + 2 < shape.ndim(); ++d) batch *= shape[d];
  return batch;
}

Key key_of(const Call& call) {
  Key key{};
  key.dtype = call.a.dtype;
  key.batched_a = call.a.shape.ndim() > 2;
  key.batched_b = call.b.shape.ndim() > 2;
  key.batch = key.batched_a ? batch_of(call.a.shape) : batch_of(call.b.shape);
  key.m = call.a.shape[call.trans_a ? -1 : -2];
  key.k = call.a.shape[call.trans_a ? -2 : -1];
  key.n = call.b.shape[call.trans_b ? -2 : -1];
  key.trans_a = call.trans_a, key.trans_b = call.trans_b;
  if (!key.batched_b && !key.trans_a) {  // one product of all rows
    key.m *= key.batch;
    key.batch = 1;
  }
  key.accumulate = call.c.beta != 0;
  key.epilogue = call.epilogue;
  key.align_a = alignment_of(call.a.data), key.align_b = alignment_of(call.b.data);
  key.align_c = alignment_of(call.c.data);
  key.align_bias = alignment_of(call.bias), key.align_aux = alignment_of(call.aux);
  return key;
}

Plan& plan_of(const Call& call) {
  Library& lib = library();
  Key key = key_of(call);
  auto found = lib.cache.find(key);
  if (found != lib.cache.end()) return found->second;
  if (lib.cache.size() >= kCacheLimit) lib.cache.clear();
  return lib.cache.try_emplace(key, key, lib.tf32).first->second;
}

}  // namespace

bool can_multiply(const Call& call) {
  Plan& plan = plan_of(call);
  plan.choose(library().handle, call);
  return plan.usable();
}

bool multiply(const Launch& how, const Call& call) {
  Plan& plan = plan_of(call);
  plan.run(library().handle, how, call);
  return plan.usable();
}

}  // namespace shardgrad::gpu
