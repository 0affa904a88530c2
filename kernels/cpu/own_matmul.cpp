// The own matrix product: small and narrow ones directly, others in blocks, each thread a piece of c.

#include <cstring>
#include <optional>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/matmul.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::Epilogue;

constexpr int64_t kSmallProduct = 64 * 64 * 64;  // multiply-adds up to which nothing is packed

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

// Rows (or columns) [from, from + count) of c.
GemmTask cut(GemmTask task, DType dtype, bool by_rows, int64_t from, int64_t count) {
  int64_t size = int64_t(size_of(dtype));
  const char *a = static_cast<const char*>(task.a), *b = static_cast<const char*>(task.b);
  (by_rows ? task.m : task.n) = count;
  if (by_rows)
    task.a = a + from * task.a_row * size;
  else
    task.b = b + from * task.b_col * size;
  task.c = static_cast<char*>(task.c) + from * (by_rows ? task.c_row : 1) * size;
  return task;
}

// One matrix cut along its longer side, a piece per thread.
void blocked(const Product& p, const GemmTask& whole, char* workspace, size_t each) {
  const GemmLoops& gemm = loops().gemm;
  int type = int(p.dtype);
  bool by_rows = p.m >= p.n;
  int64_t step = by_rows ? gemm.row_step[type] : gemm.column_step[type], length = by_rows ? p.m : p.n;
  int64_t parts = std::min<int64_t>(p.threads, (length + step - 1) / step);
  int64_t piece = (length + parts * step - 1) / (parts * step) * step;
  parallel_for(int(parts), parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t from = part * piece, count = std::min(piece, length - from);
      if (count <= 0) continue;
      GemmTask task = cut(whole, p.dtype, by_rows, from, count);
      task.workspace = workspace + size_t(part) * each;
      gemm.gemm[type](task);
    }
  });
}

void blocked_products(const Product& p) {
  size_t each = (loops().gemm.workspace[int(p.dtype)](p.m, p.n, p.k) + 63) / 64 * 64;
  Workspace workspace(kCpu, each * size_t(p.threads));
  for (int64_t i = 0; i < p.batch; ++i) blocked(p, task_of(p, i), workspace.as<char>(), each);
}

void small_products(const Product& p) {
  auto small = loops().gemm.small[int(p.dtype)];
  if (p.batch == 1) return small(task_of(p, 0));
  parallel_for(p.threads, p.batch, grain_for(p.work() / 8), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) small(task_of(p, i));
  });
}

// c of a few columns: nothing is packed, since a is read once only.
void narrow_products(const Product& p) {
  std::optional<Workspace> turned;
  if (p.trans_b) turned.emplace(kCpu, size_t(p.k * p.n) * size_of(p.dtype));
  for (int64_t i = 0; i < p.batch; ++i) {
    GemmTask task = task_of(p, i);
    if (turned) {
      OutView rows{turned->as<char>(), {p.k, p.n}, p.dtype, 0, true};
      kernels::permute.find(DeviceKind::cpu, p.dtype)(Launch{p.threads}, rows, {task.b, {p.n, p.k}, p.dtype, true},
                                                      {1, 0});
      task.b = rows.data, task.b_row = p.n, task.b_col = 1;
    }
    parallel_for(p.threads, p.m, grain_for(p.k * p.n / 4), [&](int64_t begin, int64_t end) {
      loops().gemm.small[int(p.dtype)](cut(task, p.dtype, true, begin, end - begin));
    });
  }
}

void few_rows_products(const Product& p) {
  auto loop = loops().gemm.few_rows[int(p.b_dtype)];
  size_t size = size_of(p.dtype), row = size_t(p.k) * size_of(p.b_dtype);
  parallel_for(
      p.threads, p.n, grain_for(p.k),
      [&](int64_t begin, int64_t end) {
        loop({.m = p.m,
              .n = end - begin,
              .k = p.k,
              .a = p.a,
              .a_row = p.k,
              .b = p.b + size_t(begin) * row,
              .c = p.c + size_t(begin) * size,
              .c_row = p.n,
              .accumulate = p.accumulate});
      },
      64);
}

bool is_small(const Product& p) { return p.work() <= kSmallProduct && (!p.trans_b || p.k * p.n <= kSmallTransposed); }

bool is_narrow(const Product& p) { return p.n <= loops().gemm.column_step[p.dtype == DType::f64 ? 1 : 0] / 2; }

void products(const Product& p) {
  if (has_few_rows(p))
    few_rows_products(p);
  else if (is_small(p))
    small_products(p);
  else if (is_narrow(p))
    narrow_products(p);
  else
    blocked_products(p);
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

bool has_few_rows(const Product& p) {
  return p.m <= kFewRows && p.batch == 1 && p.trans_b && !p.trans_a && !is_small(p) && !is_narrow(p);
}

bool is_direct(const Product& p) { return is_small(p) || is_narrow(p) || has_few_rows(p); }

void own_product(const Product& p, Epilogue epilogue) {
  if (p.k > 0)
    products(p);
  else if (!p.accumulate)
    std::memset(p.c, 0, size_t(p.batch * p.m * p.n) * size_of(p.dtype));
  if (p.bias || epilogue != Epilogue::none) finish(p, epilogue);
}

}  // namespace shardgrad::cpu
