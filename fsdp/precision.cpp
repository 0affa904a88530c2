#include <shardgrad/fsdp/precision.h>

#include <shardgrad/autograd/ops.h>

namespace shardgrad::fsdp {

static void convert_buffer(nn::Parameter& buffer, DType dtype) {
  buffer.materialize();
  buffer.tensor.impl().storage = buffer.tensor.to(dtype).storage();
  buffer.tensor.impl().dtype = dtype;
}

void convert_buffers(nn::Module& root, const Config& config) {
  if (!config.buffer_dtype) return;
  NoGrad no_grad;
  TagScope owner(Tag{Category::other, 0});
  for (auto& [name, module] : root.named_modules())
    for (const auto& buffer : module->own_buffers()) {
      DType dtype = buffer.object->tensor.dtype();
      if (is_floating(dtype) && dtype != *config.buffer_dtype) convert_buffer(*buffer.object, *config.buffer_dtype);
    }
}

void convert_inputs(nn::Module& module, const Config& config) {
  if (!config.param_dtype) return;
  module.add_forward_pre_hook([dtype = *config.param_dtype](nn::Module&, std::span<Tensor> inputs) {
    for (Tensor& input : inputs)
      if (is_floating(input.dtype())) input = cast(input, dtype);
  });
}

}  // namespace shardgrad::fsdp
