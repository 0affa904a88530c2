#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <climits>
#include <cmath>

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
    {"char1_to_double4",
     [](float* y, const float* x, int t) {
       char1 small = make_char1(static_cast<signed char>(-t));
       double4 large = make_double4(double(x[t]), 0.5, 1, 2);
       y[t] = float(large.x + large.y + large.z + large.w) + float(small.x);
     },
     [](int) { return 4.5f; }},
    {"__sinf",
     [](float* y, const float* x, int t) { y[t] = __sinf(x[t]) * __sinf(x[t]) + __cosf(x[t]) * __cosf(x[t]); },
     [](int) { return 1.0f; }},
    {"__float2uint",
     [](float* y, const float* x, int t) {
       y[t] = float(__float2uint_rn(x[t] + 0.75f) + 100 * __float2uint_rz(x[t] + 0.75f) + __float2uint_rz(-x[t]));
     },
     [](int t) { return float(t + 2 + 100 * (t + 1)); }},
    {"__double2int",
     [](float* y, const float* x, int t) {
       y[t] = float(__double2int_rn(-0.75 * double(x[t])) - __double2int_rz(-0.75 * double(x[t])));
       if (t == 3) y[t] = float(__double2int_rn(double(NAN)) == INT_MIN && __float2int_rn(NAN) == 0);
     },
     [](int t) { return t == 3 ? 1.0f : std::nearbyint(-0.75f * float(t + 1)) - std::trunc(-0.75f * float(t + 1)); }},
    {"__byte_perm",
     [](float* y, const float*, int t) { y[t] = float(__byte_perm(0x33221100u, 0x77665544u, unsigned(t % 8))); },
     [](int t) { return float(0x11 * (t % 8)); }},
    {"__funnelshift",
     [](float* y, const float*, int t) {
       y[t] = float(__funnelshift_l(1u << 31, 0, unsigned(t)) + __funnelshift_r(1, 1u << t, 33));
     },
     [](int t) { return float(t ? 1u << (t - 1) : 1u << 31); }},
    {"__mulhi",
     [](float* y, const float*, int t) {
       long long high = __mul64hi(-(1ll << 62), 8ll * t);
       unsigned long long unsigned_high = __umul64hi(1ull << 63, 4ull * unsigned(t));
       y[t] = float(__mulhi(-(1 << 30), 4 * t)) + 10 * float(high) + 100 * float(unsigned_high);
     },
     [](int t) { return float(-t - 10 * 2 * t + 100 * 2 * t); }},
    {"bits_of_64",
     [](float* y, const float*, int t) {
       unsigned long long one = 1ull << (32 + t);
       y[t] = float(__ffsll(static_cast<long long>(one)) + 100 * __ffsll(static_cast<long long>(__brevll(one))) +
                    __clzll(static_cast<long long>(one)) + __popcll(one - 1));
     },
     [](int t) { return float(33 + t + 100 * (32 - t) + 31 - t + 32 + t); }},
    {"__hmax",
     [](float* y, const float* x, int t) {
       __half v = __hmax(__half(x[t]), 4.0f), w = __hmin(v, __float2half(8.0f));
       y[t] = __half2float(w) + __half2float(hexp(__half(0)));
     },
     [](int t) { return float(t < 3 ? 4 : (t < 8 ? t + 1 : 8)) + 1; }},
    {"halves_beside_numbers",
     [](float* y, const float*, int t) {
       int64_t count = t;
       __nv_bfloat16 twice = __hmul(__nv_bfloat16(size_t(t)), 2);
       y[t] = __half2float(__hfma(__half(count), 2.0f, 1)) + __bfloat162float(twice);
     },
     [](int t) { return float(4 * t + 1); }},
};

}  // namespace

std::span<const Word> number_words() { return numbers; }

}  // namespace shardgrad::test
