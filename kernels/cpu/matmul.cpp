// Matrix product: chooses between the small kernel and the blocked one, and finishes what they leave.

#include <shardgrad/kernels/cpu/matmul.h>

#include <cstring>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::Epilogue;
using kernels::MatmulArgs;

constexpr int64_t kSmallProduct = 32 * 32 * 32;  // multiply-adds below which nothing is packed

int64_t batch_of(const Shape& shape) {
  int64_t batch = 1;
  for (int d = 0; d + 2 < shape.ndim(); ++d) batch *= shape[d];
  return batch;
}

Product describe(const Launch& launch, OutView c, View a, View b, View bias, MatmulArgs args) {
  Product p;
  p.threads = launch.threads;
  p.dtype = a.dtype;
  p.m = a.shape[args.trans_a ? -1 : -2];
  p.k = a.shape[args.trans_a ? -2 : -1];
  p.n = b.shape[args.trans_b ? -2 : -1];
  int64_t batch_a = batch_of(a.shape), batch_b = batch_of(b.shape);
  p.batch = a.shape.ndim() > 2 ? batch_a : batch_b;
  p.a = a.as<char>();
  p.b = b.as<char>();
  p.bias = bias.defined() ? bias.as<char>() : nullptr;
  p.c = c.as<char>();
  p.trans_a = args.trans_a;
  p.trans_b = args.trans_b;
  p.accumulate = c.beta != 0;
  if (b.shape.ndim() == 2 && !args.trans_a) {  // one product of all rows
    p.m *= p.batch;
    p.batch = 1;
  }
  p.a_step = a.shape.ndim() > 2 ? p.m * p.k : 0;
  p.b_step = b.shape.ndim() > 2 ? p.k * p.n : 0;
  return p;
}

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

void own_product(const Product& p) {
  const GemmLoops& gemm = loops().gemm;
  int type = int(p.dtype);
  if (p.m * p.n * p.k <= kSmallProduct && (!p.trans_b || p.k * p.n <= kSmallTransposed)) {
    parallel_for(p.threads, p.batch, grain_for(p.m * p.n * p.k / 8), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gemm.small[type](task_of(p, i));
    });
    return;
  }
  size_t each = (gemm.workspace[type](p.m, p.n, p.k) + 63) / 64 * 64;
  Workspace workspace(kCpu, each * size_t(p.threads));
  for (int64_t i = 0; i < p.batch; ++i) blocked(p, task_of(p, i), workspace.as<char>(), each);
}

void zero_product(const Product& p) {
  if (!p.accumulate) std::memset(p.c, 0, size_t(p.batch * p.m * p.n) * size_of(p.dtype));
}

// c += bias; pre = c; c = epilogue(c)
void finish(const Product& p, const char* bias, char* pre, Epilogue epilogue) {
  const ElementwiseLoops& elementwise = loops().elementwise;
  int type = int(p.dtype);
  size_t row = size_t(p.n) * size_of(p.dtype);
  parallel_for(p.threads, p.batch * p.m, grain_for(p.n), [&](int64_t begin, int64_t end) {
    char* c = p.c + begin * row;
    int64_t count = (end - begin) * p.n;
    if (bias) {
      Grid grid{.rows = end - begin, .cols = p.n, .row = {p.n, 0}};
      elementwise.binary[int(Binary::add)][type](c, c, bias, grid, {});
    }
    if (pre) std::memcpy(pre + begin * row, c, (end - begin) * row);
    if (epilogue == Epilogue::relu) elementwise.unary[int(Unary::relu)][type](c, c, count, {}, false);
    if (epilogue == Epilogue::gelu_tanh) elementwise.unary[int(Unary::gelu_tanh)][type](c, c, count, {}, false);
  });
}

void matmul_wide(const Launch& launch, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  Product p = describe(launch, c, a, b, bias, args);
  if (c.numel() == 0) return;
  if (p.k == 0)
    zero_product(p);
  else
    own_product(p);
  if (p.bias || pre.defined() || args.epilogue != Epilogue::none)
    finish(p, p.bias, pre.defined() ? pre.as<char>() : nullptr, args.epilogue);
}

// bf16 and f16: operands and result by way of f32.
void matmul_half(const Launch& launch, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  size_t numbers = 0;
  auto reserve = [&](int64_t count) {
    size_t at = numbers;
    numbers += (size_t(count) + 15) / 16 * 16;
    return at;
  };
  size_t at_a = reserve(a.numel()), at_b = reserve(b.numel()), at_bias = reserve(bias.defined() ? bias.numel() : 0);
  size_t at_c = reserve(c.numel()), at_pre = reserve(pre.defined() ? pre.numel() : 0);
  Workspace workspace(kCpu, std::max<size_t>(1, numbers * sizeof(float)));
  float* memory = workspace.as<float>();
  auto widened = [&](View x, size_t at) {
    if (!x.defined()) return x;
    OutView wide{memory + at, x.shape, DType::f32, 0, true};
    kernels::cast.find(DeviceKind::cpu, x.dtype)(launch, wide, x);
    return View{wide.data, x.shape, DType::f32, true};
  };
  auto result = [&](OutView y, size_t at) { return OutView{memory + at, y.shape, DType::f32, 0, y.defined()}; };
  auto narrowed = [&](OutView y, OutView wide) {
    if (y.defined()) kernels::cast.find(DeviceKind::cpu, DType::f32)(launch, y, {wide.data, y.shape, DType::f32, true});
  };
  OutView wide_c = result(c, at_c), wide_pre = result(pre, at_pre);
  matmul_wide(launch, wide_c, wide_pre, widened(a, at_a), widened(b, at_b), widened(bias, at_bias), args);
  narrowed(c, wide_c);
  narrowed(pre, wide_pre);
}

constexpr DType kHalves[] = {DType::bf16, DType::f16};
const Each registered_wide(kernels::matmul, kWideFloats, matmul_wide);
const Each registered_half(kernels::matmul, kHalves, matmul_half);

}  // namespace
}  // namespace shardgrad::cpu
