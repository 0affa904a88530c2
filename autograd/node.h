#pragma once
// One recorded operation: who made a tensor, and what is its gradient.
//
// Gradients are written, not returned. backward() gets the gradients of its outputs and one GradSlot per input, and
// writes  slot = beta * slot + gradient  into memory the slot provides. Forward and backward stand side by side:
//
//     struct Mul final : Node {
//       const char* name() const override { return "mul"; }
//       void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
//         if (dx[0].wanted()) launch(kernels::mul, dy[0], dx[0].write(), dy[0], saved(1));
//         if (dx[1].wanted()) launch(kernels::mul, dy[0], dx[1].write(), dy[0], saved(0));
//       }
//     };
//     Tensor mul(const Tensor& a, const Tensor& b) {
//       Tensor y = empty(…);
//       launch(kernels::mul, a, out(y), a, b);
//       if (auto* node = record<Mul>(y, a, b)) node->save(a, b);
//       return y;
//     }
//
// A parameter's slot is its slice of the unit's flat gradient (see GradSink), so the kernel that computes a weight
// gradient writes straight into the buffer that the reduce-scatter sends.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <shardgrad/autograd/backward.h>
#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/parameter.h>
#include <shardgrad/autograd/region.h>
#include <shardgrad/autograd/spread.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind activation_gradient = named<"activation_gradient">;
}

namespace shardgrad {

class Engine;

class Node;

/// Gets a tensor's gradient, which it must not change; what it gives takes its place, unless it is undefined.
using GradHook = std::function<Tensor(const Tensor& grad)>;

/// Where one input's gradient goes. Valid only during Node::backward.
class GradSlot {
 public:
  /// False when nothing needs this gradient: write nothing.
  bool wanted() const { return target_ != nullptr; }
  /// The destination, allocated on the first write; its beta says whether to add. Throws Error(input), naming the
  /// operation and the input's number, unless wanted().
  Out write();
  /// Hands over `gradient` instead of writing: on a first write it becomes the gradient with no copy, otherwise it is
  /// added. The caller must not change it afterwards. Throws Error(input), naming the operation and the input's number,
  /// unless it is wanted() and has the input's shape, dtype and device.
  void alias(const Tensor& gradient);
  /// The operation that made this input, if it is an N in `writer`'s region, has this result only, and nothing but this
  /// slot writes its gradient in the running pass. Else null.
  template <class N> N* sole_maker(const Node& writer) const;

 private:
  friend class Engine;
  bool is_sole(const Node& writer) const;
  void check_wanted() const;
  void check_fits(const Tensor& gradient) const;
  Node* target_ = nullptr;
  const Node* writer_ = nullptr;  // null: the pass begins here
  uint32_t output_ = 0, input_ = 0;
  bool written_ = false;
};

/// Shape, dtype and device of a node's output; what its gradient looks like.
struct OutputMeta {
  bool fits(const Tensor& gradient) const {
    return gradient.shape() == shape && gradient.dtype() == dtype && gradient.device() == device;
  }
  Shape shape;
  DType dtype = DType::f32;
  Device device;
};

class Node : public GradFn {
 public:
  /// The operation's name, shown in errors.
  virtual const char* name() const = 0;
  /// Writes the gradients of the wanted inputs. dy[i] is undefined when output i received no gradient; an operation
  /// with one output always gets it. Every wanted slot must be written.
  virtual void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) = 0;

  /// Keeps inputs of the operation for backward, in order; undefined tensors keep their place.
  template <class... Tensors> void save(const Tensors&... tensors) { (keep(tensors), ...); }
  /// Keeps an output, without the cycle through this node.
  void save_output(const Tensor& tensor) { keep(tensor.detach()); }
  /// The i-th kept tensor. Throws Error(input) naming the operation when it was changed in place since.
  Tensor saved(size_t i) const;
  /// In backward: the i-th kept tensor for its last use. If the pass frees the graph this node lets go of it, so that
  /// it is unique(), and may be overwritten, where nobody else holds it.
  Tensor take_saved(size_t i);
  /// For an `output` that can be computed again from a leaf by a conversion: the leaf, kept in its place; else null.
  virtual const Tensor* source_of_copy(const Tensor& output) const {
    static_cast<void>(output);
    return nullptr;
  }

  /// Runs before backward of this node: where a unit gathers its parameters.
  void add_pre_hook(std::function<void()> hook) { pre_hooks_.push_back(std::move(hook)); }
  /// Gets the complete gradient of output number `output` before backward of this node, and may give another for it.
  void add_grad_hook(uint32_t output, GradHook hook) { watched().hooks.push_back({output, std::move(hook)}); }
  /// Keeps the gradient of an output, the sum of all passes from now on but for those that fail, where retained() finds
  /// it.
  void retain_grad(uint32_t output);
  /// Null unless retain_grad asked for it; undefined before a pass.
  const Tensor* retained(uint32_t output) const;
  /// The sum begins anew. False unless retain_grad asked for it.
  bool forget_retained(uint32_t output);
  /// Grows with every recorded operation; backward visits the newest first.
  uint64_t sequence() const { return sequence_; }
  bool changeable() const override { return !grad_enabled(); }

 protected:
  Node();
  /// In the running pass, somebody has done the first part of backward already: dy is what comes out of it.
  bool dy_prepared_ = false;

 private:
  friend class Engine;
  friend class GradSlot;
  friend class Leaf;
  template <class N, class... Inputs> friend N* record(const Tensor& output, const Inputs&... inputs);
  template <class N> friend N* record_all(std::span<const Tensor> outputs, std::span<const Tensor> inputs);

  struct Edge {
    Ref<Node> node;  // null: this input needs no gradient
    uint32_t output = 0;
  };
  static constexpr uint32_t kOtherDtype = UINT32_MAX;  // as output: a leaf that takes no gradient of what it was
  void keep(const Tensor& tensor);
  void connect(const Tensor& input);
  void add_output(const Tensor& output);
  void forget_rebuilt();
  void forget();
  void end_retained(bool failed) noexcept;

  std::vector<Edge> edges_;
  std::vector<OutputMeta> outputs_;
  std::vector<SavedTensor> saved_;
  Ref<Region> region_;             // that recorded this node, or null
  std::vector<Tensor> gradients_;  // one per output while backward runs
  std::vector<std::function<void()>> pre_hooks_;
  struct OfOutput {
    uint32_t output;
    GradHook hook;
  };
  struct Retained {
    Tensor sum, before;  // before the running pass added to it
    bool added = false;
  };
  struct Watched {  // what few nodes have
    std::vector<OfOutput> hooks;
    std::map<uint32_t, std::shared_ptr<Retained>> retained;
  };
  std::unique_ptr<Watched> watched_;
  Watched& watched() {
    if (!watched_) watched_ = std::make_unique<Watched>();
    return *watched_;
  }
  bool has_grad_hooks() const { return watched_ && !watched_->hooks.empty(); }
  // What the hooks make of the gradient of an output.
  Tensor hooked(uint32_t output, Tensor gradient) const;
  uint64_t sequence_;
  int waiting_ = 0;                     // gradient contributions still to come in the running pass
  bool taken_ = false;                  // by take_saved
  bool captured_ = false;               // the running pass hands a gradient of it over to who asked for it, grad()
  std::atomic<Engine*> pass_{nullptr};  // the running pass that has met this node
  bool consumed_ = false;
};

template <class N> N* GradSlot::sole_maker(const Node& writer) const {
  return is_sole(writer) ? dynamic_cast<N*>(target_) : nullptr;
}

/// Where a leaf's gradient lives when something other than the leaf owns it: a unit's flat gradient.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// The destination of the first write of a backward pass, and its beta; later writes of the pass add to it.
  virtual Out open() = 0;
  /// Every contribution of this backward pass has been written.
  virtual void ready() = 0;
  /// The gradient as its owner shows it; undefined when there is none.
  virtual Tensor grad() const = 0;
  /// Forgets the gradient.
  virtual void clear() = 0;
  /// Of the elements that optimizers update; the parameter itself may be a conversion of them.
  virtual DType dtype() const = 0;
  /// The elements of the parameter that this rank's optimizer updates. Valid until the owner changes them. Their values
  /// and gradient may still be on their way; see wait().
  virtual std::span<const LocalRange> local_ranges() = 0;
  /// The same without gradients, which may be incomplete or on their way to the other ranks.
  virtual std::span<const LocalRange> owned_ranges() { return local_ranges(); }
  /// How those elements lie on the ranks that share the parameter; every rank gets the same.
  virtual Spread spread() { return {}; }
  /// Returns when the local ranges may be read and written.
  virtual void wait() {}
  /// The optimizer is about to change those elements; called on all ranks.
  virtual void before_write() {}
  /// It has changed them, and their copies with them: full copies, and what backward saved of them, are out of date.
  virtual void written() = 0;
};

/// The end of the graph: accumulates the gradient of one leaf tensor.
class Leaf final : public Node {
 public:
  explicit Leaf(const Tensor& tensor);
  const char* name() const override { return "leaf"; }
  std::weak_ptr<const void> life() const { return life_; }  // expires with this leaf
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override;
  Tensor grad() const { return sink_ ? sink_->grad() : grad_; }
  void set_grad(Tensor grad);
  /// A pass that failed has added a part of its gradient to an older one: it is to be cleared before it is used.
  bool incomplete() const { return incomplete_; }
  /// The owner of the gradient, or null when it is this leaf.
  GradSink* sink() const { return sink_.get(); }
  /// Sends gradients to `sink` from now on; null gives them back.
  void set_sink(std::shared_ptr<GradSink> sink) { sink_ = std::move(sink); }
  /// Whether gradients are of the dtype that `tensor`, whose leaf this is, has now.
  bool is_of_dtype(const Tensor& tensor) const { return meta_.dtype == tensor.dtype(); }
  /// Inside backward: whether this pass brings a gradient for this leaf.
  bool in_current_pass() const;
  /// Inside backward: whether this pass is a grad() that is to give this leaf's gradient.
  bool is_asked_for() const;
  /// The hooks of `old` run here, too.
  void take_hooks_of(const Leaf& old);
  /// Runs when this leaf's gradient of a backward pass is complete.
  void add_ready_hook(std::function<void()> hook) { ready_hooks_.push_back(std::move(hook)); }

 private:
  friend class GradSlot;
  friend class Engine;
  Out open();
  Out open_own();
  void note_captured(bool is_written);
  /// Whether the pass's gradient is gathered beside what it is added to: for hooks, or who has asked for it alone.
  bool gathers() const { return captured_ || has_grad_hooks(); }
  OutputMeta meta_;
  const std::shared_ptr<const void> life_ = std::make_shared<char>();
  Tensor grad_;
  std::shared_ptr<GradSink> sink_;
  std::vector<std::function<void()>> ready_hooks_;
  Tensor current_;      // what this backward pass writes to; undefined before its first write
  bool fresh_ = false;  // grad_ was made in the running pass: dropped when it fails
  bool added_ = false;  // the running pass adds to an older grad_: incomplete when it fails
  bool incomplete_ = false;
};

/// The accumulator of a tensor that requires grad, or did.
Leaf& leaf_of(const Tensor& tensor);
/// Gives a leaf an accumulator without a gradient, as when its dtype or device has changed, with the hooks of the one
/// that it had. Graphs that exist keep the old one.
void renew_leaf(const Tensor& tensor);
/// The node that `tensor`'s gradient flows into, or null when it requires none.
Node* node_of(const Tensor& tensor);

inline bool needs_grad(const Tensor& tensor) { return tensor.requires_grad(); }

/// The sequence of the operation recorded last by this thread.
uint64_t last_sequence();

/// Records that `output` was made from `inputs` by a new N; null when no gradient is needed, or `output` has integers.
/// Undefined inputs keep their place in dx but are never wanted.
template <class N, class... Inputs> N* record(const Tensor& output, const Inputs&... inputs) {
  if (!(needs_grad(inputs) || ...) || !is_floating(output.dtype()) || !grad_enabled()) return nullptr;
  Ref<N> node = make_ref<N>();
  node->edges_.reserve(sizeof...(inputs));
  (node->connect(inputs), ...);
  node->add_output(output);
  return node.get();
}

/// The same for any number of them; null unless an output has fractions. In dy one of integers is undefined.
template <class N> N* record_all(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  bool fractions = std::ranges::any_of(outputs, [](const Tensor& output) { return is_floating(output.dtype()); });
  if (!fractions || !std::ranges::any_of(inputs, needs_grad) || !grad_enabled()) return nullptr;
  Ref<N> node = make_ref<N>();
  for (const Tensor& input : inputs) node->connect(input);
  for (const Tensor& output : outputs) node->add_output(output);
  return node.get();
}

}  // namespace shardgrad
