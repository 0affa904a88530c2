#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <shardgrad/kernels/cuda/launch.h>

#include "tests/sim/words.h"

namespace shardgrad::test {
namespace {

const Word numbers[] = {
    {"float4",
     [](float* y, const float* x, int t) {
       if (t < 8) {
         float4 v = reinterpret_cast<const float4*>(x)[t];
         reinterpret_cast<float4*>(y)[t] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
       }
     },
     [](int t) { return float(2 * t + 2); }},
    {"float2",
     [](float* y, const float* x, int t) {
       float2 v = reinterpret_cast<const float2*>(x)[t / 2];
       y[t] = v.y - v.x + float(t);
     },
     [](int t) { return float(t + 1); }},
    {"int4",
     [](float* y, const float*, int t) {
       int4 v = make_int4(t, 2, 3, 4);
       y[t] = float(v.x + v.y + v.z + v.w + int(sizeof(v)) + int(alignof(int4)));
     },
     [](int t) { return float(t + 9 + 32); }},
    {"uchar4",
     [](float* y, const float*, int t) {
       uchar4 v = make_uchar4(1, 2, 3, static_cast<unsigned char>(t));
       y[t] = float(v.z + v.w);
     },
     [](int t) { return float(t + 3); }},
    {"dim3",
     [](float* y, const float*, int t) {
       dim3 block = blockDim;
       y[t] = float(block.x + block.y + gridDim.x + blockIdx.x);
     },
     [](int) { return 34.0f; }},
    {"rsqrtf", [](float* y, const float* x, int t) { y[t] = rsqrtf(x[t] * x[t]) * x[t]; }, [](int) { return 1.0f; }},
    {"__expf", [](float* y, const float* x, int t) { y[t] = __logf(__expf(x[t])); },
     [](int t) { return float(t + 1); }},
    {"__powf", [](float* y, const float* x, int t) { y[t] = __powf(x[t], 2.0f); },
     [](int t) { return float((t + 1) * (t + 1)); }},
    {"__powf_of_negative", [](float* y, const float* x, int t) { y[t] = float(isnan(__powf(-x[t], 2.0f))); },
     [](int) { return 1.0f; }},
    {"__fdividef", [](float* y, const float* x, int t) { y[t] = __fdividef(x[t], 2.0f); },
     [](int t) { return float(t + 1) / 2; }},
    {"__saturatef", [](float* y, const float* x, int t) { y[t] = __saturatef(x[t] - 2.5f); },
     [](int t) { return t < 2 ? 0.0f : (t == 2 ? 0.5f : 1.0f); }},
    {"fmaf", [](float* y, const float* x, int t) { y[t] = fmaf(x[t], 2.0f, 1.0f) + __fmaf_rn(0.0f, 0.0f, 0.0f); },
     [](int t) { return float(2 * t + 3); }},
    {"min_and_max", [](float* y, const float* x, int t) { y[t] = max(min(x[t], 20.0f), 5.0f) + float(min(t, 3)); },
     [](int t) { return float(t < 4 ? 5 : (t < 20 ? t + 1 : 20)) + float(t < 3 ? t : 3); }},
    {"__float2int_rn", [](float* y, const float* x, int t) { y[t] = float(__float2int_rn(x[t] / 2)); },
     [](int t) { return float((t + 1) / 2 + ((t + 1) % 4 == 3)); }},
    {"__float_as_int", [](float* y, const float* x, int t) { y[t] = __int_as_float(__float_as_int(x[t])); },
     [](int t) { return float(t + 1); }},
    {"__popc", [](float* y, const float*, int t) { y[t] = float(__popc(0xffffffffu >> t)); },
     [](int t) { return float(32 - t); }},
    {"__clz", [](float* y, const float*, int t) { y[t] = float(__clz(int(0xffffffffu >> t))); },
     [](int t) { return float(t); }},
    {"__ffs", [](float* y, const float*, int t) { y[t] = float(__ffs(int(0xffffffffu << t)) + __ffs(0)); },
     [](int t) { return float(t + 1); }},
    {"__brev", [](float* y, const float*, int t) { y[t] = float(__clz(int(__brev(1u << t)))); },
     [](int t) { return float(t); }},
    {"__umulhi", [](float* y, const float*, int t) { y[t] = float(__umulhi(1u << 31, 2u * unsigned(t))); },
     [](int t) { return float(t); }},
    {"__half",
     [](float* y, const float* x, int t) {
       __half a = __float2half(x[t]), b = __hadd(a, a) * __float2half(2.0f);
       y[t] = __half2float(__hfma(b, a, __float2half(1.0f)));
     },
     [](int t) { return t < 22 ? float(4 * (t + 1) * (t + 1) + 1) : float(f16(float(4 * (t + 1) * (t + 1) + 1))); }},
    {"half2",
     [](float* y, const float* x, int t) {
       half2 two = __hmul2(__floats2half2_rn(x[t], 3.0f), __float2half2_rn(2.0f));
       y[t] = __low2float(two) + __high2float(two);
     },
     [](int t) { return float(2 * (t + 1) + 6); }},
    {"__nv_bfloat16",
     [](float* y, const float* x, int t) {
       __nv_bfloat162 two = __floats2bfloat162_rn(x[t], 1.0f / 3);
       y[t] = __bfloat162float(two.x) + __bfloat162float(two.y);
     },
     [](int t) { return float(t + 1) + float(bf16(1.0f / 3)); }},
    {"__hne",
     [](float* y, const float* x, int t) {
       __half odd = __float2half(t % 2 ? NAN : x[t]), one = __float2half(1.0f);
       y[t] = float(__hne(odd, one) + 2 * __hneu(odd, one) + 4 * (odd != one));
     },
     [](int t) { return t == 0 ? 0.0f : (t % 2 ? 6.0f : 7.0f); }},
};

}  // namespace

std::span<const Word> number_words() { return numbers; }

}  // namespace shardgrad::test
