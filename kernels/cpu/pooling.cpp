// Largest and mean of the windows of images, each image of one thread: of many windows side by side (isa/pooling.cpp).

#include <vector>

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/pooling.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

using kernels::PoolArgs, kernels::Sight;

// Images of x and of y, one for each sample and channel.
struct Images {
  int64_t count, x_size, y_size;
  DType dtype;
  int type;
  PoolArgs args;
  PoolTask task;

  Images(const Shape& x, const Shape& y, DType of, const PoolArgs& a)
      : count(x[0] * x[1]), x_size(x[2] * x[3]), y_size(y[2] * y[3]), dtype(of), type(int(of)), args(a) {
    task = {x[2], x[3], y[2], y[3], args.down, args.across};
  }
  Sight rows_of(int64_t place) const { return sight_of(args, args.down, place, task.rows, task.height); }
  Sight columns_of(int64_t place) const { return sight_of(args, args.across, place, task.columns, task.width); }
  /// About so many elements are read for an image.
  int64_t work() const {
    return x_size + y_size * std::min(args.down.kernel, task.height) * std::min(args.across.kernel, task.width);
  }
  size_t x_at(int64_t image) const { return size_t(image * x_size) * size_of(dtype); }
  size_t y_at(int64_t image) const { return size_t(image * y_size) * size_of(dtype); }
};

// Calls work(image, memory) for every image, with `bytes` of memory for each thread.
template <class Work> void for_images(const Launch& launch, const Images& all, size_t bytes, const Work& work) {
  int64_t worth = std::max<int64_t>(1, all.count / grain_for(all.work()));
  int64_t parts = std::min<int64_t>(launch.threads, worth), piece = (all.count + parts - 1) / parts;
  size_t each = (bytes + 63) / 64 * 64;
  Workspace memory(kCpu, each * size_t(parts));
  char* data = memory.as<char>();
  parallel_for(int(parts), parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      for (int64_t i = part * piece; i < std::min(all.count, (part + 1) * piece); ++i)
        work(i, data + size_t(part) * each);
  });
}

// The same with the task of the loops.
template <class Work> void for_tasks(const Launch& launch, const Images& all, const Work& work) {
  for_images(launch, all, loops().pooling.workspace[all.type](all.task), [&](int64_t image, void* memory) {
    PoolTask task = all.task;
    task.workspace = memory;
    work(image, task);
  });
}

// Windows with as many elements in a row as there are places side by side, or more, are gone over one by one.
bool one_by_one(const PoolTask& task) { return task.across.kernel >= task.columns; }

// So are those whose means do not all divide by the same number.
bool means_one_by_one(const Images& all) {
  const PoolTask& task = all.task;
  auto even = [](const Window& w, Sight first, Sight last) {
    return first.count == w.kernel && last.count == w.kernel;
  };
  return one_by_one(task) || all.args.parts || !even(task.down, all.rows_of(0), all.rows_of(task.rows - 1)) ||
         !even(task.across, all.columns_of(0), all.columns_of(task.columns - 1));
}

// Calls visit(place, rows, columns) for each window with what it sees of an image, of columns as they were made for
// all.
using Columns = std::vector<Sight>;
Columns columns_of(const Images& all) {
  Columns columns;
  for (int64_t c = 0; c < all.task.columns; ++c) columns.push_back(all.columns_of(c));
  return columns;
}
template <class Visit> void over_windows(const Images& all, const Columns& columns, const Visit& visit) {
  for (int64_t r = 0, place = 0; r < all.task.rows; ++r) {
    Sight rows = all.rows_of(r);
    for (const Sight& each : columns) visit(place++, rows, each);
  }
}

// In f64. Few elements are not worth a call.
template <class T> double sum_of(const T* x, const Runs& runs) {
  if (runs.count * runs.length > 32) return loops().channels.sum[int(dtype_of<T>)](x, runs);
  double sum = 0;
  for (int64_t r = 0; r < runs.count; ++r)
    for (int64_t c = 0; c < runs.length; ++c) sum += double(convert<Compute<T>>(x[r * runs.stride + c]));
  return sum;
}

void largest_one_by_one(const Launch& launch, const Images& all, OutView y, OutView index, View x) {
  int64_t width = all.task.width;
  Columns columns = columns_of(all);
  dispatch_floats(x.dtype, [&]<class T>() {
    for_images(launch, all, 0, [&](int64_t image, void*) {
      const T* from = x.as<T>() + image * all.x_size;
      over_windows(all, columns, [&](int64_t place, Sight rows, Sight cols) {
        int64_t at = rows.first * width + cols.first;
        auto top = convert<Compute<T>>(from[at]);
        for (int64_t r = rows.first; r < rows.last; ++r)
          for (int64_t i = r * width + cols.first; i < r * width + cols.last; ++i) {
            auto value = convert<Compute<T>>(from[i]);
            if (value <= top || top != top) continue;  // NaN is above all, and stays
            top = value;
            at = i;
          }
        place += image * all.y_size;
        put_sum(y.as<T>()[place], top, y.beta != 0);
        if (index.defined()) put(index.as<int32_t>()[place], int32_t(at), index.beta != 0);
      });
    });
  });
}

void max_pool2d(const Launch& launch, OutView y, OutView index, View x, PoolArgs args) {
  if (y.numel() == 0) return;
  Images all(x.shape, y.shape, x.dtype, args);
  if (one_by_one(all.task)) return largest_one_by_one(launch, all, y, index, x);
  all.task.accumulate = y.beta != 0;
  all.task.accumulate_index = index.beta != 0;
  for_tasks(launch, all, [&](int64_t i, const PoolTask& task) {
    int32_t* places = index.defined() ? index.as<int32_t>() + i * all.y_size : nullptr;
    loops().pooling.largest[all.type](y.as<char>() + all.y_at(i), places, x.as<char>() + all.x_at(i), task);
  });
}

// Writes to an image of dx what add(sums) has added to zeros.
template <class T, class Add> void write_sums(const Images& all, T* dx, void* memory, bool accumulate, const Add& add) {
  auto* sums = static_cast<Compute<T>*>(memory);
  std::fill_n(sums, all.x_size, Compute<T>(0));
  add(sums);
  loops().elementwise.cast[all.type][int(all.dtype == DType::f64 ? DType::f64 : DType::f32)](dx, sums, all.x_size,
                                                                                             accumulate);
}

void max_pool2d_backward(const Launch& launch, OutView dx, View dy, View index, PoolArgs args) {
  if (dx.numel() == 0) return;
  Images all(dx.shape, dy.shape, dx.dtype, args);
  dispatch_floats(dx.dtype, [&]<class T>() {
    for_images(launch, all, size_t(all.x_size) * sizeof(Compute<T>), [&](int64_t image, void* memory) {
      const T* from = dy.as<T>() + image * all.y_size;
      const int32_t* to = index.as<int32_t>() + image * all.y_size;
      write_sums(all, dx.as<T>() + image * all.x_size, memory, dx.beta != 0, [&](auto* sums) {
        for (int64_t i = 0; i < all.y_size; ++i) sums[to[i]] += convert<Compute<T>>(from[i]);
      });
    });
  });
}

void mean_one_by_one(const Launch& launch, const Images& all, OutView y, View x) {
  Columns columns = columns_of(all);
  dispatch_floats(x.dtype, [&]<class T>() {
    for_images(launch, all, 0, [&](int64_t image, void*) {
      const T* from = x.as<T>() + image * all.x_size;
      T* to = y.as<T>() + image * all.y_size;
      over_windows(all, columns, [&](int64_t place, Sight rows, Sight cols) {
        Runs runs{rows.last - rows.first, cols.last - cols.first, all.task.width};
        double sum = sum_of(from + rows.first * all.task.width + cols.first, runs);
        put_sum(to[place], Compute<T>(sum / (double(rows.count) * double(cols.count))), y.beta != 0);
      });
    });
  });
}

void avg_pool2d(const Launch& launch, OutView y, View x, PoolArgs args) {
  if (y.numel() == 0) return;
  Images all(x.shape, y.shape, x.dtype, args);
  if (means_one_by_one(all)) return mean_one_by_one(launch, all, y, x);
  all.task.accumulate = y.beta != 0;
  for_tasks(launch, all, [&](int64_t i, const PoolTask& task) {
    loops().pooling.mean[all.type](y.as<char>() + all.y_at(i), x.as<char>() + all.x_at(i), task);
  });
}

void share_one_by_one(const Launch& launch, const Images& all, OutView dx, View dy) {
  Columns columns = columns_of(all);
  dispatch_floats(dx.dtype, [&]<class T>() {
    for_images(launch, all, size_t(all.x_size) * sizeof(Compute<T>), [&](int64_t image, void* memory) {
      const T* from = dy.as<T>() + image * all.y_size;
      write_sums(all, dx.as<T>() + image * all.x_size, memory, dx.beta != 0, [&](auto* sums) {
        over_windows(all, columns, [&](int64_t place, Sight rows, Sight cols) {
          auto each = convert<Compute<T>>(from[place]) / Compute<T>(double(rows.count) * double(cols.count));
          for (int64_t r = rows.first; r < rows.last; ++r)
            for (int64_t c = cols.first; c < cols.last; ++c) sums[r * all.task.width + c] += each;
        });
      });
    });
  });
}

void avg_pool2d_backward(const Launch& launch, OutView dx, View dy, PoolArgs args) {
  if (dx.numel() == 0) return;
  Images all(dx.shape, dy.shape, dx.dtype, args);
  if (means_one_by_one(all)) return share_one_by_one(launch, all, dx, dy);
  all.task.accumulate = dx.beta != 0;
  for_tasks(launch, all, [&](int64_t i, const PoolTask& task) {
    loops().pooling.mean_backward[all.type](dx.as<char>() + all.x_at(i), dy.as<char>() + all.y_at(i), task);
  });
}

const Each registered_max(kernels::max_pool2d, kFloats, max_pool2d);
const Each registered_max_backward(kernels::max_pool2d_backward, kFloats, max_pool2d_backward);
const Each registered_mean(kernels::avg_pool2d, kFloats, avg_pool2d);
const Each registered_mean_backward(kernels::avg_pool2d_backward, kFloats, avg_pool2d_backward);

}  // namespace
}  // namespace shardgrad::cpu
