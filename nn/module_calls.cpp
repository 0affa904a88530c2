// What a call of a module runs besides its forward; see Child.
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

void Module::update_direct() {
  direct_ = pre_hooks_.empty() && hooks_.empty() && failed_hooks_.empty() && !fills_on_call_ && !checkpoint_;
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

void Module::add_forward_hook(ForwardHook hook) {
  hooks_.push_back(std::move(hook));
  update_direct();
}

void Module::add_forward_failed_hook(ForwardFailedHook hook) {
  failed_hooks_.push_back(std::move(hook));
  update_direct();
}

void Module::set_checkpoint(std::optional<CheckpointOptions> options) {
  checkpoint_ = std::move(options);
  update_direct();
}

void Module::before_forward(std::vector<Tensor>& inputs) {
  if (fills_on_call_) materialize();
  for (auto& hook : pre_hooks_) hook(*this, inputs);
}

void Module::forward_failed() {
  for (auto& hook : failed_hooks_) hook(*this);
}

void Module::after_forward(const std::vector<Tensor>& outputs) {
  for (auto& hook : hooks_) hook(*this, outputs);
}

}  // namespace shardgrad::nn
