#include "gpu_peak.h"

#include <cublasLt.h>

#include <array>

#include <shardgrad/core/allocator.h>

#include "gpu_bench.h"

namespace shardgrad::bench {
namespace {

void must(cublasStatus_t status, const char* what) {
  SG_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt cannot ", what, ": status ", int(status));
}

/// What one product needs, for as long as it is tried.
struct Product {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t square = nullptr;
  cublasLtMatmulPreference_t wish = nullptr;

  Product(cudaDataType_t type, cublasComputeType_t compute, cublasOperation_t first, uint64_t n, size_t workspace) {
    must(cublasLtCreate(&handle), "start");
    must(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "describe a product");
    must(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "transpose");
    must(cublasLtMatrixLayoutCreate(&square, type, n, n, int64_t(n)), "describe a matrix");
    must(cublasLtMatmulPreferenceCreate(&wish), "take a wish");
    must(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                              sizeof workspace),
         "take a wish");
    uint32_t alignment = kAlignment;
    for (auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      must(cublasLtMatmulPreferenceSetAttribute(wish, operand, &alignment, sizeof alignment), "take a wish");
  }
  Product(const Product&) = delete;
  ~Product() {
    cublasLtMatmulPreferenceDestroy(wish);
    cublasLtMatrixLayoutDestroy(square);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }
};

}  // namespace

double cublas_peak(DType dtype, bool tf32, int64_t n) {
  cudaDataType_t type = dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasComputeType_t kind = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  Tensor a = randn({n, n}, "a").to(dtype), b = randn({n, n}, "b").to(dtype), c = empty_like(a);
  std::array<Tensor, 2> expected;  // of the first rows: what it sees in columns is b · a, and b · aᵀ
  for (bool transposed : {false, true})
    expected[transposed] = matmul(b.rows(0, 16).to(kCpu), a.to(kCpu), false, transposed);
  Tensor scratch = empty({int64_t(256) << 20}, {DType::u8, kCuda});
  Stream& compute = context().backend(kCuda).compute();
  float one = 1, none = 0;
  double best = 0;
  for (cublasOperation_t first : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    Product product(type, kind, first, uint64_t(n), scratch.bytes());
    cublasLtMatmulHeuristicResult_t choices[8];
    int found = 0;
    must(cublasLtMatmulAlgoGetHeuristic(product.handle, product.operation, product.square, product.square,
                                        product.square, product.square, product.wish, 8, choices, &found),
         "choose");
    for (int i = 0; i < found; ++i) {
      // Through the stream, which waits for nothing that it has not been told of.
      auto multiply = [&] {
        compute.run("cuBLASLt's product", [&] {
          must(cublasLtMatmul(product.handle, product.operation, &one, a.in().data, product.square, b.in().data,
                              product.square, &none, c.in().data, product.square, c.out().data, product.square,
                              &choices[i].algo, scratch.out().data, scratch.bytes(),
                              static_cast<cudaStream_t>(compute.native())),
               "multiply");
        });
      };
      fill_(c, NAN);
      multiply();
      check("a product of cuBLASLt", c.rows(0, 16), expected[first == CUBLAS_OP_T],
            tf32 || dtype == DType::bf16 ? 1e-2 : 1e-5);
      best = std::max(best, 2e-12 * double(n) * double(n) * double(n) / seconds_of(kCuda, 5, multiply));
    }
    compute.synchronize();
  }
  return best;
}

}  // namespace shardgrad::bench
