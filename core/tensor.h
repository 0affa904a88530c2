#pragma once
// Tensor: a shared handle on (storage, offset, shape, dtype), always contiguous and row-major. Copying a Tensor copies
// the handle. Views (reshape, slices of dimension 0) share the storage. Operations live in autograd/ops.h.

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/core/device.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/ref.h>
#include <shardgrad/core/scalar.h>
#include <shardgrad/core/shape.h>
#include <shardgrad/core/storage.h>
#include <shardgrad/core/view.h>

namespace shardgrad {

/// What made a tensor, for backward. The engine (autograd/node.h) derives from it; core only keeps it alive.
/// Graphs are destroyed without recursion: a dropped node waits in line while another one is being destroyed.
class GradFn : public RefCounted {
 public:
  /// Whether the calling thread may change in place what this made: a change that is to be recorded has no gradient.
  virtual bool changeable() const = 0;

 protected:
  void destroy() noexcept override;
};

class Index;            // autograd/ops/layout.h
class Truth;            // autograd/ops/truth.h
struct ValuesAndIndex;  // autograd/ops/reductions.h

class Tensor {
 public:
  Tensor() = default;
  /// A view of `storage` from byte `offset`. Throws Error(input) when it reaches past the end.
  Tensor(Ref<Storage> storage, size_t offset, Shape shape, DType dtype);

  bool defined() const { return bool(impl_); }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return impl().shape; }
  int64_t size(int dim) const { return impl().shape[dim]; }
  int ndim() const { return impl().shape.ndim(); }
  int dim() const { return ndim(); }
  int64_t numel() const { return impl().shape.numel(); }
  DType dtype() const { return impl().dtype; }
  size_t bytes() const { return size_t(numel()) * size_of(dtype()); }
  Device device() const { return impl().storage->device(); }
  const Ref<Storage>& storage() const { return impl().storage; }
  size_t offset() const { return impl().offset; }
  bool same_as(const Tensor& other) const { return impl_ == other.impl_; }
  /// True when no other handle shares this tensor's memory or autograd state, and nobody has lent it the memory.
  bool unique() const {
    return impl_ && impl_->unique() && impl_->storage->unique() && impl_->storage->tag().category != Category::borrowed;
  }

  /// Host pointer to the elements. Throws when T is not the dtype, when the device is not the cpu (copy with
  /// `.to(kCpu)` first), or when the storage is released. On cpu, compute has always finished.
  template <class T> T* data() const { return static_cast<T*>(host_data(dtype_of<T>)); }
  /// All elements, copied to the host (waits for the device).
  template <class T> std::vector<T> to_vector() const;
  /// The only element as a double (waits for the device). Throws unless numel() == 1.
  double item() const;

  /// The same memory without autograd state. In another shape: alias.
  Tensor detach() const;
  /// Same elements, another shape, same storage; not recorded for backward. For the inside of operations; see view.
  Tensor alias(const Shape& shape) const;
  /// Rows [begin, end) of dimension 0, same storage; not recorded for backward. For the inside of operations; see rows.
  Tensor alias_rows(int64_t begin, int64_t end) const;
  /// Counts the writes to these elements; see Storage.
  uint64_t version() const { return storage()->version(offset()); }
  void bump_version() const { storage()->bump_version(offset(), offset() + bytes()); }

  // Autograd. Implemented in autograd/; see autograd/node.h.
  bool requires_grad() const { return impl_ && impl_->requires_grad; }
  /// Makes this leaf record gradients, or stop. Throws for a computed tensor or an integer dtype.
  Tensor& set_requires_grad(bool on = true);
  bool is_leaf() const { return !impl().grad_fn || impl().leaf; }
  /// The accumulated gradient of a leaf; undefined before backward. Throws for a computed tensor, which keeps none
  /// without retain_grad, and when a pass that failed has added a part of its gradient to an older one.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  /// Forgets the gradient and frees its memory.
  void zero_grad() const { set_grad(Tensor()); }
  /// Runs with the whole gradient of this tensor, which it must not change, before it goes on or is added to a leaf's;
  /// what `hook` gives, unless that is undefined, takes its place. Before backward, which drops the hooks of computed
  /// tensors with its graph. A parameter keeps its hooks when its module goes to another dtype or device, or is
  /// sharded: they see what this rank has computed, before it is reduced.
  void register_hook(std::function<Tensor(const Tensor& grad)> hook) const;
  /// This computed tensor keeps its gradient, the sum of the passes from now on that do not fail, for grad() and
  /// zero_grad().
  void retain_grad() const;
  /// Backpropagates from this tensor; `grad` defaults to 1 and is required for more than one element.
  void backward(const Tensor& grad = Tensor(), bool retain_graph = false) const;
  /// Differentiable conversions.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor cpu() const { return to(kCpu); }
  /// Differentiable views, as reshape and slice in autograd/ops.h: same storage, another shape; rows [begin, end).
  Tensor view(const Shape& shape) const;
  Tensor rows(int64_t begin, int64_t end) const;

  // Operations, as methods: autograd/ops.h has them as functions, and all others.
  /// Python's x[…]: x[2], x[Slice(1, 3)], x[mask], x[{Ellipsis, 0}].
  Tensor operator[](const Index& one) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  Tensor index(std::initializer_list<Index> indices) const;
  Tensor reshape(std::initializer_list<int64_t> dims) const;
  Tensor flatten(int first = 0, int last = -1) const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  Tensor transpose(int a, int b) const;
  Tensor permute(std::initializer_list<int> dims) const;
  Tensor t() const;
  Tensor expand(const Shape& shape) const;
  Tensor repeat(std::initializer_list<int64_t> times) const;
  Tensor gather(int dim, const Tensor& index) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;
  Tensor matmul(const Tensor& b) const;
  Tensor sum() const;
  Tensor sum(int dim, bool keepdim = false) const;
  Tensor sum(std::initializer_list<int> dims, bool keepdim = false) const;
  Tensor mean() const;
  Tensor mean(int dim, bool keepdim = false) const;
  Tensor mean(std::initializer_list<int> dims, bool keepdim = false) const;
  Tensor max() const;
  ValuesAndIndex max(int dim, bool keepdim = false) const;
  Tensor min() const;
  ValuesAndIndex min(int dim, bool keepdim = false) const;
  Tensor amax(int dim, bool keepdim = false) const;
  Tensor amax(std::initializer_list<int> dims, bool keepdim = false) const;
  Tensor amin(int dim, bool keepdim = false) const;
  Tensor amin(std::initializer_list<int> dims, bool keepdim = false) const;
  Tensor argmax() const;
  Tensor argmax(int dim, bool keepdim = false) const;
  Tensor argmin() const;
  Tensor argmin(int dim, bool keepdim = false) const;
  Truth any() const;
  Truth all() const;
  Tensor var() const;
  Tensor var(bool unbiased) const = delete;  ///< say var(x, correction)
  Tensor var(int dim, double correction = 1, bool keepdim = false) const;
  Tensor std() const;
  Tensor std(bool unbiased) const = delete;
  Tensor std(int dim, double correction = 1, bool keepdim = false) const;
  Tensor norm() const;
  Tensor prod() const;
  Tensor prod(int dim, bool keepdim = false) const;
  Tensor cumsum(int dim) const;
  ValuesAndIndex sort(int dim = -1, bool descending = false) const;
  ValuesAndIndex topk(int64_t k, int dim = -1, bool largest = true) const;
  Tensor softmax(int dim) const;
  Tensor log_softmax(int dim) const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor sqrt() const;
  Tensor abs() const;
  Tensor relu() const;
  Tensor sigmoid() const;
  Tensor tanh() const;
  Tensor pow(Scalar exponent) const;
  Tensor clamp(Scalar low, Scalar high) const;
  Tensor clone() const;

  /// The name shown in errors; a parameter's full name.
  const std::string& name() const;
  void set_name(std::string name) const;

  struct Impl final : RefCounted {
    Ref<Storage> storage;
    size_t offset = 0;
    Shape shape;
    DType dtype = DType::f32;
    bool requires_grad = false;
    bool leaf = false;          ///< grad_fn is this leaf's own accumulator
    uint32_t output_index = 0;  ///< which output of grad_fn this is
    Ref<GradFn> grad_fn;
    std::unique_ptr<std::string> name;
  };
  Impl& impl() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }

  /// Kernel operands. Throws when the storage is released, naming this tensor.
  View in() const;
  OutView out(float beta = 0) const;

 private:
  explicit Tensor(Ref<Impl> impl) : impl_(std::move(impl)) {}
  void* resolve() const;
  void* host_data(DType expected) const;
  [[noreturn]] static void throw_undefined();
  Ref<Impl> impl_;
};

/// For messages, which concat() puts it into: "f32[2, 3] on cpu".
std::string describe(const Tensor& tensor);
/// The values as NumPy prints them (docs.scipy.org, array2string): short, aligned, large tensors by their edges; bf16
/// with the fewest digits that give it again. Where there are none to be read, describe(). Waits for the device.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
/// The values in one line, nested brackets, long dimensions shortened.
std::string to_string(const Tensor& tensor);

/// How tensors are made: dtype f32 and the context's default device unless given.
struct TensorOptions {
  DType dtype = DType::f32;
  std::optional<Device> device;
  TensorOptions() = default;
  TensorOptions(DType dtype) : dtype(dtype) {}
  TensorOptions(Device device) : device(device) {}
  TensorOptions(DType dtype, Device device) : dtype(dtype), device(device) {}
};

/// Uninitialised memory, owned by the context's current tag. When there is none, the error names `op`: the calling
/// function, unless given.
Tensor empty(const Shape& shape, TensorOptions options = {}, const char* op = __builtin_FUNCTION());
Tensor empty_like(const Tensor& tensor, const char* op = __builtin_FUNCTION());
/// Likewise in host memory that copies to and from `device` are fastest with (Backend::host_memory).
Tensor empty_on_host(const Shape& shape, DType dtype, Device device);
/// A copy of host values. Throws when the count does not match the shape.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, TensorOptions options = dtype_of<T>);
/// A copy of raw host bytes, shape.numel() · size_of(dtype) of them.
Tensor from_bytes(const void* data, const Shape& shape, TensorOptions options);

/// Throws Error(input) naming `op` when a change in place would be lost (Storage::set_read_only).
void check_writable(const char* op, const Tensor& tensor);
/// The same, and when it would have no gradient: `tensor` was computed, and operations are recorded.
void check_changeable(const char* op, const Tensor& tensor);
/// Copies the elements of `from` over those of `to` (same dtype and shape, any devices; ranges of one storage may
/// overlap) and counts a write. Not recorded for backward; refused for a computed tensor while operations are recorded.
/// Returns when the memory of `from` may change if either is on the host.
void copy_into(const Tensor& to, const Tensor& from);

}  // namespace shardgrad
