#include <shardgrad/core/tensor.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/happens_before.h>
#include <shardgrad/core/pretend_zeros.h>

namespace shardgrad {

void GradFn::destroy() noexcept {
  thread_local std::vector<GradFn*>* line = nullptr;
  if (line) {
    line->push_back(this);
    return;
  }
  std::vector<GradFn*> waiting{this};
  line = &waiting;
  while (!waiting.empty()) {
    GradFn* next = waiting.back();
    waiting.pop_back();
    delete next;
  }
  line = nullptr;
}

Tensor::Tensor(Ref<Storage> storage, size_t offset, Shape shape, DType dtype) : impl_(new Impl) {
  size_t bytes = size_t(shape.numel()) * size_of(dtype);  // cannot wrap: kMaxElements
  SG_CHECK(offset <= storage->bytes() && bytes <= storage->bytes() - offset, "tensor: shape ", shape, " of ", dtype,
           " at byte ", offset, " reaches past its storage of ", storage->bytes(), " bytes");
  impl_->storage = std::move(storage);
  impl_->offset = offset;
  impl_->shape = shape;
  impl_->dtype = dtype;
}

void Tensor::throw_undefined() { fail("use of an undefined tensor (default-constructed or moved from)"); }

void* Tensor::resolve() const {
  const Impl& t = impl();
  if (!t.storage->readable() && !t.storage->bring_back()) [[unlikely]] {
    std::string what = t.name ? "'" + *t.name + "'" : concat("a tensor of shape ", t.shape);
    if (t.storage->note()) fail(what, " is not in memory: ", *t.storage->note());
    fail(what, " is not in memory: its storage was released, whose owner is ", t.storage->tag().category.name(),
         "; materialize it, and write its values again (gather it), before this read");
  }
  return static_cast<std::byte*>(t.storage->data()) + t.offset;
}

View Tensor::in() const { return {resolve(), impl().shape, impl().dtype, true}; }
OutView Tensor::out(float beta) const { return {resolve(), impl().shape, impl().dtype, beta, true}; }

void* Tensor::host_data(DType expected) const {
  const Impl& t = impl();
  SG_CHECK(expected == t.dtype, "data<", expected, ">() of a tensor of dtype ", t.dtype);
  SG_CHECK(device().kind == DeviceKind::cpu, "data(): the tensor is on ", device(),
           ", which the host may not read; copy it with .to(kCpu)");
  void* data = resolve();
  if (Context* context = Context::current(); context && context->checker() && !running_stream())
    context->checker()->host_access("Tensor::data", {data, bytes(), false});
  return data;
}

static bool is_captured(Device device) { return Capture::current() && Capture::current()->device() == device; }

template <class T> std::vector<T> Tensor::to_vector() const {
  if (is_captured(device()))
    refuse_in_capture(
        concat("the host's look at a ", dtype(), " ", shape(), " (item(), to_vector(), a print or a condition)"),
        "keep the tensor, and read it after the step");
  SG_CHECK(dtype_of<T> == dtype(), "to_vector<", dtype_of<T>, ">() of a tensor of dtype ", dtype());
  bool pretended = device().kind == DeviceKind::meta && detail::pretends_zeros.of(context());
  SG_CHECK(device().kind != DeviceKind::meta || pretended, "to_vector(): a tensor on meta has no values");
  std::vector<T> values(static_cast<size_t>(numel()));
  if (values.empty() || pretended) return values;
  const void* from = resolve();
  Backend& backend = context().backend(device());
  backend.copy(backend.compute(), values.data(), from, bytes());
  backend.compute().synchronize();
  return values;
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<bf16> Tensor::to_vector() const;
template std::vector<f16> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;

double Tensor::item() const {
  SG_CHECK(numel() == 1, "item(): a tensor of shape ", shape(), " has ", numel(), " elements; exactly one is needed");
  return dispatch(dtype(), [&]<class T>() {
    T value = to_vector<T>()[0];
    if constexpr (sizeof(T) == 2)
      return double(float(value));
    else
      return double(value);
  });
}

Tensor Tensor::alias(const Shape& shape) const {
  SG_CHECK(shape.numel() == numel(), "view: ", this->shape(), " has ", numel(), " elements, ", shape, " has ",
           shape.numel());
  return Tensor(storage(), offset(), shape, dtype());
}

Tensor Tensor::alias_rows(int64_t begin, int64_t end) const {
  SG_CHECK(ndim() >= 1 && begin >= 0 && begin <= end && end <= size(0), "rows: [", begin, ", ", end,
           ") is not within dimension 0 of ", shape());
  size_t row = size(0) == 0 ? 0 : bytes() / size_t(size(0));
  return Tensor(storage(), offset() + size_t(begin) * row, shape().with(0, end - begin), dtype());
}

Tensor Tensor::detach() const {
  Tensor result(storage(), offset(), shape(), dtype());
  if (impl().name) result.set_name(*impl().name);
  return result;
}

const std::string& Tensor::name() const {
  static const std::string unnamed;
  return impl().name ? *impl().name : unnamed;
}

void Tensor::set_name(std::string name) const { impl().name = std::make_unique<std::string>(std::move(name)); }

Tensor empty(const Shape& shape, TensorOptions options, const char* op) try {
  Context& ctx = context();
  Device device = options.device.value_or(ctx.default_device());
  size_t bytes = size_t(shape.numel()) * size_of(options.dtype);
  return Tensor(Storage::make(bytes, ctx.backend(device).memory(), ctx.tag()), 0, shape, options.dtype);
} catch (const OutOfMemory& none) {
  throw OutOfMemory(concat(op, ", for ", options.dtype, shape, ": ", none.what()));
}

Tensor empty_like(const Tensor& tensor, const char* op) {
  return empty(tensor.shape(), {tensor.dtype(), tensor.device()}, op);
}

Tensor empty_on_host(const Shape& shape, DType dtype, Device device) {
  Context& ctx = context();
  size_t bytes = size_t(shape.numel()) * size_of(dtype);
  return Tensor(Storage::make(bytes, ctx.backend(device).host_memory(), ctx.tag()), 0, shape, dtype);
}

Tensor from_bytes(const void* data, const Shape& shape, TensorOptions options) {
  Tensor result = empty(shape, options);
  if (result.numel() == 0 || result.device().kind == DeviceKind::meta) return result;
  if (is_captured(result.device()))
    refuse_in_capture(concat("a ", options.dtype, " ", shape, " of numbers of the host"), "make it before the step");
  Backend& backend = context().backend(result.device());
  backend.copy(backend.compute(), result.out().data, data, result.bytes());
  if (!backend.compute().is_inline()) backend.compute().synchronize();
  return result;
}

template <class T> Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOptions options) {
  SG_CHECK(int64_t(values.size()) == shape.numel(), "from_vector: ", values.size(), " values for shape ", shape);
  SG_CHECK(options.dtype == dtype_of<T>, "from_vector: values of dtype ", dtype_of<T>, " for a tensor of ",
           options.dtype, "; convert with .to(dtype)");
  return from_bytes(values.data(), shape, options);
}
template Tensor from_vector(const std::vector<float>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<double>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<bf16>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<f16>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<int32_t>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<int64_t>&, const Shape&, TensorOptions);
template Tensor from_vector(const std::vector<uint8_t>&, const Shape&, TensorOptions);

void check_writable(const char* op, const Tensor& tensor) {
  const Storage& storage = *tensor.storage();
  if (!storage.read_only()) [[likely]]
    return;
  const std::string& name = tensor.name();
  fail(op, ": ", name.empty() ? concat("a tensor of shape ", tensor.shape()) : "'" + name + "'",
       " cannot be changed here: ", storage.note() ? *storage.note() : "it is read-only");
}

void check_changeable(const char* op, const Tensor& tensor) {
  SG_CHECK(
      tensor.is_leaf() || tensor.impl().grad_fn->changeable(), op,
      ": this tensor was computed, and a change in place is not recorded for backward; change a detach()ed copy, or "
      "do it in a scope of NoGrad");
  check_writable(op, tensor);
}

static bool overlap(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() < b.offset() + b.bytes() && b.offset() < a.offset() + a.bytes();
}

void copy_into(const Tensor& to, const Tensor& from) {
  SG_CHECK(to.dtype() == from.dtype() && to.shape() == from.shape(), "copy_into: ", from, " does not fit ", to);
  check_changeable("copy_into", to);
  SG_CHECK(from.device().kind != DeviceKind::meta || to.device().kind == DeviceKind::meta, "copy_into: ", from,
           " is on device meta and has no values to copy into ", to,
           to.name().empty() ? "" : " of '" + to.name() + "'");
  if (to.numel() == 0 || to.device().kind == DeviceKind::meta) return to.bump_version();
  if (overlap(to, from)) {
    if (to.offset() == from.offset()) return;
    Tensor between = empty_like(from);
    copy_into(between, from);
    return copy_into(to, between);
  }
  Backend& target = context().backend(to.device());
  Backend& source = context().backend(from.device());
  // Between a host and an asynchronous device the device's compute stream does the copy, in order with its work; a
  // GPU does every copy that it has a part in.
  if (&target != &source && (is_captured(to.device()) || is_captured(from.device())))
    refuse_in_capture(
        concat("a copy of ", from.dtype(), " ", from.shape(), " from ", from.device(), " to ", to.device()),
        "copy into a tensor that stays before the step, or out of one after it");
  Backend& worker = target.compute().is_inline() || !source.addressable() ? source : target;
  Backend& other = &worker == &target ? source : target;
  if (&other != &worker) worker.compute().wait(other.compute().record());
  worker.copy(worker.compute(), to.out().data, from.in().data, to.bytes());
  to.bump_version();  // a change that is refused counts no write
  if (&other == &worker) return;
  if (other.compute().is_inline())
    worker.compute().synchronize();
  else
    other.compute().wait(worker.compute().record());  // before it writes to what is read here, or reads what is written
}

}  // namespace shardgrad
