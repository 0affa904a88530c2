// Where parameters and buffers have their memory: their first values, another device or dtype.
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

static Ref<Storage> released_storage(const Shape& shape, DType dtype, Device device, Tag tag) {
  return Storage::make(size_t(shape.numel()) * size_of(dtype), context().backend(device).memory(), tag, true);
}

Tensor Module::add_tensor(EntryList& list, std::string name, const Shape& shape, DType dtype, Category::Kind category,
                          Init init) {
  check_name(name);
  Tensor tensor(released_storage(shape, dtype, context().default_device(), {category, 0}), 0, shape, dtype);
  tensor.set_name(name);
  tensor.storage()->set_note("it has no values yet; call the model once, call materialize(), or shard it");
  init.seed = context().seed();
  list.push_back({name, std::make_shared<Parameter>(Parameter{name, tensor, init, false})});
  return tensor;
}

static void give_memory(Storage& storage) {
  if (!storage.resident()) storage.materialize(current_stream(storage.device()));
}

void Parameter::materialize() {
  if (initialised) return;
  give_memory(*tensor.storage());
  fill_range(0, tensor);
  initialised = true;
}

void Parameter::allocate() {
  if (initialised) return;
  give_memory(*tensor.storage());
  initialised = true;
}

void Parameter::take(const Tensor& values) {
  Tensor::Impl& impl = tensor.impl();
  Ref<Storage> old = impl.storage;
  impl.storage = values.storage();
  impl.storage->succeed(*old);
  impl.offset = values.offset();
  impl.dtype = values.dtype();
  if (impl.leaf) renew_leaf(tensor);
  if (old->note()) impl.storage->set_note(*old->note());
}

// Gives a parameter or buffer another storage, with its value and gradient if it has them.
static void move(Parameter& parameter, Device device, DType dtype) {
  NoGrad no_grad;
  const Tensor &tensor = parameter.tensor, value = tensor.detach(), grad = tensor.grad();
  Tag tag = tensor.storage()->tag();
  if (tensor.device() == device && tensor.dtype() == dtype) return;
  TagScope owner(tag);
  parameter.take(parameter.initialised
                     ? value.to(dtype).to(device)
                     : Tensor(released_storage(tensor.shape(), dtype, device, tag), 0, tensor.shape(), dtype));
  if (grad.defined()) leaf_of(tensor).set_grad(grad.to(dtype).to(device));
}

void Module::rehouse(std::optional<Device> device, std::optional<DType> dtype) {
  for (auto& entry : state_entries())
    SG_CHECK(entry.object->tensor.storage()->tag().unit == 0, "to(): '", entry.name,
             "' is sharded; move or convert the model before fully_shard, or let it compute in another dtype with ",
             "Config::param_dtype");
  for (auto& entry : state_entries()) {
    const Storage& old = *entry.object->tensor.storage();
    DType kind = entry.object->tensor.dtype();
    if (dtype && is_floating(kind)) kind = entry.object->keeps_f32 && size_of(*dtype) < 4 ? DType::f32 : *dtype;
    move(*entry.object, device.value_or(old.device()), kind);
  }
}

void Module::to(Device device) { rehouse(device, std::nullopt); }

void Module::to(DType dtype) {
  SG_CHECK(is_floating(dtype), "to(): parameters cannot be of dtype ", dtype);
  rehouse(std::nullopt, dtype);
}

}  // namespace shardgrad::nn
