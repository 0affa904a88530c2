#pragma once
// The backward pass. Two walks over the graph, neither recursive:
//
//   1. from the roots, count for every node how many gradient contributions will arrive;
//   2. run every node whose contributions have all arrived, the newest recorded first and leaves before all others.
//
// For y = a * b + a the leaf `a` waits for two contributions (from mul and from add). The order is a function of the
// program alone, so every rank and every run visits the same nodes in the same order.
// Who asks for the gradients of some tensors alone (grad()) gets a pass over the nodes that lead to them.
//
// For the inside of autograd/engine.cpp.

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

class Engine;
/// Of the calling thread: the pass that it runs, or null.
inline constinit thread_local Engine* running_engine = nullptr;

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

  void add_root(const Tensor& root) {
    Node* node = node_of(root);
    enter(node);
    if (std::ranges::find(roots_, node) == roots_.end()) roots_.push_back(node);
  }

  /// The pass leaves the gradient of `input` in `to`, and goes nowhere but towards such inputs.
  void capture(const Tensor& input, Tensor* to) {
    Node* node = node_of(input);
    SG_CHECK(node, "grad: an input ", input, " does not require grad");
    captures_.push_back({node, input.impl().output_index, to});
  }

  /// Finds what the pass goes through; after all roots and captures.
  void plan() {
    count();
    if (!captures_.empty()) prune();
  }

  /// The gradient that a root starts from; after plan(), which says whether anybody wants it, and who.
  void start_from(const Tensor& root, const Tensor& grad) {
    Node* node = node_of(root);
    if (!wants(node)) return;
    GradSlot slot = slot_for(node, root.impl().output_index);
    if (grad.defined())
      slot.alias(grad);
    else
      launch(kernels::fill, root, slot.write(), 1.0);
  }

  void run() {
    for (Node* root : roots_)
      if (root->waiting_ == 0 && wants(root)) make_ready(root);
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
      node->end_retained(true);
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
    node->gradients_.assign(node->outputs_.size(), Tensor());
  }

  static void leave(Node& node) {
    if (node.outputs_.empty()) {
      Leaf& leaf = static_cast<Leaf&>(node);
      leaf.fresh_ = leaf.added_ = false;
    }
    node.captured_ = false;
    node.end_retained(false);
    node.gradients_.clear();  // of a root that the pass did not need
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

  // Nodes after those that they lead to: the order in which a pass could run, turned round. It is that of the graph
  // alone, for threads count their operations apart.
  std::vector<Node*> last_first() const {
    std::vector<Node*> order;
    for (const Ref<Node>& node : seen_)
      if (node->waiting_ == 0) order.push_back(node.get());
    for (size_t i = 0; i < order.size(); ++i)
      for (const Node::Edge& edge : order[i]->edges_)
        if (edge.node && --edge.node->waiting_ == 0) order.push_back(edge.node.get());
    std::ranges::reverse(order);
    return order;
  }

  // Finds the nodes that lead to a captured one, and counts anew what these will bring.
  void prune() {
    for (const Capture& each : captures_) {
      if (each.node->pass_.load() != this) continue;  // nothing depends on it
      towards_.insert(each.node);
      each.node->captured_ = true;
    }
    for (Node* node : last_first()) {
      bool sharded = node->outputs_.empty() && static_cast<Leaf*>(node)->sink();
      SG_CHECK(!sharded,
               "grad: on the way is a parameter that fully_shard owns, whose gradient belongs to all ranks; call ",
               "backward(), which reduces it");
      for (const Node::Edge& edge : node->edges_)
        if (edge.node && towards_.contains(edge.node.get())) towards_.insert(node);
    }
    for (const Ref<Node>& node : seen_)
      if (towards_.contains(node.get()))
        for (const Node::Edge& edge : node->edges_)
          if (edge.node) ++edge.node->waiting_;
  }
  bool wants(Node* node) const { return captures_.empty() || towards_.contains(node); }

  void make_ready(Node* node) {
    ready_.emplace_back(node);
    std::push_heap(ready_.begin(), ready_.end(), older);
  }

  static const Tensor& gradient_of(const Node& node, uint32_t output) {
    return node.outputs_.empty() ? static_cast<const Leaf&>(node).current_ : node.gradients_[output];
  }
  void hand_over(Node& node) const {
    for (const Capture& each : captures_)
      if (each.node == &node) *each.to = gradient_of(node, each.output);
    if (node.outputs_.empty()) static_cast<Leaf&>(node).current_ = Tensor();
  }

  // Hooks see an output's gradient when all of it is there, and so does who has asked for it.
  void finish_gradients(Node& node) const {
    for (uint32_t k = 0; node.has_grad_hooks() && k < node.gradients_.size(); ++k)
      if (Tensor& gradient = node.gradients_[k]; gradient.defined()) gradient = node.hooked(k, gradient);
    if (!node.outputs_.empty()) hand_over(node);
  }

  void step(Node& node) {
    for (auto& hook : node.pre_hooks_) hook();
    finish_gradients(node);
    slots_.clear();
    for (const Node::Edge& edge : node.edges_) {
      Node* target = edge.node.get();
      slots_.push_back(slot_for(target && wants(target) ? target : nullptr, edge.output, &node, slots_.size()));
    }
    bool any = node.outputs_.empty() || std::ranges::any_of(node.gradients_, &Tensor::defined);
    any = any && (node.outputs_.empty() || std::ranges::any_of(slots_, &GradSlot::wanted));
    if (any) {
      if (node.region_) node.region_->rebuild();
      if (anomalies_) refuse_given_nan(node);
      node.backward(node.gradients_, slots_);
      if (node.outputs_.empty()) hand_over(node);
      for (size_t i = 0; i < slots_.size(); ++i)
        SG_ASSERT(!slots_[i].target_ || slots_[i].written_, node.name(),
                  ": backward left the wanted gradient of input ", i, " unwritten");
      if (anomalies_) refuse_made_nan(node);
      if (node.region_) node.forget_rebuilt();
    }
    node.gradients_.clear();
    for (size_t e = 0; e < node.edges_.size(); ++e)
      if (Node* next = node.edges_[e].node.get(); next && --next->waiting_ == 0 && wants(next)) make_ready(next);
    if (!retain_ && !node.outputs_.empty() && (any || captures_.empty())) node.forget();
  }

  static bool has_nan(const Tensor& gradient) {
    return gradient.defined() && gradient.device() != kMeta && isnan(gradient).any();
  }
  // Before backward, which may write over what it was given.
  static void refuse_given_nan(const Node& node) {
    SG_CHECK(std::ranges::none_of(node.gradients_, has_nan), "backward of '", node.name(),
             "' was given NaN: by the gradient to start from, or by a hook");
  }
  void refuse_made_nan(const Node& node) const {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].target_) continue;
      const Tensor& gradient = gradient_of(*slots_[i].target_, slots_[i].output_);
      SG_CHECK(!has_nan(gradient), "backward of '", node.name(), "', operation number ", node.sequence(),
               " of this thread, made NaN in the gradient of its input ", i, ", ", gradient);
    }
  }

  struct Capture {
    Node* node;
    uint32_t output;
    Tensor* to;
  };
  bool retain_;
  bool anomalies_ = detail::anomaly_mode.of(context());
  std::vector<Capture> captures_;
  std::unordered_set<Node*> towards_;
  Engine* previous_;
  uint64_t number_ = next_number();
  std::vector<Ref<Node>> seen_;
  std::vector<Node*> roots_;
  std::vector<Ref<Node>> ready_;  // a heap, newest first
  std::vector<GradSlot> slots_;
};

}  // namespace shardgrad
