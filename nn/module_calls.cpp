// What a call of a module runs besides its forward; see Child.
#include <exception>

#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

static constinit thread_local uint64_t calls_made = 0, call_running = 0;

uint64_t running_call() { return call_running; }

detail::CallGuard::CallGuard(Module& module)
    : module_(module), outer_(std::exchange(call_running, ++calls_made)), exceptions_(std::uncaught_exceptions()) {}

detail::CallGuard::~CallGuard() {
  if (std::uncaught_exceptions() > exceptions_) module_.forward_failed();
  call_running = outer_;
}

void detail::check_as_before(const Module& module, bool training) {
  SG_CHECK(module.training() == training, "recompute of '", module.full_name(), "', a ", module.type_name(),
           ": it was switched between train() and eval() before backward ran it again");
}

static Tensor run_forward(const std::shared_ptr<Module>& module, Tensor& input, detail::TensorForward forward) {
  const std::optional<RecomputeOptions>& options = module->recompute_options();
  if (!options) return forward(*module, input);
  auto again = [module, training = module->training(), forward](Tensor input) {
    detail::check_as_before(*module, training);
    return forward(*module, input);
  };
  return checkpoint(*options, std::move(again), std::move(input));
}

Tensor detail::call_with_hooks(const std::shared_ptr<Module>& module, Tensor input, TensorForward forward) {
  std::vector<Tensor> inputs = tensors_in(input);
  CallGuard guard(*module);
  module->before_forward(inputs);
  replace_tensors(input, inputs);
  Tensor output = run_forward(module, input, forward);
  std::vector<Tensor> outputs = tensors_in(output);
  module->after_forward(outputs);
  replace_tensors(output, outputs);
  return output;
}

void Module::update_direct() {
  direct_ = pre_hooks_.empty() && hooks_.empty() && failed_hooks_.empty() && !fills_on_call_ && !recompute_;
}

void Module::make_root() {
  fills_on_call_ = true;
  update_direct();
  complete_names();
}

void Module::add_forward_pre_hook(ForwardPreHook hook) {
  pre_hooks_.push_back(std::move(hook));
  update_direct();
}

// A hook may add others, which run from the next call on: what runs stays where it is, and only those are called that
// were there at first.
template <class Hooks, class... Arguments> static void call_hooks(Hooks& hooks, Arguments&... arguments) {
  for (size_t i = 0, count = hooks.size(); i < count; ++i) hooks[i](arguments...);
}

void Module::add_forward_hook(ForwardHook hook) {
  hooks_.push_back(std::move(hook));
  update_direct();
}

void Module::add_forward_failed_hook(ForwardFailedHook hook) {
  failed_hooks_.push_back(std::move(hook));
  update_direct();
}

void Module::set_recompute(std::optional<RecomputeOptions> options) {
  recompute_ = std::move(options);
  update_direct();
}

void Module::fill_on_call() {
  Module& top = root();
  std::lock_guard lock(top.filling_);
  if (fills_on_call_) top.fill();  // no other thread has in the meantime
}

void Module::before_forward(std::vector<Tensor>& inputs) {
  if (fills_on_call_) fill_on_call();
  call_hooks(pre_hooks_, *this, inputs);
}

void Module::forward_failed() { call_hooks(failed_hooks_, *this); }

void Module::after_forward(std::vector<Tensor>& outputs) { call_hooks(hooks_, *this, outputs); }

}  // namespace shardgrad::nn
