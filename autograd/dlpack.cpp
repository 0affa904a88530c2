#include <shardgrad/autograd/dlpack.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>

namespace shardgrad::dlpack {
namespace {

static_assert(sizeof(Array) == 48 && sizeof(Managed) == 64 && sizeof(Versioned) == 80, "as the C structs are");

ElementType element_type(DType dtype) {
  Code code = dtype == DType::bf16 ? Code::bfloat
              : is_floating(dtype) ? Code::floating
              : dtype == DType::u8 ? Code::unsigned_integer
                                   : Code::integer;
  return {code, uint8_t(size_of(dtype) * 8), 1};
}

DType dtype_of_element(ElementType type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    ElementType own = element_type(DType(i));
    if (own.code == type.code && own.bits == type.bits && own.lanes == type.lanes) return DType(i);
  }
  if (type.code == Code::boolean && type.bits == 8 && type.lanes == 1) return DType::u8;
  constexpr const char* kNames[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  size_t code = size_t(type.code);
  fail("dlpack: elements of dtype ", code < std::size(kNames) ? kNames[code] : "unknown, bits: ", int(type.bits),
       type.lanes > 1 ? " in vectors" : "", " cannot be had; convert them to one of f64, f32, bf16, f16, i64, i32, u8");
}

// What lives as long as the memory is lent.
struct Loan {
  Tensor tensor;
  DeviceOf lies;
  std::array<int64_t, kMaxDims> shape{}, strides{};

  Loan(const Tensor& lent, const char* holder) : tensor(lent.detach()), lies(device_of(lent)) {
    int64_t step = 1;
    for (int d = tensor.ndim() - 1; d >= 0; --d) {
      shape[size_t(d)] = tensor.size(d);
      strides[size_t(d)] = step;
      step *= tensor.size(d);
    }
    tensor.storage()->lease(holder);
  }
  // Who had it may not have waited for what it has queued on streams of its own.
  ~Loan() {
    if (lies.type == DeviceType::cuda) wait_for_gpu(lies.id);
    tensor.storage()->end_lease();
  }
  Loan(const Loan&) = delete;
  Array array() {
    return {tensor.storage()->data(), lies,           tensor.ndim(), element_type(tensor.dtype()), shape.data(),
            strides.data(),           tensor.offset()};
  }
};

void check_lendable(const Tensor& x) {
  SG_CHECK(!x.requires_grad(), "dlpack: ", x, " requires a gradient, which writes elsewhere would not have; lend ",
           "detach() of it");
  SG_CHECK(x.device() != kMeta, "dlpack: a tensor on meta has no memory");
  device_of(x);
  static_cast<void>(x.in());  // in memory, or the error that says who has released it
  if (x.device() != kCpu) context().backend(x.device()).compute().synchronize();
}

template <class M> M* lend_as(const Tensor& x, const char* holder) {
  check_lendable(x);
  auto loan = std::make_unique<Loan>(x, holder);
  auto managed = std::make_unique<M>();
  managed->array = loan->array();
  managed->owner = loan.release();
  managed->deleter = [](M* self) {
    delete static_cast<Loan*>(self->owner);
    delete self;
  };
  return managed.release();
}

bool is_row_major(const Array& array) {
  if (!array.strides || std::count(array.shape, array.shape + array.ndim, 0) > 0) return true;
  int64_t step = 1;
  for (int d = array.ndim - 1; d >= 0; --d) {
    if (array.shape[d] != 1 && array.strides[d] != step) return false;
    step *= array.shape[d];
  }
  return true;
}

Shape shape_of(const Array& array) { return Shape(std::span<const int64_t>(array.shape, size_t(array.ndim))); }

void* first_element(const Array& array) { return static_cast<char*>(array.data) + array.byte_offset; }

template <class M> Tensor borrow_as(M* lent) {
  const Array& array = lent->array;
  Device device = device_of(array.device);
  Shape shape = shape_of(array);
  DType dtype = dtype_of_element(array.dtype);
  SG_CHECK(is_row_major(array), "dlpack: elements of shape ", shape, " do not lie row by row without gaps; copy them, ",
           "as numpy.ascontiguousarray and torch's contiguous() do");
  auto done = [lent] {
    if (lent->deleter) lent->deleter(lent);
  };
  return from_blob(first_element(array), shape, dtype, done, device);
}

}  // namespace

DeviceOf device_of(const Tensor& x) {
  Device device = x.device();
  SG_CHECK(device.kind == DeviceKind::cpu || device.kind == DeviceKind::cuda, "dlpack: there is no name for device ",
           device, "; copy the tensor with .to(kCpu) first");
  if (device.kind == DeviceKind::cpu) return {DeviceType::cpu, 0};
  return {DeviceType::cuda, cuda_number_of(device, context())};
}

Device device_of(DeviceOf memory) {
  if (memory.type == DeviceType::cpu || memory.type == DeviceType::cuda_host) return kCpu;
  SG_CHECK(memory.type == DeviceType::cuda, "dlpack: memory of device type ", int(memory.type),
           " cannot be had; copy it to the host first");
  int gpus = cuda_device_count();
  for (int index = 0; index < gpus; ++index) {
    Device device{DeviceKind::cuda, uint8_t(index)};
    if (cuda_number_of(device, context()) == memory.id) return device;
  }
  fail("dlpack: memory of GPU ", memory.id, " cannot be had where ", gpus, gpus == 1 ? " GPU is" : " GPUs are",
       " to be used; copy it to the host first");
}

Versioned* lend(const Tensor& x, const char* holder) { return lend_as<Versioned>(x, holder); }
Managed* lend_unversioned(const Tensor& x, const char* holder) { return lend_as<Managed>(x, holder); }

Tensor borrow(Versioned* lent) {
  SG_CHECK(lent->major == 1, "dlpack: version ", lent->major, ".", lent->minor, " is not known here; 1 is");
  SG_CHECK(!(lent->flags & kReadOnly), "dlpack: the memory is read-only, and operations in place would write to it; ",
           "copy it");
  return borrow_as(lent);
}
Tensor borrow(Managed* lent) { return borrow_as(lent); }

Tensor copy_of(const Array& array) {
  Shape shape = shape_of(array);
  DType dtype = dtype_of_element(array.dtype);
  if (Device device = device_of(array.device); device != kCpu) {
    SG_CHECK(is_row_major(array), "dlpack: elements of shape ", shape, " on a GPU do not lie row by row without gaps; ",
             "copy them there, as torch's contiguous() does");
    return clone(from_blob(first_element(array), shape, dtype, {}, device));
  }
  if (is_row_major(array)) return from_bytes(first_element(array), shape, dtype);
  size_t size = size_of(dtype);
  std::vector<char> bytes(size_t(shape.numel()) * size);
  std::array<int64_t, kMaxDims> at{};
  for (size_t i = 0; i < size_t(shape.numel()); ++i) {
    int64_t place = 0;
    for (int d = 0; d < shape.ndim(); ++d) place += at[size_t(d)] * array.strides[d];
    std::memcpy(&bytes[i * size], static_cast<char*>(first_element(array)) + place * int64_t(size), size);
    for (int d = shape.ndim() - 1; d >= 0 && ++at[size_t(d)] == shape[d]; --d) at[size_t(d)] = 0;
  }
  return from_bytes(bytes.data(), shape, dtype);
}

}  // namespace shardgrad::dlpack
