// The backward pass. Two walks over the graph, neither recursive:
//
//   1. from the roots, count for every node how many gradient contributions will arrive;
//   2. run every node whose contributions have all arrived, the newest recorded first and leaves before all others.
//
// For y = a * b + a the leaf `a` waits for two contributions (from mul and from add). The order is a function of the
// program alone, so every rank and every run visits the same nodes in the same order.

#include <algorithm>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

class Engine;
static thread_local Engine* running_engine = nullptr;

class Engine {
 public:
  explicit Engine(bool retain) : retain_(retain), previous_(running_engine) { running_engine = this; }
  ~Engine() {
    for (Ref<Node>& node : seen_) leave(*node);
    for (Ref<RebuiltValues>& rebuilt : rebuilt_) rebuilt->values.clear();
    running_engine = previous_;
  }

  static void check_root(const Tensor& root, const Tensor& grad) {
    SG_CHECK(root.requires_grad(),
             "backward: the tensor does not require grad: nothing it was computed from does. "
             "Gradients themselves are not recorded: double backward is not supported");
    if (!grad.defined()) {
      SG_CHECK(root.numel() == 1, "backward: a tensor of shape ", root.shape(),
               " is not a scalar; pass the gradient to start from, or reduce it with sum() or mean()");
    } else {
      SG_CHECK(grad.shape() == root.shape() && grad.dtype() == root.dtype() && grad.device() == root.device(),
               "backward: the gradient ", grad, " does not fit the tensor ", root);
    }
  }

  void add_root(const Tensor& root, const Tensor& grad) {
    Node* node = node_of(root);
    enter(node);
    GradSlot slot = slot_for(node, root.impl().output_index);
    if (grad.defined())
      slot.alias(grad);
    else
      launch(kernels::fill, root, slot.write(), 1.0);
    if (std::ranges::find(roots_, node) == roots_.end()) roots_.push_back(node);
  }

  void run() {
    count();
    for (Node* root : roots_)
      if (root->waiting_ == 0) make_ready(root);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), older);
      Ref<Node> node = std::move(ready_.back());
      ready_.pop_back();
      step(*node);
    }
    for (size_t i = 0; i < callbacks_.size(); ++i) callbacks_[i]();
  }

  void abandon() noexcept {
    for (Ref<Node>& node : seen_) {
      node->gradients_.clear();
      if (!node->outputs_.empty()) continue;
      Leaf& leaf = static_cast<Leaf&>(*node);
      leaf.current_ = Tensor();
      if (leaf.fresh_) leaf.grad_ = Tensor();
      if (leaf.added_) leaf.incomplete_ = true;
    }
    for (auto& callback : failed_callbacks_) {
      try {
        callback();
      } catch (...) {  // NOLINT: the first cause is the one to tell
      }
    }
  }

  uint64_t number() const { return number_; }
  bool retains() const { return retain_; }
  std::vector<std::function<void()>> callbacks_, failed_callbacks_;
  std::vector<Ref<RebuiltValues>> rebuilt_;

 private:
  static bool older(const Ref<Node>& a, const Ref<Node>& b) { return a->sequence_ < b->sequence_; }

  // Of a context, not of a thread: who keeps a pass's number may meet the next pass in another thread.
  struct Passes {
    std::atomic<uint64_t> begun{0};
  };
  static uint64_t next_number() { return ++context().slot<Passes>().begun; }

  GradSlot slot_for(Node* node, uint32_t output, const Node* writer = nullptr, size_t input = 0) {
    GradSlot slot;
    slot.target_ = node;
    slot.output_ = output;
    slot.writer_ = writer;
    slot.input_ = uint32_t(input);
    return slot;
  }

  // Prepares a node the first time this pass meets it.
  void enter(Node* node) {
    Engine* other = nullptr;
    if (!node->pass_.compare_exchange_strong(other, this, std::memory_order_acquire)) {
      SG_CHECK(other == this, node->name(), ": backward of another thread is at this ",
               node->outputs_.empty() ? "tensor's gradient" : "operation",
               "; threads that share parameters or graphs run backward one after the other");
      return;
    }
    seen_.emplace_back(node);
    SG_CHECK(
        !node->consumed_, node->name(),
        ": backward went through this graph before and freed what it had saved; pass retain_graph = true the first "
        "time to go through it again. Or was this result, such as a view of a parameter, made once and used in two "
        "steps? Make it anew in each forward. Double backward (the gradient of a gradient) is not supported");
    node->waiting_ = 0;
    node->dy_prepared_ = false;
    node->gradients_.resize(node->outputs_.size());
  }

  static void leave(Node& node) {
    if (node.outputs_.empty()) {
      Leaf& leaf = static_cast<Leaf&>(node);
      leaf.fresh_ = leaf.added_ = false;
    }
    node.pass_.store(nullptr, std::memory_order_release);
  }

  void count() {
    for (size_t i = 0; i < seen_.size(); ++i)  // grows while it is walked
      for (size_t e = 0; e < seen_[i]->edges_.size(); ++e)
        if (Node* next = seen_[i]->edges_[e].node.get()) {
          enter(next);
          ++next->waiting_;
        }
  }

  void make_ready(Node* node) {
    ready_.emplace_back(node);
    std::push_heap(ready_.begin(), ready_.end(), older);
  }

  void step(Node& node) {
    for (auto& hook : node.pre_hooks_) hook();
    slots_.clear();
    for (const Node::Edge& edge : node.edges_)
      slots_.push_back(slot_for(edge.node.get(), edge.output, &node, slots_.size()));
    bool any = node.outputs_.empty() || std::ranges::any_of(node.gradients_, &Tensor::defined);
    if (any) {
      if (node.region_) node.region_->rebuild();
      node.backward(node.gradients_, slots_);
      for (size_t i = 0; i < slots_.size(); ++i)
        SG_ASSERT(!slots_[i].target_ || slots_[i].written_, node.name(),
                  ": backward left the wanted gradient of input ", i, " unwritten");
      if (node.region_) node.forget_rebuilt();
    }
    node.gradients_.clear();
    for (size_t e = 0; e < node.edges_.size(); ++e)
      if (Node* next = node.edges_[e].node.get(); next && --next->waiting_ == 0) make_ready(next);
    if (!retain_ && !node.outputs_.empty()) node.forget();
  }

  bool retain_;
  Engine* previous_;
  uint64_t number_ = next_number();
  std::vector<Ref<Node>> seen_;
  std::vector<Node*> roots_;
  std::vector<Ref<Node>> ready_;  // a heap, newest first
  std::vector<GradSlot> slots_;
};

void backward(std::span<const Tensor> roots, std::span<const Tensor> grads, bool retain_graph) {
  SG_CHECK(!in_backward(), "backward: called from inside backward; double backward is not supported");
  SG_CHECK(grads.empty() || grads.size() == roots.size(), "backward: ", roots.size(), " tensors but ", grads.size(),
           " gradients");
  for (size_t i = 0; i < roots.size(); ++i) Engine::check_root(roots[i], grads.empty() ? Tensor() : grads[i]);
  TagScope owner(Category::activation_gradient);
  NoGrad no_grad;
  Autocast off(std::nullopt);
  Engine engine(retain_graph);
  try {
    for (size_t i = 0; i < roots.size(); ++i) engine.add_root(roots[i], grads.empty() ? Tensor() : grads[i]);
    engine.run();
  } catch (...) {
    engine.abandon();
    throw;
  }
}

void on_backward_end(std::function<void()> callback) {
  SG_CHECK(running_engine, "on_backward_end: no backward is running");
  running_engine->callbacks_.push_back(std::move(callback));
}

void on_backward_failed(std::function<void()> callback) {
  SG_CHECK(running_engine, "on_backward_failed: no backward is running");
  running_engine->failed_callbacks_.push_back(std::move(callback));
}

void keep_until_pass_ends(Ref<RebuiltValues> rebuilt) {
  SG_CHECK(running_engine, "keep_until_pass_ends: no backward is running");
  running_engine->rebuilt_.push_back(std::move(rebuilt));
}

bool in_backward() { return running_engine != nullptr; }

uint64_t backward_pass() {
  SG_CHECK(running_engine, "backward_pass: no backward is running");
  return running_engine->number();
}

Tensor Node::take_saved(size_t i) {
  SG_CHECK(!taken_, name(), ": a pass that failed has used up what the operation had saved; run forward again");
  Tensor taken = saved(i);
  if (!running_engine || running_engine->retains()) return taken;
  taken_ = true;
  SavedTensor& kept = saved_[i];
  if (kept.value < 0)
    kept = {};
  else
    region_->forget(kept.value);
  return taken;
}

bool Leaf::in_current_pass() const {
  SG_CHECK(running_engine, "in_current_pass: no backward is running");
  return pass_.load() == running_engine;
}

Tensor Tensor::grad() const {
  SG_CHECK(is_leaf(), "grad: ", *this, " was computed by ", static_cast<const Node&>(*impl().grad_fn).name(),
           ", and only leaves keep a gradient; ask a leaf, or compute on a detach()ed leaf from here");
  if (!requires_grad()) return Tensor();
  const Leaf& leaf = leaf_of(*this);
  SG_CHECK(
      !leaf.incomplete(), "the gradient of ", name().empty() ? concat("a leaf of ", *this) : "'" + name() + "'",
      " is incomplete: a backward pass failed after it had added to it; call zero_grad() and repeat the passes that "
      "it had gathered");
  return leaf.grad();
}

void Tensor::set_grad(Tensor grad) const {
  if (!grad.defined() && !impl().grad_fn) return;
  leaf_of(*this).set_grad(std::move(grad));
}

Tensor& Tensor::set_requires_grad(bool on) {
  SG_CHECK(is_leaf(), "set_requires_grad: this tensor was computed; detach() it first");
  SG_CHECK(!on || is_floating(dtype()), "set_requires_grad: dtype ", dtype(), " has no gradient");
  if (on && !impl().grad_fn) renew_leaf(*this);  // here, and not at its first use, which two threads may make at once
  impl().requires_grad = on;
  return *this;
}

void Tensor::backward(const Tensor& grad, bool retain_graph) const {
  shardgrad::backward({this, 1}, {&grad, 1}, retain_graph);
}

}  // namespace shardgrad
