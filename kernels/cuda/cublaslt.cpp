// Matrix products by cuBLASLt. Bias, ReLU and GELU are part of the product (an epilogue) where cuBLASLt has that for
// the dtype; its GELU is right to about 16 bits (to 3e-5 in f32, 4e-10 in f64, measured with 13.0), so wider ones are a
// kernel of their own. GELU keeps the value before it, ReLU a mask of bits that only cuBLASLt reads. In backward the
// mask is applied by the product that makes the gradient, and the bias gradient is a by-product of the weight's: a
// layer costs three products and no other kernel.

#include <shardgrad/kernels/choices.h>
#include <shardgrad/kernels/cuda/cublaslt_plan.h>
#include <shardgrad/kernels/cuda/library.h>

namespace shardgrad::gpu {
namespace {

using kernels::Epilogue;
using kernels::MatmulArgs;

cublasLtEpilogue_t epilogue_of(Epilogue epilogue, bool bias, bool keeps) {
  switch (epilogue) {
    case Epilogue::relu:
      if (keeps) return bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX;
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Epilogue::gelu_tanh:
      if (keeps) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool declined(const OutView& c, const View& a) {
  static const bool own = own_products_wanted();
  return own || c.numel() == 0 || a.numel() == 0;
}

Call call_of(OutView c, const void* aux, View a, View b, View bias, MatmulArgs args) {
  return {c, a, b, args.trans_a, args.trans_b, epilogue_of(args.epilogue, bias.defined(), aux), bias.data, aux};
}

View as_operand(const OutView& y) { return {y.data, y.shape, y.dtype, true}; }

// Whether there is an algorithm that leaves the mask, asked with an address as a tensor of its own would have.
void relu_mask_bytes(const Launch&, int64_t* bytes, OutView c, View a, View b, View bias, MatmulArgs args) {
  *bytes = 0;
  if (declined(c, a) || args.epilogue != Epilogue::relu) return;
  Call call = call_of(c, reinterpret_cast<const void*>(uintptr_t(kLargestAlignment)), a, b, bias, args);
  if (can_multiply(call)) *bytes = c.numel() / c.shape[-1] * mask_bits(c.shape[-1]) / 8;
}

const bool registered = [] {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    kernels::relu_mask_bytes.add(DeviceKind::cuda, dtype, relu_mask_bytes);
  return true;
}();

}  // namespace

bool library_product(const Launch& how, OutView c, OutView pre, View a, View b, View bias, MatmulArgs args) {
  if (declined(c, a)) return false;
  bool gelu = args.epilogue == Epilogue::gelu_tanh, exact = gelu && size_of(c.dtype) > 2;
  if (!pre.defined()) {
    if (!exact) return multiply(how, call_of(c, nullptr, a, b, bias, args));
    if (c.beta != 0 || !multiply(how, call_of(c, nullptr, a, b, bias, {args.trans_a, args.trans_b}))) return false;
    kernels::gelu_tanh.find(DeviceKind::cuda, c.dtype)(how, c, as_operand(c));
    return true;
  }
  bool mask = args.epilogue == Epilogue::relu && pre.dtype == DType::u8;
  bool fused = mask || (gelu && !exact && c.shape[-1] % 8 == 0);  // its rule for kept values
  if (fused && multiply(how, call_of(c, pre.data, a, b, bias, args))) return true;
  SG_ASSERT(!mask, "matmul: a mask that relu_mask_bytes did not ask for, at ", pre.data);
  if (!multiply(how, call_of(pre, nullptr, a, b, bias, {args.trans_a, args.trans_b}))) return false;
  View x = as_operand(pre);
  if (args.epilogue == Epilogue::relu)
    kernels::relu.find(DeviceKind::cuda, x.dtype)(how, c, x);
  else if (gelu)
    kernels::gelu_tanh.find(DeviceKind::cuda, x.dtype)(how, c, x);
  else
    kernels::copy.find(DeviceKind::cuda, x.dtype)(how, c, x);
  return true;
}

bool library_backward_input(const Launch& how, OutView dx, View dy, View w, View x, View mask) {
  if (declined(dx, dy)) return false;
  Call call{dx, dy, w};
  if (x.defined() && mask.defined()) {
    call.epilogue = CUBLASLT_EPILOGUE_DRELU, call.aux = mask.data;
    if (multiply(how, call)) return true;
    call.epilogue = CUBLASLT_EPILOGUE_DEFAULT, call.aux = nullptr;
  }
  if (!multiply(how, call)) return false;
  if (x.defined()) kernels::relu_backward.find(DeviceKind::cuda, dx.dtype)(how, dx, as_operand(dx), x);
  return true;
}

bool library_backward_weight(const Launch& how, OutView dw, OutView dbias, View dy, View x) {
  if (declined(dw, dy)) return false;
  Call call{dw, dy, x, true};
  if (dbias.defined() && dbias.beta == 0) {  // the library only overwrites it
    call.epilogue = CUBLASLT_EPILOGUE_BGRADB, call.bias = dbias.data;
    if (multiply(how, call)) return true;
    call.epilogue = CUBLASLT_EPILOGUE_DEFAULT, call.bias = nullptr;
  }
  if (!multiply(how, call)) return false;
  if (dbias.defined()) kernels::sum_to.find(DeviceKind::cuda, dy.dtype)(how, dbias, dy);
  return true;
}

}  // namespace shardgrad::gpu
