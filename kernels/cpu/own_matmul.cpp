// The own matrix product: small ones without packing, others in blocks, each thread a piece of c.

#include <cstring>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/matmul.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::Epilogue;

constexpr int64_t kSmallProduct = 32 * 32 * 32;  // multiply-adds below which nothing is packed

GemmTask task_of(const Product& p, int64_t index) {
  size_t size = size_of(p.dtype);
  return {.m = p.m,
          .n = p.n,
          .k = p.k,
          .a = p.a + size_t(index * p.a_step) * size,
          .a_row = p.trans_a ? 1 : p.k,
          .a_col = p.trans_a ? p.m : 1,
          .b = p.b + size_t(index * p.b_step) * size,
          .b_row = p.trans_b ? 1 : p.n,
          .b_col = p.trans_b ? p.k : 1,
          .c = p.c + size_t(index * p.m * p.n) * size,
          .c_row = p.n,
          .accumulate = p.accumulate,
          .workspace = nullptr};
}

// One matrix cut along its longer side, a piece per thread.
void blocked(const Product& p, const GemmTask& whole, char* workspace, size_t each) {
  const GemmLoops& gemm = loops().gemm;
  int type = int(p.dtype);
  size_t size = size_of(p.dtype);
  bool by_rows = p.m >= p.n;
  int64_t step = by_rows ? gemm.row_step[type] : gemm.column_step[type], length = by_rows ? p.m : p.n;
  int64_t parts = std::min<int64_t>(p.threads, (length + step - 1) / step);
  int64_t piece = (length + parts * step - 1) / (parts * step) * step;
  parallel_for(int(parts), parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t from = part * piece, count = std::min(piece, length - from);
      if (count <= 0) continue;
      GemmTask task = whole;
      (by_rows ? task.m : task.n) = count;
      int64_t a = by_rows ? from * task.a_row : 0, b = by_rows ? 0 : from * task.b_col;
      task.a = static_cast<const char*>(task.a) + a * int64_t(size);
      task.b = static_cast<const char*>(task.b) + b * int64_t(size);
      task.c = static_cast<char*>(task.c) + (by_rows ? from * task.c_row : from) * int64_t(size);
      task.workspace = workspace + size_t(part) * each;
      gemm.gemm[type](task);
    }
  });
}

void products(const Product& p) {
  const GemmLoops& gemm = loops().gemm;
  int type = int(p.dtype);
  if (p.work() <= kSmallProduct && (!p.trans_b || p.k * p.n <= kSmallTransposed)) {
    parallel_for(p.threads, p.batch, grain_for(p.work() / 8), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gemm.small[type](task_of(p, i));
    });
    return;
  }
  size_t each = (gemm.workspace[type](p.m, p.n, p.k) + 63) / 64 * 64;
  Workspace workspace(kCpu, each * size_t(p.threads));
  for (int64_t i = 0; i < p.batch; ++i) blocked(p, task_of(p, i), workspace.as<char>(), each);
}

// c = epilogue(c + bias)
void finish(const Product& p, Epilogue epilogue) {
  const ElementwiseLoops& elementwise = loops().elementwise;
  int type = int(p.dtype);
  size_t row = size_t(p.n) * size_of(p.dtype);
  parallel_for(p.threads, p.batch * p.m, grain_for(p.n), [&](int64_t begin, int64_t end) {
    char* c = p.c + size_t(begin) * row;
    int64_t count = (end - begin) * p.n;
    if (p.bias) {
      Grid grid{.rows = end - begin, .cols = p.n, .row = {p.n, 0}};
      elementwise.binary[int(Binary::add)][type](c, c, p.bias, grid, {});
    }
    if (epilogue == Epilogue::relu) elementwise.unary[int(Unary::relu)][type](c, c, count, {}, false);
    if (epilogue == Epilogue::gelu_tanh) elementwise.unary[int(Unary::gelu_tanh)][type](c, c, count, {}, false);
  });
}

}  // namespace

void own_product(const Product& p, Epilogue epilogue) {
  if (p.k > 0)
    products(p);
  else if (!p.accumulate)
    std::memset(p.c, 0, size_t(p.batch * p.m * p.n) * size_of(p.dtype));
  if (p.bias || epilogue != Epilogue::none) finish(p, epilogue);
}

}  // namespace shardgrad::cpu
