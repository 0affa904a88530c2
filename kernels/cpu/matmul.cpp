// Matrix product: what the operands mean, and which implementation computes it.

#include <shardgrad/kernels/cpu/matmul.h>

#include <shardgrad/kernels/choices.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {

// Constant-initialised, so it is ready before any registration runs.
static constinit ProductLibrary library;

void set_product_library(ProductLibrary fast) { library = fast; }

namespace {

using kernels::Epilogue;
using kernels::MatmulArgs;

bool library_wanted() {
  static const bool wanted = !own_products_wanted() && library.product;
  return wanted;
}

int64_t batch_of(const Shape& shape) {
  int64_t batch = 1;
  for (int d = 0; d + 2 < shape.ndim(); ++d) batch *= shape[d];
  return batch;
}

Product describe(const Launch& launch, OutView c, View a, View b, View bias, MatmulArgs args) {
  Product p;
  p.threads = launch.threads;
  p.dtype = a.dtype;
  p.b_dtype = b.dtype;
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

// One matrix of a batch.
Product single(const Product& p, int64_t index) {
  Product one = p;
  size_t size = size_of(p.dtype);
  one.batch = 1;
  one.a += size_t(index * p.a_step) * size;
  one.b += size_t(index * p.b_step) * size;
  one.c += size_t(index * p.m * p.n) * size;
  return one;
}

void relu_in_place(const Product& p) {
  auto relu = loops().elementwise.unary[int(Unary::relu)][int(p.dtype)];
  size_t size = size_of(p.dtype);
  parallel_elements(p.threads, p.batch * p.m * p.n, [&](int64_t begin, int64_t end) {
    relu(p.c + size_t(begin) * size, p.c + size_t(begin) * size, end - begin, {}, false);
  });
}

bool library_product(const Product& p, Epilogue epilogue) {
  bool fast = p.dtype == DType::f32 || (p.dtype == DType::bf16 && library.bf16);
  if (!fast || is_direct(p) || !library_wanted()) return false;
  bool shared = p.batch > 1 && (p.a_step == 0 || p.b_step == 0);
  Epilogue fused = epilogue == Epilogue::relu ? Epilogue::none : epilogue;  // a library's makes 0 of NaN
  for (int64_t i = 0; i < (shared ? p.batch : 1); ++i)
    if (!library.product(shared ? single(p, i) : p, fused)) return false;  // all or none: they have one shape
  if (epilogue == Epilogue::relu) relu_in_place(p);
  return true;
}

void multiply(Product p, Epilogue epilogue) {
  if (p.n == 1 && p.batch == 1 && !p.trans_a && !p.bias && p.dtype == p.b_dtype) {  // the vector is a row for them all
    std::swap(p.a, p.b);
    std::swap(p.m, p.n);
    p.trans_b = true;
  }
  if (!library_product(p, epilogue)) own_product(p, epilogue);
}

// c = epilogue(x), in the dtype of both.
void apply(Epilogue epilogue, const Launch& launch, OutView c, View x) {
  if (epilogue == Epilogue::relu)
    kernels::relu.find(DeviceKind::cpu, x.dtype)(launch, c, x);
  else if (epilogue == Epilogue::gelu_tanh)
    kernels::gelu_tanh.find(DeviceKind::cpu, x.dtype)(launch, c, x);
  else
    kernels::copy.find(DeviceKind::cpu, x.dtype)(launch, c, x);
}

void matmul_wide(const Launch& launch, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  if (c.numel() == 0) return;
  if (!pre.defined()) return multiply(describe(launch, c, a, b, bias, args), args.epilogue);
  multiply(describe(launch, pre, a, b, bias, args), Epilogue::none);
  apply(args.epilogue, launch, c, {pre.data, pre.shape, pre.dtype, true});
}

// Operands and results by way of f32, but for a matrix that few rows read once.
void matmul_narrow(const Launch& launch, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  auto padded = [](const auto& view) { return view.defined() ? size_t(view.numel() + 15) / 16 * 16 : 0; };
  bool once = has_few_rows(describe(launch, c, a, b, bias, args));
  size_t elements = padded(a) + (once ? 0 : padded(b)) + padded(bias) + padded(c) + padded(pre) + 16;
  Workspace workspace(kCpu, elements * sizeof(float));
  float* next = workspace.as<float>();
  auto wide_output = [&](const auto& view) {
    OutView wide{next, view.shape, DType::f32, 0, view.defined()};
    next += padded(view);
    return wide;
  };
  auto widened = [&](View x) {
    if (!x.defined()) return x;
    OutView wide = wide_output(x);
    kernels::cast.find(DeviceKind::cpu, x.dtype)(launch, wide, x);
    return View{wide.data, x.shape, DType::f32, true};
  };
  auto narrowed = [&](OutView y, OutView wide) {
    if (y.defined()) kernels::cast.find(DeviceKind::cpu, DType::f32)(launch, y, {wide.data, y.shape, DType::f32, true});
  };
  View wide_a = widened(a), wide_b = once ? b : widened(b), wide_bias = widened(bias);
  OutView wide_c = wide_output(c), wide_pre = wide_output(pre);
  matmul_wide(launch, wide_c, wide_pre, wide_a, wide_b, wide_bias, args);
  narrowed(c, wide_c);
  narrowed(pre, wide_pre);
}

void matmul_bf16(const Launch& launch, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  if (c.numel() == 0) return;
  if (!pre.defined() && library_product(describe(launch, c, a, b, bias, args), args.epilogue)) return;
  matmul_narrow(launch, c, pre, a, b, bias, args);
}

void linear_backward_input(const Launch& launch, OutView dx, View dy, View w, View x, View) {
  kernels::matmul.find(DeviceKind::cpu, dy.dtype)(launch, dx, {}, dy, w, {}, {});
  View written{dx.data, dx.shape, dx.dtype, true};
  if (x.defined()) kernels::relu_backward.find(DeviceKind::cpu, dy.dtype)(launch, dx, written, x);
}

void linear_backward_weight(const Launch& launch, OutView dw, OutView dbias, View dy, View x) {
  if (dbias.defined()) kernels::sum_to.find(DeviceKind::cpu, dy.dtype)(launch, dbias, dy);
  if (dw.defined()) kernels::matmul.find(DeviceKind::cpu, dy.dtype)(launch, dw, {}, dy, x, {}, {.trans_a = true});
}

const Each registered_input(kernels::linear_backward_input, kFloats, linear_backward_input);
const Each registered_weight(kernels::linear_backward_weight, kFloats, linear_backward_weight);
const Each registered_wide(kernels::matmul, kWideFloats, matmul_wide);
const Register registered_bf16(kernels::matmul, DeviceKind::cpu, DType::bf16, matmul_bf16);
const Register registered_f16(kernels::matmul, DeviceKind::cpu, DType::f16, matmul_narrow);

}  // namespace
}  // namespace shardgrad::cpu
