#include <barrier>
#include <functional>
#include <thread>

#include <shardgrad/certify/reference/rest.h>
#include <shardgrad/kernels/cpu/matmul.h>
#include <shardgrad/kernels/workspace.h>
#include <tests/kernels/placed.h>

namespace shardgrad::test {
namespace {

#define SG_BOTH(name) kernels::name, [](auto... args) { reference::name(args...); }

using kernels::Epilogue;
using kernels::MatmulArgs;

// Sums of k products, in an order of the implementation's choice.
Tolerance tolerance_for(int64_t k) { return {8 + std::sqrt(double(k)) * 2, true, false}; }

Shape matrix(std::vector<int64_t> dims, int64_t rows, int64_t cols, bool transposed) {
  dims.push_back(transposed ? cols : rows);
  dims.push_back(transposed ? rows : cols);
  return Shape(std::span<const int64_t>(dims));
}

// Small integers over eight: products and their sums are exact in f32 and f64, so any order gives the same bits.
Buffer exact(Shape shape, DType dtype, uint32_t seed) {
  Buffer buffer = Buffer::random(shape, dtype, -8, 8, seed);
  for (int64_t i = 0; i < buffer.numel(); ++i) buffer.set(i, std::round(buffer.get(i)) / 8);
  return buffer;
}

// kernels::matmul with `pre` not wanted, as a kernel of one output.
template <class... Args> void expect_product(DType dtype, Shape c, Tolerance tolerance, const Args&... args) {
  std::array<Buffer, 2> outputs{Buffer(c, dtype), Buffer()};
  expect_like_reference(SG_BOTH(matmul), dtype, outputs, tolerance, args...);
}

struct Sizes {
  int64_t m, n, k;
};
const Sizes kSizes[] = {{1, 1, 1},    {3, 5, 7},      {4, 16, 32},   {17, 33, 9},   {13, 31, 65}, {1, 70, 40},
                        {70, 1, 40},  {40, 40, 1},    {0, 3, 4},     {3, 0, 4},     {3, 4, 0},    {65, 67, 66},
                        {90, 80, 70}, {33, 140, 300}, {150, 3, 700}, {1, 150, 270}, {3, 67, 96},  {8, 70, 515}};
/// The kernel on the simulator works in tiles of 64 × 64 × 16, whose edges all but the last six sizes meet.
std::span<const Sizes> sizes() {
  return std::span(kSizes).first(std::size(kSizes) - (test_device() == DeviceKind::cpu ? 0 : 6));
}

TEST(Matmul, MatchesTheReferenceForEverySizeTransposeAndBeta) {
  for (DType dtype : kFloats)
    for (auto [m, n, k] : sizes())
      for (bool trans_a : {false, true})
        for (bool trans_b : {false, true})
          expect_product(dtype, {m, n}, tolerance_for(k), Buffer::random(matrix({}, m, k, trans_a), dtype, -1, 1, 3),
                         Buffer::random(matrix({}, k, n, trans_b), dtype, -1, 1, 4), Buffer(),
                         MatmulArgs{trans_a, trans_b});
}

TEST(Matmul, IsExactWhereEveryProductAndSumIs) {
  for (DType dtype : {DType::f32, DType::f64})
    for (auto [m, n, k] : sizes())
      expect_product(dtype, {m, n}, {0, true, true}, exact({m, k}, dtype, 3), exact({k, n}, dtype, 4), Buffer(),
                     MatmulArgs{});
}

TEST(Matmul, AddsBiasAndAppliesTheEpilogue) {
  for (DType dtype : kFloats)
    for (auto [m, n, k] : sizes())
      for (Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::gelu_tanh}) {
        Tolerance tolerance = tolerance_for(k);
        tolerance.accumulates = epilogue == Epilogue::none;
        Buffer a = Buffer::random({m, k}, dtype, -1, 1, 3), b = Buffer::random({n, k}, dtype, -1, 1, 4);
        Buffer bias = Buffer::random({n}, dtype, -1, 1, 5);
        expect_product(dtype, {m, n}, tolerance, a, b, bias, MatmulArgs{false, true, epilogue});
      }
}

TEST(Matmul, KeepsTheValueBeforeTheEpilogue) {
  for (DType dtype : kFloats)
    for (auto [m, n, k] : sizes())
      for (Epilogue epilogue : {Epilogue::none, Epilogue::relu, Epilogue::gelu_tanh}) {
        Tolerance tolerance = tolerance_for(k);
        tolerance.accumulates = false;
        Buffer a = Buffer::random({m, k}, dtype, -1, 1, 3), b = Buffer::random({k, n}, dtype, -1, 1, 4);
        Buffer bias = Buffer::random({n}, dtype, -1, 1, 5), c({m, n}, dtype);
        expect_like_reference(SG_BOTH(matmul), dtype, std::array<Buffer, 2>{c, c}, tolerance, a, b, bias,
                              MatmulArgs{false, false, epilogue});
      }
}

// GPUs take large products in tiles of 128 × 128, 32 deep, where operands lie at multiples of 16 bytes; the others in
// smaller tiles. A sum is the same, so one address has the bits of another.
TEST(Matmul, LargeProductsOf16BitsHaveTheBitsOfAnyAddress) {
  Context context;
  const Sizes large[] = {{128, 128, 8}, {128, 136, 40}, {264, 128, 104}};
  for (DType dtype : {DType::bf16, DType::f16})
    for (auto [m, n, k] : large)
      for (bool trans_a : {false, true})
        for (bool trans_b : {false, true}) {
          if (test_device() != DeviceKind::cpu && m > 128 && trans_a == trans_b) continue;  // slow on the simulator
          Buffer a = Buffer::random(matrix({}, m, k, trans_a), dtype, -1, 1, 3);
          Buffer b = Buffer::random(matrix({}, k, n, trans_b), dtype, -1, 1, 4),
                 bias = Buffer::random({n}, dtype, -1, 1, 5);
          Buffer expected({m, n}, dtype), old = Buffer::random({m, n}, dtype, -1, 1, 6);
          MatmulArgs args{trans_a, trans_b, Epilogue::relu};
          reference::matmul(expected.out(), {}, a.in(), b.in(), bias.in(), args);
          std::vector<double> found[2], added[2];
          for (bool at_a_pack : {true, false}) {
            Placed x(a, at_a_pack), y(b, at_a_pack);
            Buffer c({m, n}, dtype), sum = old;
            kernel_of(kernels::matmul, dtype)(1, c.poison().out(), {}, x.in(), y.in(), bias.in(), args);
            kernel_of(kernels::matmul, dtype)(1, sum.out(1), {}, x.in(), y.in(), {}, MatmulArgs{trans_a, trans_b});
            expect_close(c, expected, c, 0, tolerance_for(k), concat(m, " x ", n, " x ", k));
            found[at_a_pack] = c.values(), added[at_a_pack] = sum.values();
          }
          if (test_device() == DeviceKind::cpu) continue;  // there, and with cuBLASLt, the order is the library's
          if (test_device() == DeviceKind::cuda && std::getenv("SHARDGRAD_GEMM") == nullptr) continue;
          EXPECT_EQ(found[0], found[1]) << dtype << ", " << m << " x " << n << " x " << k << trans_a << trans_b;
          EXPECT_EQ(added[0], added[1]) << dtype;
        }
}

TEST(Matmul, ServesBatchesAndOneMatrixForAll) {
  for (DType dtype : kFloats)
    for (auto [m, n, k] :
         {Sizes{3, 5, 7}, Sizes{33, 20, 40}, Sizes{65, 66, test_device() == DeviceKind::cpu ? 67 : 17}})
      for (bool trans_a : {false, true})
        for (bool trans_b : {false, true})
          for (int which : {0, 1, 2}) {  // both batched, only a, only b
            const std::vector<int64_t> batch = m < 50 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{1, 2};
            auto batch_a = which == 2 ? std::vector<int64_t>{} : batch;
            auto batch_b = which == 1 ? std::vector<int64_t>{} : batch;
            Buffer a = Buffer::random(matrix(batch_a, m, k, trans_a), dtype, -1, 1, 3);
            Buffer b = Buffer::random(matrix(batch_b, k, n, trans_b), dtype, -1, 1, 4);
            expect_product(dtype, {batch[0], batch[1], m, n}, tolerance_for(k), a, b,
                           Buffer::random({n}, dtype, -1, 1, 5), MatmulArgs{trans_a, trans_b});
          }
}

TEST(Matmul, BackwardOfALayerGivesTheGradientBeforeReluAndTheSumOfTheBias) {
  for (DType dtype : kFloats)
    for (auto [rows, in, out] : sizes()) {
      Buffer dy = Buffer::random({rows, out}, dtype, -1, 1, 3), w = Buffer::random({out, in}, dtype, -1, 1, 4);
      Buffer x = Buffer::random({rows, in}, dtype, -1, 1, 5);
      for (int64_t i = 0; i < x.numel(); i += 3) x.set(i, 0);
      Tolerance through_relu = tolerance_for(out);
      through_relu.accumulates = false;
      expect_like_reference(SG_BOTH(linear_backward_input), dtype, one({rows, in}, dtype), tolerance_for(out), dy, w,
                            Buffer(), Buffer());
      expect_like_reference(SG_BOTH(linear_backward_input), dtype, one({rows, in}, dtype), through_relu, dy, w, x,
                            Buffer());
      Buffer dw({out, in}, dtype), dbias({out}, dtype);
      for (bool weight : {true, false})
        for (bool bias : {true, false})
          expect_like_reference(SG_BOTH(linear_backward_weight), dtype,
                                std::array<Buffer, 2>{weight ? dw : Buffer(), bias ? dbias : Buffer()},
                                tolerance_for(rows), dy, x);
    }
}

TEST(CpuMatmul, OwnProductsDoNotDependOnThreads) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64}) {
    Buffer a = Buffer::random({150, 130}, dtype), b = Buffer::random({130, 170}, dtype);
    auto run = [&](int threads) {
      Buffer c({150, 170}, dtype);
      c.poison();
      cpu::Product p{.threads = threads, .dtype = dtype, .m = 150, .n = 170, .k = 130};
      p.a = a.in().as<char>(), p.b = b.in().as<char>(), p.c = c.out().as<char>();
      cpu::own_product(p, Epilogue::none);
      return c;
    };
    Buffer single = run(1);
    for (int threads : {2, 3, 4, 7}) EXPECT_TRUE(run(threads) == single) << threads;
  }
}

// y = x · wᵀ of a layer: each row has the bits that it has among many, so that text is the same alone and in a batch.
TEST(CpuMatmul, AFewRowsHaveTheBitsThatOwnProductsOfManyRowsHave) {
  Context context;
  auto product = [](const Buffer& x, const Buffer& w, int64_t rows, int threads, bool accumulate) {
    Buffer c = Buffer::random({rows, w.shape()[0]}, x.dtype(), -1, 1, 7);
    for (int64_t i = 0; i < c.numel(); ++i) c.set(i, double(i % c.shape()[1]) / 64);
    cpu::Product p{
        .threads = threads, .dtype = x.dtype(), .b_dtype = w.dtype(), .m = rows, .n = w.shape()[0], .k = w.shape()[1]};
    p.a = x.in().as<char>(), p.b = w.in().as<char>(), p.c = c.out().as<char>();
    p.trans_b = true, p.accumulate = accumulate;
    EXPECT_EQ(cpu::has_few_rows(p), rows <= 8);
    cpu::own_product(p, Epilogue::none);
    return c;
  };
  for (DType dtype : {DType::f32, DType::f64})
    for (int64_t depth : {64, 100, 300, 777})
      for (bool accumulate : {false, true}) {
        Buffer x = Buffer::random({20, depth}, dtype, -1, 1, 3), w = Buffer::random({150, depth}, dtype, -1, 1, 4);
        Buffer many = product(x, w, 20, 1, accumulate);
        for (int64_t rows = 1; rows <= 8; ++rows)
          for (int threads : {1, 3}) {
            Buffer few = product(x, w, rows, threads, accumulate);
            EXPECT_EQ(std::memcmp(few.in().data, many.in().data, few.in().bytes()), 0)
                << dtype << ", depth " << depth << ", " << rows << " rows, " << threads << " threads";
          }
      }
}

TEST(CpuMatmul, AFewRowsReadAMatrixOf16BitsAsItsNumbersInF32) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f16})
    for (int64_t rows : {1, 2, 5, 8}) {
      Buffer x = Buffer::random({rows, 301}, dtype, -1, 1, 3), w = Buffer::random({70, 301}, dtype, -1, 1, 4);
      Buffer wide_x(x.shape(), DType::f32), wide_w(w.shape(), DType::f32), wide({rows, 70}, DType::f32);
      for (int64_t i = 0; i < x.numel(); ++i) wide_x.set(i, x.get(i));
      for (int64_t i = 0; i < w.numel(); ++i) wide_w.set(i, w.get(i));
      Buffer c({rows, 70}, dtype);
      kernel_of(kernels::matmul, dtype)(2, c.poison().out(), {}, x.in(), w.in(), {}, {false, true});
      kernel_of(kernels::matmul, DType::f32)(2, wide.poison().out(), {}, wide_x.in(), wide_w.in(), {}, {false, true});
      for (int64_t i = 0; i < c.numel(); ++i) {
        Buffer rounded({1}, dtype);
        rounded.set(0, wide.get(i));
        ASSERT_EQ(c.get(i), rounded.get(0)) << dtype << ", " << rows << " rows, element " << i;
      }
    }
}

// Four threads run one shape after the other, all the same at the same time, so that a primitive shared between them
// would run in two at once; and each thread has operands of its own, so that one's data in another's result would show.
TEST(CpuMatmul, FourThreadsAtOnceGetTheBitsOfOne) {
  const Sizes sizes[] = {{72, 72, 72}, {64, 96, 64}, {100, 40, 80}, {33, 64, 160}};
  constexpr size_t kThreads = 4, kShapes = 4, kRounds = 1500;
  using Results = std::array<Buffer, kShapes>;
  for (DType dtype : {DType::f32, DType::bf16}) {
    auto kernel = kernel_of(kernels::matmul, dtype);
    // Products whose bits differ from `results`, which the first round writes where it is empty.
    auto run = [&](size_t thread, size_t rounds, Results& results, const std::function<void()>& meet) {
      Context context;
      size_t wrong = 0;
      auto seed = uint32_t(100 * thread);
      for (size_t i = 0; i < kShapes; ++i) {
        auto [m, n, k] = sizes[i];
        Buffer a = Buffer::random({m, k}, dtype, -2, 2, seed), b = Buffer::random({n, k}, dtype, -2, 2, seed + 1);
        Buffer bias = Buffer::random({n}, dtype, -2, 2, seed + 2), c({m, n}, dtype);
        meet();
        for (size_t round = 0; round < rounds; ++round) {
          c.poison();
          kernel(1, c.out(), {}, a.in(), b.in(), bias.in(), {false, true, Epilogue::relu});
          if (!results[i].defined()) results[i] = c;
          wrong += !(c == results[i]);
        }
      }
      return wrong;
    };
    std::array<Results, kThreads> alone;
    for (size_t thread = 0; thread < kThreads; ++thread) run(thread, 1, alone[thread], [] {});
    std::barrier start(kThreads);
    std::vector<std::thread> ranks;
    for (size_t thread = 0; thread < kThreads; ++thread)
      ranks.emplace_back([&, thread] {
        EXPECT_EQ(run(thread, kRounds, alone[thread], [&] { start.arrive_and_wait(); }), 0u) << dtype << ' ' << thread;
      });
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(CpuMatmul, ManyShapesDoNotFillTheCacheForEver) {
  Context context;
  auto kernel = kernel_of(kernels::matmul, DType::f32);
  Buffer a = exact({400, 64}, DType::f32, 1), b = exact({64, 64}, DType::f32, 2);
  for (int64_t m = 64; m < 360; ++m) {
    Buffer c({m, 64}, DType::f32), again({m, 64}, DType::f32);
    View rows{a.in().data, {m, 64}, DType::f32, true};
    kernel(1, c.poison().out(), {}, rows, b.in(), {}, {});
    cpu::Product p{.m = m, .n = 64, .k = 64};
    p.a = rows.as<char>(), p.b = b.in().as<char>(), p.c = again.poison().out().as<char>();
    cpu::own_product(p, Epilogue::none);
    ASSERT_TRUE(c.in().numel() == again.numel() && std::memcmp(c.in().data, again.in().data, c.in().bytes()) == 0) << m;
  }
}

TEST(CpuMatmul, ScratchMemoryIsInTheLedgerAndGivenBack) {
  Context context;
  Buffer a = Buffer::random({300, 300}, DType::f64), c({300, 300}, DType::f64);
  kernel_of(kernels::matmul, DType::f64)(1, c.out(), {}, a.in(), a.in(), {}, {});
  EXPECT_EQ(context.ledger().current(Category::workspace), 0);
  EXPECT_GT(context.ledger().peak(Category::workspace), 0);
}

}  // namespace
}  // namespace shardgrad::test
