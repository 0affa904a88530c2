// What begins a backward pass, and what may be asked while one runs. The pass itself is autograd/engine.h.

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/engine.h>
#include <shardgrad/core/capture.h>

namespace shardgrad {

static void run_pass(std::span<const Tensor> roots, std::span<const Tensor> grads, bool retain_graph,
                     std::span<const Tensor> inputs, std::span<Tensor> results) {
  SG_CHECK(!in_backward(), "backward: called from inside backward; double backward is not supported");
  SG_CHECK(grads.empty() || grads.size() == roots.size(), "backward: ", roots.size(), " tensors but ", grads.size(),
           " gradients");
  for (size_t i = 0; i < roots.size(); ++i) Engine::check_root(roots[i], grads.empty() ? Tensor() : grads[i]);
  TagScope owner(Category::activation_gradient);
  NoGrad no_grad;
  Autocast off(std::nullopt);
  Engine engine(retain_graph);
  try {
    for (size_t i = 0; i < inputs.size(); ++i) engine.capture(inputs[i], &results[i]);
    for (const Tensor& root : roots) engine.add_root(root);
    engine.plan();
    for (size_t i = 0; i < roots.size(); ++i) engine.start_from(roots[i], grads.empty() ? Tensor() : grads[i]);
    engine.run();
  } catch (...) {
    engine.abandon();
    throw;
  }
}

void backward(std::span<const Tensor> roots, std::span<const Tensor> grads, bool retain_graph) {
  run_pass(roots, grads, retain_graph, {}, {});
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs, std::span<const Tensor> grads,
                         bool retain_graph) {
  SG_CHECK(!outputs.empty() && !inputs.empty(), "grad: there are no ", outputs.empty() ? "outputs" : "inputs");
  std::vector<Tensor> results(inputs.size());
  run_pass(outputs, grads, retain_graph, inputs, results);
  return results;
}

std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs, bool retain_graph) {
  return grad({&output, 1}, {inputs.begin(), inputs.size()}, {}, retain_graph);
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

bool Leaf::is_asked_for() const { return in_current_pass() && captured_; }

static std::string described(const Tensor& leaf) {
  return leaf.name().empty() ? concat("a leaf of ", leaf) : "'" + leaf.name() + "'";
}

// A step that is captured reads a gradient of before it where it is, and each replay there again.
static void note_grad_read(const Tensor& leaf, const Tensor& grad) {
  Capture& capture = *Capture::current();
  if (!grad.defined() || capture.has_allocated(*grad.storage()) || !capture.is_first(grad.storage().get())) return;
  capture.at_end([&capture, leaf, grad] {
    if (!capture.uses(*grad.storage())) return;
    capture.check_replay([leaf, storage = grad.storage(), at = grad.in().data] {
      Tensor now = leaf_of(leaf).grad();
      SG_CHECK(now.defined() && now.storage() == storage && storage->resident() && now.in().data == at,
               "the gradient of ", described(leaf), " is not where it was when the step was captured (StepGraph); let ",
               "backward and step() be in one StepGraph");
    });
  });
}

Tensor Tensor::grad() const {
  if (!is_leaf())
    if (const Tensor* kept = static_cast<const Node&>(*impl().grad_fn).retained(impl().output_index)) return *kept;
  SG_CHECK(is_leaf(), "grad: ", *this, " was computed by ", static_cast<const Node&>(*impl().grad_fn).name(),
           ", and only leaves keep a gradient; ask a leaf, or call retain_grad() before backward");
  if (!requires_grad()) return Tensor();
  const Leaf& leaf = leaf_of(*this);
  SG_CHECK(
      !leaf.incomplete(), "the gradient of ", described(*this),
      " is incomplete: a backward pass failed after it had added to it; call zero_grad() and repeat the passes that "
      "it had gathered");
  Tensor grad = leaf.grad();
  if (Capture::current()) [[unlikely]]
    note_grad_read(*this, grad);
  return grad;
}

void Tensor::set_grad(Tensor grad) const {
  if (!grad.defined() && !impl().grad_fn) return;
  if (!grad.defined() && !is_leaf() && static_cast<Node&>(*impl().grad_fn).forget_retained(impl().output_index)) return;
  leaf_of(*this).set_grad(std::move(grad));
}

Tensor& Tensor::set_requires_grad(bool on) {
  SG_CHECK(is_leaf(), "set_requires_grad: this tensor was computed; detach() it first");
  SG_CHECK(!on || is_floating(dtype()), "set_requires_grad: dtype ", dtype(), " has no gradient");
  if (on && !impl().grad_fn) renew_leaf(*this);  // here, and not at its first use, which two threads may make at once
  impl().requires_grad = on;
  return *this;
}

void Tensor::register_hook(std::function<Tensor(const Tensor& grad)> hook) const {
  Node* node = node_of(*this);
  SG_CHECK(node, "register_hook: ", *this, " does not require grad");
  node->add_grad_hook(impl().output_index, std::move(hook));
}

void Tensor::retain_grad() const {
  SG_CHECK(requires_grad(), "retain_grad: ", *this, " does not require grad");
  if (!is_leaf()) node_of(*this)->retain_grad(impl().output_index);
}

void Tensor::backward(const Tensor& grad, bool retain_graph) const {
  shardgrad::backward({this, 1}, {&grad, 1}, retain_graph);
}

}  // namespace shardgrad
