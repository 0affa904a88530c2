#pragma once
// What a matrix product comes down to, for the implementations to choose from.

#include <shardgrad/kernels/ops.h>

namespace shardgrad::cpu {

/// batch products c (m, n) = a (m, k) · b (k, n) + bias (n) of contiguous matrices, stored transposed where it says so.
/// Matrix i of a begins a_step · i elements in (0: one for all), likewise b; those of c follow each other. All are of
/// `dtype`, but for b of a product with few rows.
struct Product {
  int threads = 1;
  DType dtype = DType::f32, b_dtype = DType::f32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  const char *a = nullptr, *b = nullptr, *bias = nullptr;
  char* c = nullptr;
  int64_t a_step = 0, b_step = 0;
  bool trans_a = false, trans_b = false, accumulate = false;

  int64_t work() const { return m * n * k; }  ///< multiply-adds per matrix
};

/// A library that may compute c = epilogue(product) faster. `product` returns false, having written nothing, where it
/// does not apply; a_step and b_step are those of separate matrices, and the epilogue is not relu. bf16 says whether
/// that dtype is fast.
struct ProductLibrary {
  bool (*product)(const Product&, kernels::Epilogue) = nullptr;
  bool bf16 = false;
};
/// To be called while the program loads.
void set_product_library(ProductLibrary library);

/// Products of a few rows with the weight of a layer: it is read once, in its own dtype, and nothing is packed.
bool has_few_rows(const Product& p);
/// Products for which packing does not pay, where the own kernel beats libraries: small, narrow, or of few rows.
bool is_direct(const Product& p);
/// The product by the own kernels; f32 and f64.
void own_product(const Product& p, kernels::Epilogue epilogue);

}  // namespace shardgrad::cpu
