#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include <shardgrad/core/dtype.h>

#include "tests/fake_cuda/fake_cuda.h"

using shardgrad::bf16;
using shardgrad::f16;

namespace fake_cuda {

struct Layout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0, aux_stride = 0;
};
struct Preference {
  int64_t alignment[4] = {256, 256, 256, 256};
  uint32_t reductions = 7;
};

namespace {

double get(cudaDataType_t type, const void* data, int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16F:
      return double(float(static_cast<const f16*>(data)[i]));
    case CUDA_R_16BF:
      return double(float(static_cast<const bf16*>(data)[i]));
    default:
      return static_cast<const float*>(data)[i];
  }
}
void put(cudaDataType_t type, void* data, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = value;
      return;
    case CUDA_R_16F:
      static_cast<f16*>(data)[i] = f16(float(value));
      return;
    case CUDA_R_16BF:
      static_cast<bf16*>(data)[i] = bf16(float(value));
      return;
    default:
      static_cast<float*>(data)[i] = float(value);
  }
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// op(A), in rows and columns.
int64_t rows_of(const Layout& layout, cublasOperation_t op) { return op == CUBLAS_OP_N ? layout.rows : layout.columns; }
int64_t columns_of(const Layout& layout, cublasOperation_t op) {
  return op == CUBLAS_OP_N ? layout.columns : layout.rows;
}
int64_t place(const Layout& layout, cublasOperation_t op, int64_t row, int64_t column, int64_t matrix) {
  if (op == CUBLAS_OP_T) std::swap(row, column);
  return matrix * layout.stride + column * layout.ld + row;
}

bool has_aux(cublasLtEpilogue_t epilogue) { return (epilogue & 128) != 0; }
bool writes_mask(cublasLtEpilogue_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_RELU_AUX) == CUBLASLT_EPILOGUE_RELU_AUX;
}

struct Call {
  Product product;
  Layout a, b, d;
  const void *at_a, *at_b, *at_c;
  void* at_d;
  double alpha, beta;

  void run() const {
    int64_t depth = columns_of(a, product.op_a);
    if (product.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_columns_of_b(depth);
    for (int64_t matrix = 0; matrix < d.batch; ++matrix)
      for (int64_t column = 0; column < d.columns; ++column)
        for (int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += get(a.type, at_a, place(a, product.op_a, row, k, matrix)) *
                   get(b.type, at_b, place(b, product.op_b, k, column, matrix));
          finish(row, column, matrix, sum);
        }
  }

  void finish(int64_t row, int64_t column, int64_t matrix, double sum) const {
    int64_t at = place(d, CUBLAS_OP_N, row, column, matrix);
    double value = alpha * sum;
    if (beta != 0) value += beta * get(d.type, at_c, at);
    if (product.epilogue & CUBLASLT_EPILOGUE_BIAS) value += get(d.type, product.bias, row);
    int64_t aux_at = matrix * product.aux_stride + column * product.aux_ld + row;
    if (product.epilogue == CUBLASLT_EPILOGUE_DRELU) value = mask_bit(aux_at) ? value : 0;
    if (writes_mask(product.epilogue)) set_mask_bit(aux_at, value > 0);
    if (has_aux(product.epilogue) && (product.epilogue & CUBLASLT_EPILOGUE_GELU))
      put(d.type, product.aux, aux_at, value);
    if (product.epilogue & CUBLASLT_EPILOGUE_RELU) value = value > 0 ? value : 0;
    if (product.epilogue & CUBLASLT_EPILOGUE_GELU) value = gelu(value);
    put(d.type, at_d, at, value);
  }

  void sum_columns_of_b(int64_t depth) const {
    for (int64_t column = 0; column < d.columns; ++column) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += get(b.type, at_b, place(b, product.op_b, k, column, 0));
      put(d.type, const_cast<void*>(product.bias), column, sum);
    }
  }

  // In an order of our own: nobody else may know the form of a mask.
  uint8_t* mask_byte(int64_t at) const { return static_cast<uint8_t*>(product.aux) + at / 8; }
  bool mask_bit(int64_t at) const { return *mask_byte(at) >> (7 - at % 8) & 1; }
  void set_mask_bit(int64_t at, bool on) const {
    auto bit = uint8_t(0x80 >> at % 8);
    *mask_byte(at) = uint8_t(on ? *mask_byte(at) | bit : *mask_byte(at) & ~bit);
  }
};

bool fits(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
  bool sizes =
      rows_of(a, p.op_a) == d.rows && columns_of(b, p.op_b) == d.columns && columns_of(a, p.op_a) == rows_of(b, p.op_b);
  bool leading = a.ld >= a.rows && b.ld >= b.rows && d.ld >= d.rows;
  bool batches = a.batch == d.batch && b.batch == d.batch && (d.batch == 1 || d.stride >= d.ld * d.columns);
  bool types = a.type == b.type && a.type == d.type && (p.scale == CUDA_R_64F) == (a.type == CUDA_R_64F);
  bool bias = !(p.epilogue & (CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_BGRADB)) || p.bias;
  int64_t step = p.epilogue & CUBLASLT_EPILOGUE_GELU ? 8 : 128;
  bool aux = !has_aux(p.epilogue) || (p.aux && p.aux_ld % step == 0 && p.aux_ld >= d.rows && p.aux_stride % step == 0);
  return sizes && leading && batches && types && bias && aux;
}

int64_t alignment_of(const void* data) {
  return int64_t(reinterpret_cast<uintptr_t>(data) & -reinterpret_cast<uintptr_t>(data));
}

template <class T> void read(T& to, const void* from, size_t bytes) {
  std::memcpy(&to, from, bytes == sizeof(T) ? bytes : 0);
}

}  // namespace
}  // namespace fake_cuda

using fake_cuda::Layout;
using fake_cuda::Preference;
using fake_cuda::Product;

static cublasStatus_t ok = CUBLAS_STATUS_SUCCESS;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new int(fake_cuda::current_device());  // whose it is
  return ok;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return ok;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new Layout{type, int64_t(rows), int64_t(columns), ld};
  return ok;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return ok;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    fake_cuda::read(layout->batch, value, bytes);
  else
    fake_cuda::read(layout->stride, value, bytes);
  return ok;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *product = new Product{compute, scale};
  return ok;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  delete product;
  return ok;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      fake_cuda::read(product->op_a, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      fake_cuda::read(product->op_b, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      fake_cuda::read(product->epilogue, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      fake_cuda::read(product->bias, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      fake_cuda::read(product->aux, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      fake_cuda::read(product->aux_ld, value, bytes);
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      fake_cuda::read(product->aux_stride, value, bytes);
      break;
  }
  return ok;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* wish) {
  *wish = new Preference;
  return ok;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish) {
  delete wish;
  return ok;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return bytes == 8 ? ok : CUBLAS_STATUS_INVALID_VALUE;
  if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    fake_cuda::read(wish->reductions, value, bytes);
    return ok;
  }
  uint32_t alignment = 0;
  fake_cuda::read(alignment, value, bytes);
  wish->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = alignment;
  return ok;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t wish, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  ++fake_cuda::heuristic_calls();
  *found = 0;
  // The real one has few epilogues for f64.
  if (a->type == CUDA_R_64F && product->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!fake_cuda::fits(*product, *a, *b, *d)) return CUBLAS_STATUS_INVALID_VALUE;
  // Pieces of K may only be added in the computing type: else sums depend on rounding and on the order of blocks.
  if (wish->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) return CUBLAS_STATUS_INVALID_VALUE;
  for (int& number = *found; number < std::min(wanted, 5); ++number) {
    std::memcpy(results[number].algo.alignment, wish->alignment, sizeof(wish->alignment));
    results[number].algo.number = number;
    results[number].workspaceSize = 4096;
  }
  return ok;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha,
                              const void* at_a, cublasLtMatrixLayout_t a, const void* at_b, cublasLtMatrixLayout_t b,
                              const void* beta, const void* at_c, cublasLtMatrixLayout_t, void* at_d,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (*handle != fake_cuda::gpu_of(stream) || !fake_cuda::fits(*product, *a, *b, *d) || !workspace ||
      workspace_bytes < 4096)
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* operands[] = {at_a, at_b, at_c, at_d};
  for (int i = 0; i < 4; ++i)
    if (fake_cuda::alignment_of(operands[i]) < algo->alignment[i]) return CUBLAS_STATUS_INVALID_VALUE;
  ++fake_cuda::products();
  fake_cuda::computing_type() = product->compute;
  fake_cuda::Call call{*product,
                       *a,
                       *b,
                       *d,
                       at_a,
                       at_b,
                       at_c,
                       at_d,
                       fake_cuda::get(product->scale, alpha, 0),
                       fake_cuda::get(product->scale, beta, 0)};
  fake_cuda::last_algorithm() = algo->number;
  auto run = [call, wait = fake_cuda::milliseconds_of_algorithms()[size_t(algo->number)]] {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    call.run();
  };
  fake_cuda::launch(stream, run, {at_a, at_b, at_c, at_d, workspace});
  return ok;
}
