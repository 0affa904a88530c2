#include <shardgrad/autograd/state_check.h>

#include <cstring>

#include <shardgrad/autograd/part.h>

namespace shardgrad {

void check_whole(const std::string& name, const Shape& shape, const Part& part) {
  if (is_whole(shape, part)) return;
  fail("'", name, "' is a part, indices [", part.begin, ", ", part.begin + shape[part.dim], ") along dimension ",
       part.dim, " of ", part.extent, ", and a state has whole tensors; join it with fsdp::full_state_dict(model, ",
       "mesh.world()), or shard the model over an axis of the mesh, fsdp::fully_shard(model, mesh, \"data\"), ",
       "whose state is joined");
}

StateCheck::StateCheck(const std::map<std::string, Tensor>& given) {
  for (const auto& [name, tensor] : given) given_[name] = {tensor.shape(), tensor.dtype()};
}

void StateCheck::expect(const std::string& name, const Shape& shape, DType dtype) {
  known_.insert(name);
  auto given = given_.find(name);
  if (given == given_.end())
    faults_ += concat("\n  missing: '", name, "', ", dtype, shape);
  else if (given->second.shape != shape || given->second.dtype != dtype)
    faults_ += concat("\n  '", name, "' is ", dtype, shape, " here, but ", given->second.dtype, given->second.shape,
                      " was given");
}

// PyTorch's batch norms count batches, for an option that is not here.
bool StateCheck::is_to_spare(const std::string& name) const {
  constexpr std::string_view kCount = "num_batches_tracked";
  return name.ends_with(kCount) && known_.contains(name.substr(0, name.size() - kCount.size()) + "running_var");
}

std::string StateCheck::faults() const {
  std::string text = faults_;
  for (const auto& [name, spec] : given_)
    if (!known_.contains(name) && !is_to_spare(name))
      text += concat("\n  unknown: '", name, "', ", spec.dtype, spec.shape);
  return text;
}

bool values_differ(const Tensor& a, const Tensor& b) {
  bool comparable = a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() != kMeta && b.device() != kMeta;
  bool one = a.storage() == b.storage() && a.offset() == b.offset();
  if (!comparable || one || a.numel() == 0) return false;
  Tensor x = a.detach().to(kCpu), y = b.detach().to(kCpu);
  return std::memcmp(x.in().data, y.in().data, x.bytes()) != 0;
}

}  // namespace shardgrad
