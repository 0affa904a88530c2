// index_select, index_add, gather, scatter_add, scatter. Additions follow the order of the index, whatever the threads.

#include <algorithm>
#include <optional>
#include <vector>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

void check_range(const char* op, View index, int64_t extent) {
  const int64_t* at = index.as<int64_t>();
  for (int64_t i = 0, n = index.numel(); i < n; ++i)
    SG_CHECK(uint64_t(at[i]) < uint64_t(extent), op, ": index ", i, " is ", at[i], ", outside [0, ", extent, ")");
}

// Where sums of y are built: y itself, or f32 for f16 and bf16, which round once at the end. Holds 0 at first when
// y.beta is 0.
template <class T> class Sums {
 public:
  using S = std::conditional_t<std::is_class_v<T>, float, T>;
  explicit Sums(const Launch& launch, OutView y) : launch_(launch), y_(y) {
    if constexpr (std::is_class_v<T>) memory_.emplace(kCpu, std::max<size_t>(1, size_t(y.numel()) * sizeof(float)));
    if (y.numel() == 0) return;
    if (y.beta == 0)
      std::memset(data(), 0, size_t(y.numel()) * sizeof(S));
    else if constexpr (std::is_class_v<T>)
      convert({data(), y.shape, DType::f32, 0, true}, y.data, y.dtype);
  }
  S* data() {
    if constexpr (std::is_class_v<T>)
      return memory_->template as<float>();
    else
      return y_.as<T>();
  }
  void finish() {
    if constexpr (std::is_class_v<T>) convert({y_.data, y_.shape, y_.dtype, 0, true}, data(), DType::f32);
  }

 private:
  void convert(OutView to, const void* from, DType dtype) {
    kernels::cast.find(DeviceKind::cpu, dtype)(launch_, to, {from, to.shape, dtype, true});
  }
  Launch launch_;
  OutView y_;
  std::optional<Workspace> memory_;
};

// y[i] = x[at[i]] over n elements, of which the first is number i of the index and belongs to the outer index `outer`.
template <class T>
void select_elements(T* y, const T* x, const int64_t* at, int64_t n, int64_t outer, int64_t i, int64_t count,
                     int64_t extent, bool accumulate) {
  for (int64_t some; n > 0; n -= some, y += some, i = 0, ++outer) {
    some = std::min(n, count - i);
    const T* from = x + outer * extent;
    for (int64_t k = 0; k < some; ++k) put(y[k], from[at[i + k]], accumulate);
  }
}

void index_select(const Launch& launch, OutView y, View x, View index, int dim) {
  Around from(x.shape, dim);
  check_range("index_select", index, from.extent);
  int64_t count = index.numel(), inner = from.inner;
  const int64_t* at = index.as<int64_t>();
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, from.outer * count, grain_for(inner), [&](int64_t begin, int64_t end) {
      int64_t outer = begin / count, i = begin % count;
      if (inner == 1)
        return select_elements(y.as<T>() + begin, x.as<T>(), at, end - begin, outer, i, count, from.extent,
                               y.beta != 0);
      for (int64_t r = begin; r < end; ++r) {
        const T* source = x.as<T>() + (outer * from.extent + at[i]) * inner;
        put_range(y.as<T>() + r * inner, source, inner, y.beta != 0);
        if (++i == count) i = 0, ++outer;
      }
    });
  });
}

// For 16 bits: the rows that the index names are summed in f32, and rounded once at the end.
template <class T>
void index_add_narrow(const Launch& launch, OutView y, View x, const int64_t* at, int64_t count, const Around& to) {
  std::vector<int64_t> named(at, at + count), slot(named.size());
  std::ranges::sort(named);
  named.erase(std::unique(named.begin(), named.end()), named.end());
  for (int64_t i = 0; i < count; ++i) slot[size_t(i)] = std::ranges::lower_bound(named, at[i]) - named.begin();
  int64_t inner = to.inner, rows = std::ssize(named);
  Workspace workspace(kCpu, size_t(std::max<int64_t>(1, rows * inner)) * sizeof(float));
  float* sums = workspace.as<float>();
  if (y.beta == 0 && y.numel() > 0) std::memset(y.data, 0, y.bytes());
  for (int64_t o = 0; o < to.outer; ++o) {
    auto row_of_y = [&](int64_t r) { return y.as<T>() + (o * to.extent + named[size_t(r)]) * inner; };
    // Threads own columns: each goes through the whole index in order.
    parallel_for(
        launch.threads, inner, grain_for(count),
        [&](int64_t begin, int64_t end) {
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = begin; c < end; ++c) sums[r * inner + c] = float(row_of_y(r)[c]);
          for (int64_t i = 0; i < count; ++i) {
            const T* row = x.as<T>() + (o * count + i) * inner;
            float* sum = sums + slot[size_t(i)] * inner;
            for (int64_t c = begin; c < end; ++c) sum[c] += float(row[c]);
          }
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = begin; c < end; ++c) row_of_y(r)[c] = T(sums[r * inner + c]);
        },
        16);
  }
}

void index_add(const Launch& launch, OutView y, View x, View index, int dim) {
  Around to(y.shape, dim);
  check_range("index_add", index, to.extent);
  int64_t count = index.numel(), inner = to.inner;
  const int64_t* at = index.as<int64_t>();
  dispatch(x.dtype, [&]<class T>() {
    if constexpr (std::is_class_v<T>) return index_add_narrow<T>(launch, y, x, at, count, to);
    if (y.beta == 0 && y.numel() > 0) std::memset(y.data, 0, y.bytes());
    T* data = y.as<T>();
    // Threads own columns: each goes through the whole index in order.
    parallel_for(
        launch.threads, inner, grain_for(to.outer * count),
        [&](int64_t begin, int64_t end) {
          for (int64_t o = 0; o < to.outer; ++o)
            for (int64_t i = 0; i < count; ++i) {
              T* sum = data + (o * to.extent + at[i]) * inner;
              const T* row = x.as<T>() + (o * count + i) * inner;
              for (int64_t c = begin; c < end; ++c) put_sum(sum[c], convert<Compute<T>>(row[c]), true);
            }
        },
        16);
  });
}

// The element of a tensor of shape `data` that each element of an index of shape `index` names: the same position, but
// for `dim`, where the index says.
class Positions {
 public:
  Positions(const Shape& index, const Shape& data, int dim) : index_(index), dim_(dim), last_(index.ndim() - 1) {
    int64_t stride = 1;
    for (int d = last_; d >= 0; --d) {
      stride_[d] = stride;
      stride *= data[d];
    }
  }
  int64_t cols() const { return last_ < 0 ? 1 : index_[last_]; }
  int64_t step() const { return last_ < 0 ? 0 : stride_[dim_]; }
  int64_t column_step() const { return last_ == dim_ ? 0 : 1; }
  /// The first element of row `row` (all index dimensions but the last).
  int64_t begin(int64_t row) const {
    int64_t at = 0;
    for (int d = last_ - 1; d >= 0; --d) {
      if (d != dim_) at += row % index_[d] * stride_[d];
      row /= index_[d];
    }
    return at;
  }

 private:
  Shape index_;
  int dim_, last_;
  int64_t stride_[kMaxDims] = {};
};

void gather(const Launch& launch, OutView y, View x, View index, int dim) {
  if (index.numel() == 0) return;
  check_range("gather", index, x.shape[dim]);
  Positions positions(index.shape, x.shape, dim);
  int64_t cols = positions.cols(), step = positions.step(), column_step = positions.column_step();
  dispatch(x.dtype, [&]<class T>() {
    parallel_for(launch.threads, index.numel() / cols, grain_for(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* from = x.as<T>() + positions.begin(r);
        const int64_t* at = index.as<int64_t>() + r * cols;
        for (int64_t c = 0; c < cols; ++c)
          put(y.as<T>()[r * cols + c], from[c * column_step + at[c] * step], y.beta != 0);
      }
    });
  });
}

void scatter_add(const Launch& launch, OutView y, View src, View index, int dim) {
  if (index.numel() > 0) check_range("scatter_add", index, y.shape[dim]);
  Positions positions(index.shape, y.shape, dim);
  int64_t cols = positions.cols(), step = positions.step(), column_step = positions.column_step();
  int64_t rows = index.numel() ? index.numel() / cols : 0;
  // Along dim 0 any two elements may meet; otherwise what differs in dimension 0 cannot.
  int64_t groups = dim == 0 ? 1 : index.shape[0], each = groups ? rows / groups : 0;
  dispatch(src.dtype, [&]<class T>() {
    Sums<T> sums(launch, y);
    auto* data = sums.data();
    parallel_for(launch.threads, groups, grain_for(each * cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin * each; r < end * each; ++r) {
        auto* to = data + positions.begin(r);
        const int64_t* at = index.as<int64_t>() + r * cols;
        for (int64_t c = 0; c < cols; ++c)
          put_sum(to[c * column_step + at[c] * step], convert<Compute<T>>(src.as<T>()[r * cols + c]), true);
      }
    });
    sums.finish();
  });
}

void scatter_rows(const Launch& launch, OutView y, View src, View index, int64_t row) {
  dispatch(src.dtype, [&]<class T>() {
    parallel_for(launch.threads, index.numel(), grain_for(row), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* to = y.as<T>() + index.as<int64_t>()[r] * row;
        const T* from = src.as<T>() + r * row;
        for (int64_t c = 0; c < row; ++c) put(to[c], from[c], y.beta != 0);
      }
    });
  });
}

void scatter(const Launch& launch, OutView y, View src, View index, int dim) {
  if (src.numel() == 0) return;
  check_range("scatter", index, y.shape[dim]);
  if (src.numel() > index.numel()) return scatter_rows(launch, y, src, index, src.numel() / index.numel());
  Positions positions(index.shape, y.shape, dim);
  int64_t cols = positions.cols(), step = positions.step(), column_step = positions.column_step();
  dispatch(src.dtype, [&]<class T>() {
    parallel_for(launch.threads, index.numel() / cols, grain_for(cols), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* to = y.as<T>() + positions.begin(r);
        const int64_t* at = index.as<int64_t>() + r * cols;
        for (int64_t c = 0; c < cols; ++c)
          put(to[c * column_step + at[c] * step], src.as<T>()[r * cols + c], y.beta != 0);
      }
    });
  });
}

const Each registered[] = {
    {kernels::index_select, kAll, index_select}, {kernels::index_add, kAll, index_add}, {kernels::gather, kAll, gather},
    {kernels::scatter_add, kAll, scatter_add},   {kernels::scatter, kAll, scatter},
};

}  // namespace
}  // namespace shardgrad::cpu
