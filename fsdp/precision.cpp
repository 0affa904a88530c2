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

static void convert_all(std::span<Tensor> tensors, DType dtype) {
  for (Tensor& tensor : tensors)
    if (is_floating(tensor.dtype())) tensor = cast(tensor, dtype);
}

void convert_inputs(nn::Module& module, DType dtype) {
  module.add_forward_pre_hook([dtype](nn::Module&, std::span<Tensor> inputs) { convert_all(inputs, dtype); });
}

void convert_outputs(nn::Module& module, DType dtype) {
  module.add_forward_hook([dtype](nn::Module&, std::span<Tensor> outputs) { convert_all(outputs, dtype); });
}

}  // namespace shardgrad::fsdp
