// Products by cuBLASLt, as it is asked for them: what kernels/cuda/cublaslt.cpp describes is computed the plain way by
// the pretended cuBLASLt and compared with the reference.

#include <cublasLt.h>

#include <cstdlib>
#include <thread>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/core/step_graph.h>
#include <shardgrad/kernels/cuda/library.h>

#include "tests/fake_cuda/fake_cuda.h"
#include "tests/kernels/kernel_case.h"

namespace shardgrad::test {
namespace {

using kernels::Epilogue;
using kernels::MatmulArgs;

Shape matrix(std::vector<int64_t> dims, int64_t rows, int64_t columns, bool transposed) {
  dims.push_back(transposed ? columns : rows);
  dims.push_back(transposed ? rows : columns);
  return Shape(std::span<const int64_t>(dims));
}

class CublasLt : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }

  // Whether the library took it; if so, c and pre are compared with the reference.
  bool product(Buffer c, Buffer pre, const Buffer& a, const Buffer& b, const Buffer& bias, MatmulArgs args,
               float beta = 0) {
    Context context({.device = device});
    Stream& stream = context.backend(device).compute();
    Buffer initial = beta == 0 ? c.poison() : c, expected = c, expected_pre = pre;
    Launch how{1, stream.native()};
    bool taken = false;
    stream.run("matmul",
               [&] { taken = gpu::library_product(how, c.out(beta), pre.out(), a.in(), b.in(), bias.in(), args); });
    stream.synchronize();
    if (!taken) {
      EXPECT_TRUE(c == initial);
      return false;
    }
    reference::matmul(expected.out(beta), expected_pre.out(), a.in(), b.in(), bias.in(), args);
    std::string what = concat(a.dtype(), a.shape(), args.trans_a ? "T" : "", " x ", b.shape(), args.trans_b ? "T" : "",
                              " epilogue ", int(args.epilogue), " beta ", beta);
    expect_close(c, expected, initial, beta, {16}, what);
    if (pre.defined())
      expect_close(pre, expected_pre, Buffer(pre.shape(), pre.dtype()), 0, {16}, what + ", before the epilogue");
    return true;
  }
  Device device = kCuda;
};

const std::array<int64_t, 3> kSizes[] = {{1, 1, 1},   {3, 5, 7},   {4, 16, 32}, {17, 33, 9},
                                         {1, 70, 40}, {40, 40, 1}, {5, 24, 9},  {33, 8, 17}};

TEST_F(CublasLt, EverySizeTransposeDtypeAndBeta) {
  for (DType dtype : kFloats)
    for (auto [m, n, k] : kSizes)
      for (bool trans_a : {false, true})
        for (bool trans_b : {false, true})
          for (float beta : {0.0f, 1.0f})
            EXPECT_TRUE(product(
                Buffer::random({m, n}, dtype, -1, 1, 9), {}, Buffer::random(matrix({}, m, k, trans_a), dtype, -1, 1, 3),
                Buffer::random(matrix({}, k, n, trans_b), dtype, -1, 1, 4), {}, {trans_a, trans_b}, beta));
}

TEST_F(CublasLt, BiasAndEpilogueWithAndWithoutTheValueBefore) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (auto [m, n, k] : kSizes)
      for (Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::gelu_tanh})
        for (bool with_bias : {false, true}) {
          Buffer a = Buffer::random({m, k}, dtype, -1, 1, 3), b = Buffer::random({n, k}, dtype, -1, 1, 4),
                 c({m, n}, dtype);
          Buffer bias = with_bias ? Buffer::random({n}, dtype, -1, 1, 5) : Buffer();
          EXPECT_TRUE(product(c, {}, a, b, bias, {false, true, epilogue}));
          if (epilogue != Epilogue::gelu_tanh || n % 8 != 0) continue;  // the activation is a kernel of its own
          EXPECT_TRUE(product(c, c, a, b, bias, {false, true, epilogue}));
        }
}

// What relu keeps has a form of the library's own, which only its backward reads.
TEST_F(CublasLt, ReluLeavesAMaskAndBackwardAppliesItAndSumsTheBiasGradient) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (auto [rows, in, out] : kSizes) {
      Context context({.device = kCuda});
      Stream& stream = context.backend(kCuda).compute();
      Launch how{1, stream.native()};
      Buffer a = Buffer::random({rows, out}, dtype, -1, 1, 3), b = Buffer::random({in, out}, dtype, -1, 1, 4);
      Buffer bias = Buffer::random({in}, dtype, -1, 1, 5), x({rows, in}, dtype), expected = x;
      Buffer dy = Buffer::random({rows, out}, dtype, -1, 1, 6), w = Buffer::random({out, in}, dtype, -1, 1, 7), dx = x;
      Buffer dw({out, in}, dtype), dbias({out}, dtype), expected_dx = dx, expected_dw = dw, expected_dbias = dbias;
      MatmulArgs relu{false, true, Epilogue::relu};
      int64_t bytes = 0;
      kernels::relu_mask_bytes.find(DeviceKind::cuda, dtype)(how, &bytes, x.out(), a.in(), b.in(), bias.in(), relu);
      ASSERT_EQ(bytes, rows * ((in + 127) / 128) * 16);
      std::vector<char> room(size_t(bytes) + 16);
      void* mask = room.data() + (16 - reinterpret_cast<uintptr_t>(room.data()) % 16);
      OutView mask_out{mask, {bytes}, DType::u8, 0, true};
      int before = fake_cuda::products();
      stream.run("layer", [&] {
        EXPECT_TRUE(gpu::library_product(how, x.out(), mask_out, a.in(), b.in(), bias.in(), relu));
        View mask_in{mask, {bytes}, DType::u8, true};
        EXPECT_TRUE(gpu::library_backward_input(how, dx.poison().out(), dy.in(), w.in(), x.in(), mask_in));
        EXPECT_TRUE(gpu::library_backward_weight(how, dw.poison().out(), dbias.poison().out(), dy.in(), x.in()));
      });
      stream.synchronize();
      EXPECT_EQ(fake_cuda::products(), before + 3);
      reference::matmul(expected.out(), {}, a.in(), b.in(), bias.in(), relu);
      reference::linear_backward_input(expected_dx.out(), dy.in(), w.in(), expected.in(), {});
      expect_close(x, expected, expected, 0, {16}, "relu");
      reference::linear_backward_weight(expected_dw.out(), expected_dbias.out(), dy.in(), x.in());
      expect_close(dx, expected_dx, expected_dx, 0, {16}, "gradient before relu");
      expect_close(dw, expected_dw, expected_dw, 0, {16}, "gradient of the weight");
      expect_close(dbias, expected_dbias, expected_dbias, 0, {16}, "gradient of the bias");
    }
}

TEST_F(CublasLt, BatchesAndOneMatrixForAll) {
  for (bool trans_a : {false, true})
    for (bool trans_b : {false, true})
      for (int which : {0, 1, 2}) {  // both batched, only a, only b
        auto batch_a = which == 2 ? std::vector<int64_t>{} : std::vector<int64_t>{2, 3};
        auto batch_b = which == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{2, 3};
        Buffer a = Buffer::random(matrix(batch_a, 8, 7, trans_a), DType::f32, -1, 1, 3);
        Buffer b = Buffer::random(matrix(batch_b, 7, 16, trans_b), DType::f32, -1, 1, 4);
        Buffer c({2, 3, 8, 16}, DType::f32), bias = Buffer::random({16}, DType::f32, -1, 1, 5);
        EXPECT_TRUE(product(c, {}, a, b, bias, {trans_a, trans_b}));
        EXPECT_TRUE(product(c, c, a, b, bias, {trans_a, trans_b, Epilogue::gelu_tanh}));
      }
}

TEST_F(CublasLt, WhatItHasNoAlgorithmForIsLeftToTheOwnKernel) {
  Buffer a = Buffer::random({3, 4}, DType::f64), c({3, 3}, DType::f64), bias({3}, DType::f64);
  EXPECT_FALSE(product(c, {}, a, a, bias, {false, true}));
  EXPECT_FALSE(product(Buffer({3, 3}, DType::f32), {}, Buffer({3, 0}, DType::f32), Buffer({0, 3}, DType::f32), {}, {}));
}

TEST_F(CublasLt, F32IsF32AndTf32WhereItIsAskedFor) {
  for (bool asked : {false, true}) {
    setenv("SHARDGRAD_TF32", asked ? "1" : "0", 1);
    std::thread([&] {  // each reads the variable once
      auto type_of = [&](DType dtype) {
        Buffer a = Buffer::random({8, 8}, dtype), c({8, 8}, dtype);
        EXPECT_TRUE(product(c, {}, a, a, {}, {}));
        return fake_cuda::computing_type().load();
      };
      EXPECT_EQ(type_of(DType::f32), asked ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
      EXPECT_EQ(type_of(DType::bf16), CUBLAS_COMPUTE_32F);
      EXPECT_EQ(type_of(DType::f64), CUBLAS_COMPUTE_64F);
    })
        .join();
  }
  unsetenv("SHARDGRAD_TF32");
}

TEST_F(CublasLt, AnUnknownValueOfTf32IsRefusedByTheFirstProductOfAThread) {
  setenv("SHARDGRAD_TF32", "true", 1);
  std::thread([&] {
    Buffer a = Buffer::random({8, 8}, DType::f32), c({8, 8}, DType::f32);
    EXPECT_THROW(product(c, {}, a, a, {}, {}), Error);
  }).join();
  unsetenv("SHARDGRAD_TF32");
}

// The pretended library refuses another GPU's handle, and a launch another GPU's memory.
TEST_F(CublasLt, EachGpuOfAProcessHasAHandleAndScratchMemoryOfItsOwn) {
  fake_cuda::machine().gpus = 2;
  Buffer a = Buffer::random({8, 8}, DType::f32), c({8, 8}, DType::f32);
  for (uint8_t index : {0, 1, 0}) {
    device = {DeviceKind::cuda, index};
    EXPECT_TRUE(product(c, {}, a, a, {}, {}));
  }
}

TEST_F(CublasLt, AsksForAnAlgorithmOncePerProduct) {
  std::thread([&] {  // algorithms are kept per thread
    Buffer a = Buffer::random({8, 8}, DType::f32), c({8, 8}, DType::f32);
    int before = fake_cuda::heuristic_calls();
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(product(c, {}, a, a, {}, {}));
    EXPECT_EQ(fake_cuda::heuristic_calls(), before + 1);
    EXPECT_TRUE(product(c, {}, a, a, {}, {}, 1));
    EXPECT_EQ(fake_cuda::heuristic_calls(), before + 2);
  })
      .join();
}

// The third of five is the fastest here. The result is added to once, however often it is tried.
TEST_F(CublasLt, WhereProductsAreTimedTheFastestAlgorithmIsKept) {
  setenv("SHARDGRAD_GEMM", "timed", 1);
  fake_cuda::milliseconds_of_algorithms() = {40, 60, 0, 80, 30};
  std::thread([&] {  // algorithms are kept per thread
    Buffer a = Buffer::random({8, 8}, DType::f32), c = Buffer::random({8, 8}, DType::f32, -1, 1, 2);
    Buffer bias = Buffer::random({8}, DType::f32, -1, 1, 3), pre({8, 8}, DType::f32);
    int asked = fake_cuda::heuristic_calls(), queued = fake_cuda::products();
    EXPECT_TRUE(product(c, {}, a, a, {}, {}, 1));
    EXPECT_EQ(fake_cuda::last_algorithm(), 2);
    EXPECT_EQ(fake_cuda::products(), queued + 5 * 4 + 1);
    EXPECT_TRUE(product(c, {}, a, a, {}, {}, 1));
    EXPECT_EQ(fake_cuda::products(), queued + 5 * 4 + 2) << "once and for all";
    EXPECT_EQ(fake_cuda::heuristic_calls(), asked + 1);
    EXPECT_TRUE(product(c, pre, a, a, bias, {false, true, Epilogue::gelu_tanh}))
        << "with what an epilogue writes beside";
    EXPECT_EQ(fake_cuda::last_algorithm(), 2);
  })
      .join();
  fake_cuda::milliseconds_of_algorithms() = {};
  unsetenv("SHARDGRAD_GEMM");
}

// Timing waits, which no captured step may: it has what the library takes to be the fastest.
TEST_F(CublasLt, NothingIsTimedInAStepThatIsCaptured) {
  setenv("SHARDGRAD_GEMM", "timed", 1);
  fake_cuda::milliseconds_of_algorithms() = {40, 60, 0, 80, 30};
  std::thread([&] {  // algorithms are kept per thread
    Context context({.device = device});
    Stream& stream = context.backend(device).compute();
    Tensor a = zeros({8, 8}), c = zeros({8, 8});
    auto multiply = [&] {
      stream.run("matmul", [&] {
        EXPECT_TRUE(gpu::library_product({1, stream.native()}, c.out(), {}, a.in(), a.in(), {}, {}));
      });
    };
    bool multiplies = false;
    StepGraph step([&] {
      if (multiplies) multiply();
      return Tensor();
    });
    step(), step();
    multiplies = true;
    step();
    EXPECT_TRUE(step.is_captured());
    EXPECT_EQ(fake_cuda::last_algorithm(), 0);
    multiply();
    EXPECT_EQ(fake_cuda::last_algorithm(), 2) << "the first product outside is timed";
  })
      .join();
  fake_cuda::milliseconds_of_algorithms() = {};
  unsetenv("SHARDGRAD_GEMM");
}

}  // namespace
}  // namespace shardgrad::test
