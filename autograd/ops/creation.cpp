#include <algorithm>
#include <cmath>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// Memory that is somebody else's: it is handed out once. What runs on a GPU may read it for a moment more.
class BorrowedMemory final : public Allocator {
 public:
  BorrowedMemory(Device device, void* data, std::function<void()> done)
      : Allocator(device),
        data_(data),
        done_(std::move(done)),
        gpu_(device.kind == DeviceKind::cuda ? cuda_number_of(device, context()) : -1) {}
  ~BorrowedMemory() override {
    if (done_) done_();
  }
  MemoryBlock allocate(size_t bytes, Stream&) override { return {data_, bytes}; }
  void free(MemoryBlock, Stream& stream) noexcept override {
    if (Capture* capture = Capture::current(); capture && gpu_ >= 0) return capture->keep(Ref<RefCounted>(this));
    if (running_stream() == &stream) return discard({});  // its own work drops it, and would wait for itself
    try {
      stream.synchronize();
    } catch (...) {  // told by who waits for the stream next
      discard({});
    }
  }
  void discard(MemoryBlock) noexcept override {
    if (gpu_ >= 0) wait_for_gpu(gpu_);
  }

 private:
  void* data_;
  std::function<void()> done_;
  int gpu_;  // or none
};

TensorOptions like(const Tensor& x) { return {x.dtype(), x.device()}; }
bool whole(double value) { return value == std::trunc(value); }

}  // namespace

Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), like(x)); }
Tensor ones_like(const Tensor& x) { return ones(x.shape(), like(x)); }
Tensor full_like(const Tensor& x, Scalar value) { return full(x.shape(), value, like(x)); }

Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  check_held("full", value, options.dtype);
  Tensor y = empty(shape, options);
  launch(kernels::fill, y, out(y), double(value));
  return y;
}

Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

template <class T> static void count_up(T* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (sizeof(T) == 2)
      to[i] = T(float(i));
    else
      to[i] = T(i);
  }
}

// On the device: a copy of the host's numbers would wait for all that the device has to do.
static Tensor counted_up(int64_t count, Device device, DType dtype) {
  Tensor numbers = cumsum(ones({count}, {DType::i64, device}), 0) - 1;
  if (dtype == DType::i64) return numbers;
  return size_of(dtype) == 2 ? cast(cast(numbers, DType::f32), dtype) : cast(numbers, dtype);
}

Tensor arange(int64_t count, TensorOptions options) {
  SG_CHECK(count >= 0, "arange: count ", count, " is negative");
  Device device = options.device.value_or(context().default_device());
  if (computes_by_itself(device) && count > 0) {
    if (options.dtype != DType::u8) return counted_up(count, device, options.dtype);
    return to_device(arange(count, {options.dtype, kCpu}), device);  // which wrap, where a cast takes the nearest
  }
  Tensor y = empty({count}, options);
  if (has_values(device)) dispatch(options.dtype, [&]<class T>() { count_up(y.out().as<T>(), count); });
  return y;
}

// In f64, rounded once.
Tensor arange(Scalar begin, Scalar end, Scalar step, TensorOptions options) {
  if (!is_floating(options.dtype))
    for (const Scalar* number : {&begin, &end, &step}) number->check_exact("arange");
  double count = std::ceil((end - begin) / step);
  SG_CHECK(step != 0 && std::isfinite(count), "arange: from ", begin, " to ", end, " by ", step, " is not possible");
  SG_CHECK(count <= double(kMaxElements), "arange: from ", begin, " to ", end, " by ", step,
           " are more than 2^56 numbers");
  DType exact = is_floating(options.dtype) ? DType::f64 : DType::i64;
  Tensor numbers = arange(int64_t(std::max(0.0, count)), {exact, options.device.value_or(context().default_device())});
  return cast(affine(numbers, step, begin), options.dtype);
}
Tensor arange(Scalar begin, Scalar end, Scalar step) {
  return arange(begin, end, step, whole(begin) && whole(end) && whole(step) ? DType::i64 : DType::f32);
}

Tensor linspace(double first, double last, int64_t count, TensorOptions options) {
  SG_CHECK(count >= 0, "linspace: count ", count, " is negative");
  Tensor numbers = arange(count, {DType::f64, options.device.value_or(context().default_device())});
  double step = count > 1 ? (last - first) / double(count - 1) : 0;
  Tensor y = affine(numbers, step, first);
  Tensor near = lt(numbers, full({}, double(count) / 2, like(numbers)));  // from the nearer end: the last is exact
  return cast(where(near, y, affine(numbers, step, last - step * double(count - 1))), options.dtype);
}

Tensor eye(int64_t rows, int64_t columns, TensorOptions options) {
  if (columns < 0) columns = rows;
  TensorOptions places{DType::i64, options.device.value_or(context().default_device())};
  Tensor row = arange(rows, places).alias({rows, 1}), column = arange(columns, places);
  return cast(eq(row, column), options.dtype);
}

Shape NestedNumbers::shape() const {
  if (scalar_) return {};
  std::vector<int64_t> extents{int64_t(rows_.size())};
  if (!rows_.empty()) {
    Shape row = rows_[0].shape();
    for (const NestedNumbers& other : rows_)
      SG_CHECK(other.shape() == row, "tensor: rows of shapes ", row, " and ", other.shape(), " side by side");
    extents.insert(extents.end(), row.begin(), row.end());
  }
  return Shape(std::span<const int64_t>(extents));
}
bool NestedNumbers::whole() const { return scalar_ ? whole_ : std::ranges::all_of(rows_, &NestedNumbers::whole); }

Tensor tensor(const NestedNumbers& values, TensorOptions options) {
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  values.each([&](int64_t integer, double number) { integers.push_back(integer), numbers.push_back(number); });
  Device device = options.device.value_or(context().default_device());
  if (values.whole()) return cast(from_vector(integers, values.shape(), {DType::i64, device}), options.dtype);
  SG_CHECK(is_floating(options.dtype) || std::ranges::all_of(numbers, whole), "tensor: numbers with fractions for a ",
           "tensor of ", options.dtype);
  return cast(from_vector(numbers, values.shape(), {DType::f64, device}), options.dtype);
}
Tensor tensor(const NestedNumbers& values) {
  bool integers = values.whole() && values.shape().numel() > 0;
  return tensor(values, integers ? DType::i64 : DType::f32);
}

Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void()> done, Device device) {
  SG_CHECK(device.kind == DeviceKind::cpu || device.kind == DeviceKind::cuda, "from_blob: device ", device,
           " has memory of its own; give memory of the host or of a GPU");
  SG_CHECK(data || shape.numel() == 0, "from_blob: no memory for shape ", shape);
  SG_CHECK(reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0, "from_blob: the address is no multiple of ",
           size_of(dtype), ", the size of ", dtype);
  Stream& compute = context().backend(device).compute();  // before `done` is ours: there may be none
  if (compute.native()) compute.run("from_blob", [] {});  // what others have it wait for is part of its next event
  Ref<Allocator> memory = make_ref<BorrowedMemory>(device, data, std::move(done));
  size_t bytes = size_t(shape.numel()) * size_of(dtype);
  return Tensor(Storage::make(bytes, std::move(memory), {Category::borrowed, 0}), 0, shape, dtype);
}

void fill_(const Tensor& x, Scalar value) {
  check_changeable("fill_", x);
  check_held("fill_", value, x.dtype());
  launch(kernels::fill, x, out(x), double(value));
  x.bump_version();  // a change that is refused counts no write
}

}  // namespace shardgrad
