#include <shardgrad/autograd/node.h>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {

static thread_local uint64_t sequence_of_thread = 0;

uint64_t last_sequence() { return sequence_of_thread; }

Node::Node() : region_(Region::current()), sequence_(++sequence_of_thread) {}

void Node::keep(const Tensor& tensor) {
  Node* maker = tensor.defined() ? static_cast<Node*>(tensor.impl().grad_fn.get()) : nullptr;
  const Tensor* source = maker ? maker->source_of_copy(tensor) : nullptr;
  const Tensor& kept = source ? *source : tensor;
  SavedTensor& saved = saved_.emplace_back(region_ ? region_->save(kept) : SavedTensor(kept));
  if (source && saved.value < 0) saved.dtype = tensor.dtype();
}

Tensor Node::saved(size_t i) const {
  const SavedTensor& kept = saved_.at(i);
  return (kept.value < 0 ? kept : region_->value(kept.value)).get(name());
}

void Node::connect(const Tensor& input) {
  Node* target = input.defined() ? node_of(input) : nullptr;
  edges_.push_back({Ref<Node>(target), target ? input.impl().output_index : 0});
  bool is_leaf = target && target->outputs_.empty();
  if (is_leaf && !static_cast<Leaf*>(target)->is_of_dtype(input)) edges_.back().output = kOtherDtype;
  if (region_ && input.defined()) region_->note_input(input);
}

void Node::add_output(const Tensor& output) {
  Tensor::Impl& impl = output.impl();
  if (is_floating(impl.dtype)) {
    impl.requires_grad = true;
    impl.leaf = false;
    impl.output_index = uint32_t(outputs_.size());
    impl.grad_fn = Ref<GradFn>(this);
  }
  outputs_.push_back({impl.shape, impl.dtype, output.device()});
  if (region_) region_->note_output(*this, output);
}

Tensor Node::hooked(uint32_t output, Tensor gradient) const {
  for (const OfOutput& each : watched_->hooks) {
    if (each.output != output) continue;
    Tensor other = each.hook(gradient);
    if (!other.defined()) continue;
    SG_CHECK(
        other.shape() == gradient.shape() && other.dtype() == gradient.dtype() && other.device() == gradient.device(),
        name(), ": a hook gives ", other, " for the gradient ", gradient);
    gradient = other;
  }
  return gradient;
}

void Node::retain_grad(uint32_t output) {
  if (retained(output)) return;
  auto kept = watched().retained[output] = std::make_shared<Retained>();
  add_grad_hook(output, [kept](const Tensor& gradient) {
    Tensor sum = kept->sum.defined() ? add(kept->sum, gradient) : gradient;
    kept->before = std::exchange(kept->sum, sum);
    kept->added = true;
    return Tensor();
  });
}

const Tensor* Node::retained(uint32_t output) const {
  if (!watched_) return nullptr;
  auto found = watched_->retained.find(output);
  return found == watched_->retained.end() ? nullptr : &found->second->sum;
}

bool Node::forget_retained(uint32_t output) {
  if (!retained(output)) return false;
  watched_->retained.at(output)->sum = Tensor();
  return true;
}

void Node::end_retained(bool failed) noexcept {
  if (!watched_) return;
  for (auto& [output, kept] : watched_->retained) {
    if (kept->added && failed) kept->sum = kept->before;
    kept->before = Tensor();
    kept->added = false;
  }
}

void Node::forget_rebuilt() {
  for (const SavedTensor& kept : saved_)
    if (kept.value >= 0) region_->forget(kept.value);
}

void Node::forget() {
  edges_.clear();
  saved_.clear();
  pre_hooks_.clear();  // and what they hold
  if (watched_) watched_->hooks.clear();
  region_ = nullptr;
  consumed_ = true;
}

bool GradSlot::is_sole(const Node& writer) const {
  return target_ && target_->waiting_ == 1 && target_->outputs_.size() == 1 && !target_->gradients_[0].defined() &&
         target_->region_ == writer.region_ && !target_->has_grad_hooks() && !target_->captured_;
}

static std::ostream& operator<<(std::ostream& out, const OutputMeta& meta) {
  return out << meta.dtype << meta.shape << " on " << meta.device;
}

Leaf::Leaf(const Tensor& tensor) : meta_{tensor.shape(), tensor.dtype(), tensor.device()} {
  region_ = nullptr;
  sequence_ = UINT64_MAX;  // a complete gradient is announced at once, so that its reduction starts early
  if (Capture* capture = Capture::current(); capture && tensor.storage() && capture->has_allocated(*tensor.storage()))
      [[unlikely]]
    capture->note_made(this);
}

Out Leaf::open() {
  if (current_.defined()) return out(current_, 1);
  if (!gathers()) return open_own();
  current_ = empty(meta_.shape, {meta_.dtype, meta_.device}, "the gradient of a leaf");
  return out(current_, 0);
}

Out Leaf::open_own() {
  if (sink_) {
    Out destination = sink_->open();
    current_ = destination.tensor;
    return destination;
  }
  if (Capture::current()) [[unlikely]]
    note_captured(true);
  float beta = grad_.defined() ? 1 : 0;
  if (grad_.defined()) {
    added_ = true;
    if (!grad_.unique()) {  // somebody computes with it, perhaps the very operation that writes here
      Tensor copy = empty_like(grad_, "the gradient of a leaf");
      launch(kernels::copy, grad_, out(copy), grad_);
      grad_ = copy;
    }
  } else {
    grad_ = empty(meta_.shape, {meta_.dtype, meta_.device}, "the gradient of a leaf");
    fresh_ = true;
  }
  current_ = grad_;
  return out(current_, beta);
}

void Leaf::backward(std::span<const Tensor>, std::span<GradSlot>) {
  Tensor gathered = std::exchange(current_, Tensor());
  if (gathers() && gathered.defined()) {
    Tensor gradient = has_grad_hooks() ? hooked(0, gathered) : gathered;
    if (captured_) {
      current_ = gradient;  // the engine hands it over
      return;
    }
    launch(kernels::copy, gradient, open_own(), gradient);
    current_ = Tensor();
  }
  if (sink_) sink_->ready();
  for (auto& hook : ready_hooks_) hook();
}

void Leaf::take_hooks_of(const Leaf& old) {
  if (old.watched_) watched_ = std::make_unique<Watched>(*old.watched_);
  ready_hooks_ = old.ready_hooks_;
}

void Leaf::set_grad(Tensor grad) {
  SG_CHECK(!sink_ || !grad.defined(), "set_grad: this parameter's gradient belongs to its sharded unit");
  if (sink_) return sink_->clear();
  SG_CHECK(!grad.defined() || meta_.fits(grad), "set_grad: ", grad, " does not fit a tensor of ", meta_);
  if (Capture::current()) [[unlikely]]
    note_captured(false);
  grad_ = std::move(grad);
  incomplete_ = false;
}

// Before the gradient is written, or another takes its place, in a step that is captured (core/capture.h): its replays
// leave the gradient that it leaves. A leaf that the step makes is another one in each step as written.
void Leaf::note_captured(bool is_written) {
  Capture& capture = *Capture::current();
  if (is_written && meta_.device != capture.device())
    refuse_in_capture(concat("a gradient of ", meta_), concat("keep what is trained on ", capture.device()));
  if (capture.has_made(this) || !capture.is_first(this)) return;
  Ref<Leaf> self(this);
  if (is_written) {
    if (grad_.defined())
      refuse_in_capture(concat("a backward pass that adds to a gradient of ", meta_, " of before the step"),
                        "zero_grad() before it; all passes whose gradients are added up go into one step");
    capture.check_replay([self] {
      SG_CHECK(!self->grad_.defined(), "a captured step (StepGraph) begins without a gradient of ", self->meta_,
               ", and now there is one, to which the step would add; call zero_grad() before it");
    });
  }
  capture.on_give_up([self, grad = grad_, incomplete = incomplete_] {
    self->grad_ = grad;
    self->incomplete_ = incomplete;
  });
  capture.at_end([self, &capture] {
    capture.after_replay([self, grad = self->grad_] {
      if (grad.defined()) grad.bump_version();
      self->set_grad(grad);
    });
  });
}

void renew_leaf(const Tensor& tensor) {
  Tensor::Impl& impl = tensor.impl();
  Ref<Leaf> renewed = make_ref<Leaf>(tensor);
  if (impl.grad_fn) renewed->take_hooks_of(static_cast<const Leaf&>(*impl.grad_fn));
  impl.grad_fn = std::move(renewed);
  impl.leaf = true;
}

Leaf& leaf_of(const Tensor& tensor) {
  Tensor::Impl& impl = tensor.impl();
  SG_CHECK(impl.requires_grad || impl.leaf, "this tensor does not require grad; call set_requires_grad() first");
  SG_CHECK(!impl.grad_fn || impl.leaf, "only a leaf has an accumulated gradient; this tensor was computed");
  SG_ASSERT(impl.grad_fn, "set_requires_grad makes the leaf");
  return static_cast<Leaf&>(*impl.grad_fn);
}

Node* node_of(const Tensor& tensor) {
  if (!tensor.requires_grad()) return nullptr;
  GradFn* made_by = tensor.impl().grad_fn.get();
  return made_by ? static_cast<Node*>(made_by) : &leaf_of(tensor);
}

void GradSlot::check_wanted() const {
  SG_CHECK(target_, writer_ ? writer_->name() : "backward", ": nothing wants the gradient of input ", input_,
           "; ask dx[", input_, "].wanted() before it is written");
}

Out GradSlot::write() {
  check_wanted();
  written_ = true;
  if (target_->outputs_.empty()) {
    SG_CHECK(output_ != Node::kOtherDtype, writer_->name(), ": input ", input_, " had another dtype when this was ",
             "recorded than its gradient has, as a parameter that is summoned; compute with its detach() there");
    return static_cast<Leaf*>(target_)->open();
  }
  Tensor& gradient = target_->gradients_[output_];
  const OutputMeta& meta = target_->outputs_[output_];
  if (!gradient.defined()) {
    gradient = empty(meta.shape, {meta.dtype, meta.device}, target_->name());
    return out(gradient, 0);
  }
  if (!gradient.unique()) {  // handed over by alias() and still used elsewhere
    Tensor copy = empty_like(gradient, target_->name());
    launch(kernels::copy, gradient, out(copy), gradient);
    gradient = copy;
  }
  return out(gradient, 1);
}

void GradSlot::check_fits(const Tensor& gradient) const {
  const OutputMeta& meta =
      target_->outputs_.empty() ? static_cast<const Leaf*>(target_)->meta_ : target_->outputs_[output_];
  SG_CHECK(meta.fits(gradient), writer_ ? writer_->name() : "backward", ": the gradient handed over for input ", input_,
           " is ", gradient, ", but that input is ", meta);
}

void GradSlot::alias(const Tensor& gradient) {
  check_wanted();
  check_fits(gradient);
  bool first = !target_->outputs_.empty() && !target_->gradients_[output_].defined();
  if (first) {
    written_ = true;
    target_->gradients_[output_] = gradient;
  } else {
    launch(kernels::copy, gradient, write(), gradient);
  }
}

}  // namespace shardgrad
