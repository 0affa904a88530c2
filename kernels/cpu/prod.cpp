// prod and its gradient, in f64, of integers modulo 2^64. A product over many elements is cut into chunks of a fixed
// size, whatever the number of threads, and within one into kProdLanes that go side by side: a product waits for the
// last.

#include <algorithm>
#include <utility>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

template <class T> using Product = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

constexpr int64_t kProdChunk = 4096, kProdLanes = 16, kProdColumns = 256;
constexpr int64_t kBlockRows = 64, kBlockRuns = 64;  // of prod_backward

// products[c] = Π x[e, c] over n rows of `cols` columns, which are `inner` apart.
template <class T> void multiply_rows(Product<T>* products, const T* x, int64_t n, int64_t cols, int64_t inner) {
  std::fill_n(products, cols, Product<T>(1));
  for (int64_t e = 0; e < n; ++e)
    for (int64_t c = 0; c < cols; ++c) products[c] *= convert<Product<T>>(x[e * inner + c]);
}

// Lane l has the elements l, l + kProdLanes, …
template <class T> Product<T> multiply_range(const T* x, int64_t n) {
  Product<T> lanes[kProdLanes], product = 1;
  multiply_rows(lanes, x, n / kProdLanes, kProdLanes, kProdLanes);
  for (Product<T> lane : lanes) product *= lane;
  for (int64_t i = n / kProdLanes * kProdLanes; i < n; ++i) product *= convert<Product<T>>(x[i]);
  return product;
}

// A part (outer, chunk of `length` elements) gives `inner` products, to[part · inner, …).
template <class T>
void multiply_chunks(int threads, Product<T>* to, const T* x, const Around& from, int64_t chunks, int64_t length) {
  int64_t blocks = (from.inner + kProdColumns - 1) / kProdColumns;
  auto one = [&](int64_t part, int64_t first) {
    int64_t begin = part % chunks * length, n = std::min(length, from.extent - begin);
    const T* at = x + (part / chunks * from.extent + begin) * from.inner + first;
    if (from.inner == 1)
      to[part] = multiply_range(at, n);
    else
      multiply_rows(to + part * from.inner + first, at, n, std::min(kProdColumns, from.inner - first), from.inner);
  };
  int64_t cost = std::min(length, from.extent) * std::min(kProdColumns, from.inner);
  parallel_for(threads, from.outer * chunks * blocks, grain_for(cost), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(i / blocks, i % blocks * kProdColumns);
  });
}

void prod(const Launch& launch, OutView y, View x, int dim) {
  Around from(x.shape, dim);
  int64_t chunks = std::max<int64_t>(1, (from.extent + kProdChunk - 1) / kProdChunk), count = y.numel();
  dispatch(x.dtype, [&]<class T>() {
    Workspace memory(kCpu, size_t(std::max<int64_t>(1, count * chunks)) * sizeof(Product<T>));
    auto* parts = memory.as<Product<T>>();  // (outer, chunk, inner)
    multiply_chunks(launch.threads, parts, x.as<T>(), from, chunks, kProdChunk);
    parallel_for(launch.threads, count, grain_for(chunks), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Product<T>* part = parts + i / from.inner * chunks * from.inner + i % from.inner;
        Product<T> product = part[0];
        for (int64_t k = 1; k < chunks; ++k) product *= part[k * from.inner];
        put_sum(y.as<SumOf<T>>()[i], Compute<T>(product), y.beta != 0);
      }
    });
  });
}

/// Elements that go side by side: neighbouring lines along the dimension, or the parts of one.
struct Block {
  int64_t runs, length, step, run_step;
};

// dx of a block, of which before[r] and after[r] are the products of what comes before and after run r.
template <class T>
void block_backward(T* dx, const T* x, const double* dy, double* before, double* after, const Block& b, bool add) {
  double inside[kBlockRows * kBlockRuns];
  for (int64_t e = 0; e < b.length; ++e)
    for (int64_t r = 0; r < b.runs; ++r) {
      inside[e * b.runs + r] = before[r];
      before[r] *= convert<double>(x[r * b.run_step + e * b.step]);
    }
  for (int64_t e = b.length - 1; e >= 0; --e)
    for (int64_t r = 0; r < b.runs; ++r) {
      int64_t at = r * b.run_step + e * b.step;
      put_sum(dx[at], Compute<T>(dy[r] * (inside[e * b.runs + r] * after[r])), add);
      after[r] *= convert<double>(x[at]);
    }
}

// Up to kProdLanes · kBlockRows elements of one line that is contiguous: in parts where they are as many.
template <class T> void line_backward(T* dx, const T* x, double dy, double before, double after, int64_t n, bool add) {
  if (n < kProdLanes * kBlockRows) return block_backward(dx, x, &dy, &before, &after, {1, n, 1, n}, add);
  double of_run[kProdLanes], first[kProdLanes], last[kProdLanes], slope[kProdLanes];
  for (int64_t r = 0; r < kProdLanes; ++r) {
    of_run[r] = multiply_range(x + r * kBlockRows, kBlockRows);
    slope[r] = dy;
  }
  for (int64_t r = 0; r < kProdLanes; ++r) {
    first[r] = r == 0 ? before : first[r - 1] * of_run[r - 1];
    int64_t s = kProdLanes - 1 - r;
    last[s] = r == 0 ? after : last[s + 1] * of_run[s + 1];
  }
  block_backward(dx, x, slope, first, last, {kProdLanes, kBlockRows, 1, kBlockRows}, add);
}

// Of each chunk the products of the chunks before it and, in the place of its own, of those after it.
void multiply_other_chunks(int threads, double* before, double* after, const Around& from, int64_t chunks) {
  parallel_for(threads, from.outer * from.inner, grain_for(chunks), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t first = i / from.inner * chunks * from.inner + i % from.inner;
      double product = 1;
      for (int64_t k = 0; k < chunks; ++k) {
        before[first + k * from.inner] = product;
        product *= after[first + k * from.inner];
      }
      product = 1;
      for (int64_t k = chunks - 1; k >= 0; --k) product *= std::exchange(after[first + k * from.inner], product);
    }
  });
}

// Short lines that are contiguous, kBlockRuns of them at a time.
template <class T> void lines_backward(const Launch& launch, OutView dx, View dy, View x, const Around& from) {
  int64_t n = from.extent, blocks = (from.outer + kBlockRuns - 1) / kBlockRuns;
  parallel_for(launch.threads, blocks, grain_for(n * kBlockRuns), [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kBlockRuns; first < std::min(from.outer, end * kBlockRuns); first += kBlockRuns) {
      Block block{std::min(kBlockRuns, from.outer - first), n, 1, n};
      double slope[kBlockRuns], before[kBlockRuns], after[kBlockRuns];
      std::fill_n(before, kBlockRuns, 1.0), std::fill_n(after, kBlockRuns, 1.0);
      for (int64_t r = 0; r < block.runs; ++r) slope[r] = convert<double>(dy.as<T>()[first + r]);
      block_backward(dx.as<T>() + first * n, x.as<T>() + first * n, slope, before, after, block, dx.beta != 0);
    }
  });
}

void prod_backward(const Launch& launch, OutView dx, View dy, View x, int dim) {
  Around from(x.shape, dim);
  if (x.numel() == 0) return;
  if (from.inner == 1 && from.extent <= kBlockRows)
    return dispatch_floats(x.dtype, [&]<class T>() { lines_backward<T>(launch, dx, dy, x, from); });
  int64_t n = from.extent, inner = from.inner, length = inner == 1 ? kProdLanes * kBlockRows : kBlockRows;
  int64_t chunks = (n + length - 1) / length, blocks = (inner + kBlockRuns - 1) / kBlockRuns;
  int64_t products = from.outer * chunks * inner;
  Workspace memory(kCpu, size_t(2 * products) * sizeof(double));
  double *before = memory.as<double>(), *after = before + products;  // (outer, chunk, inner)
  dispatch_floats(x.dtype, [&]<class T>() {
    multiply_chunks(launch.threads, after, x.as<T>(), from, chunks, length);
    multiply_other_chunks(launch.threads, before, after, from, chunks);
    auto one = [&](int64_t part, int64_t column) {
      int64_t begin = part % chunks * length, count = std::min(length, n - begin), outer = part / chunks;
      int64_t at = (outer * n + begin) * inner + column, k = part * inner + column;
      const T* slopes = dy.as<T>() + outer * inner + column;
      if (inner == 1)
        return line_backward(dx.as<T>() + at, x.as<T>() + at, convert<double>(*slopes), before[k], after[k], count,
                             dx.beta != 0);
      Block block{std::min(kBlockRuns, inner - column), count, inner, 1};
      double slope[kBlockRuns];
      for (int64_t r = 0; r < block.runs; ++r) slope[r] = convert<double>(slopes[r]);
      block_backward(dx.as<T>() + at, x.as<T>() + at, slope, before + k, after + k, block, dx.beta != 0);
    };
    parallel_for(launch.threads, from.outer * chunks * blocks, grain_for(length * std::min(inner, kBlockRuns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) one(i / blocks, i % blocks * kBlockRuns);
                 });
  });
}

const Each registered(kernels::prod, kAll, prod);
const Each registered_backward(kernels::prod_backward, kFloats, prod_backward);

}  // namespace
}  // namespace shardgrad::cpu
