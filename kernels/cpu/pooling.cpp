// Largest and mean of the windows of images, each image of one thread (isa/pooling.cpp).

#include <shardgrad/kernels/cpu/element.h>
#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/cpu/parallel.h>
#include <shardgrad/kernels/cpu/register.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::cpu {
namespace {

// Images of x and of y, one for each sample and channel.
struct Images {
  int64_t count, x_size, y_size;
  DType dtype;
  int type;
  PoolTask task;

  Images(const Shape& x, const Shape& y, DType of, const kernels::PoolArgs& args)
      : count(x[0] * x[1]), x_size(x[2] * x[3]), y_size(y[2] * y[3]), dtype(of), type(int(of)), task{x[2],
                                                                                                     x[3],
                                                                                                     y[2],
                                                                                                     y[3],
                                                                                                     args.down,
                                                                                                     args.across} {}
  size_t x_at(int64_t image) const { return size_t(image * x_size) * size_of(dtype); }
  size_t y_at(int64_t image) const { return size_t(image * y_size) * size_of(dtype); }
};

// Calls work(image, memory) for every image, with `bytes` of memory for each thread.
template <class Work> void for_images(const Launch& launch, const Images& all, size_t bytes, const Work& work) {
  int64_t window = all.task.down.kernel * all.task.across.kernel;
  int64_t worth = std::max<int64_t>(1, all.count / grain_for(all.x_size + all.y_size * window));
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

void max_pool2d(const Launch& launch, OutView y, OutView index, View x, kernels::PoolArgs args) {
  if (y.numel() == 0) return;
  Images all(x.shape, y.shape, x.dtype, args);
  all.task.accumulate = y.beta != 0;
  all.task.accumulate_index = index.beta != 0;
  for_tasks(launch, all, [&](int64_t i, const PoolTask& task) {
    int32_t* places = index.defined() ? index.as<int32_t>() + i * all.y_size : nullptr;
    loops().pooling.largest[all.type](y.as<char>() + all.y_at(i), places, x.as<char>() + all.x_at(i), task);
  });
}

// Sums of what the index sends to each place of an image.
template <class S, class T> void scatter(S* sums, const Images& all, const T* dy, const int32_t* index) {
  std::fill_n(sums, all.x_size, S(0));
  for (int64_t i = 0; i < all.y_size; ++i) sums[index[i]] += convert<S>(dy[i]);
}

void max_pool2d_backward(const Launch& launch, OutView dx, View dy, View index, kernels::PoolArgs args) {
  if (dx.numel() == 0) return;
  Images all(dx.shape, dy.shape, dx.dtype, args);
  dispatch_floats(dx.dtype, [&]<class T>() {
    using S = Compute<T>;
    auto cast = loops().elementwise.cast[all.type][int(all.dtype == DType::f64 ? DType::f64 : DType::f32)];
    for_images(launch, all, size_t(all.x_size) * sizeof(S), [&](int64_t i, void* memory) {
      S* sums = static_cast<S*>(memory);
      scatter(sums, all, dy.as<T>() + i * all.y_size, index.as<int32_t>() + i * all.y_size);
      cast(dx.as<T>() + i * all.x_size, sums, all.x_size, dx.beta != 0);
    });
  });
}

void avg_pool2d(const Launch& launch, OutView y, View x, kernels::PoolArgs args) {
  if (y.numel() == 0) return;
  Images all(x.shape, y.shape, x.dtype, args);
  all.task.accumulate = y.beta != 0;
  for_tasks(launch, all, [&](int64_t i, const PoolTask& task) {
    loops().pooling.mean[all.type](y.as<char>() + all.y_at(i), x.as<char>() + all.x_at(i), task);
  });
}

void avg_pool2d_backward(const Launch& launch, OutView dx, View dy, kernels::PoolArgs args) {
  if (dx.numel() == 0) return;
  Images all(dx.shape, dy.shape, dx.dtype, args);
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
