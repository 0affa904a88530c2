#include <shardgrad/autograd/converted_copies.h>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/backward.h>
#include <shardgrad/autograd/grad_mode.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>

namespace shardgrad::detail {

// The values of a sharded parameter come and go with its unit, and writes to memory that is lent are not counted.
static bool is_plain_parameter(const Tensor& x) {
  const Storage& storage = *x.storage();
  bool lent = storage.holder() || storage.tag().category == Category::borrowed;
  return x.requires_grad() && x.is_leaf() && !lent && !leaf_of(x).sink();
}

void ConvertedCopies::forget_gone() {
  std::erase_if(uses_, [](const auto& entry) { return entry.second.leaf.expired(); });
  left_ = uses_.size();
  bytes_left_ = bytes_made_ = 0;
  for (const auto& [key, use] : uses_)
    if (use.copy.defined()) bytes_left_ += use.copy.bytes();
}

Tensor ConvertedCopies::of(const Tensor& x, DType dtype) {
  if (!is_plain_parameter(x) || Capture::current() != capture_) return Tensor();
  const Leaf& leaf = leaf_of(x);
  std::pair key{&leaf, dtype};
  auto known = uses_.find(key);
  bool again = known != uses_.end() && known->second.is_of(x);
  if (in_backward() && !(again && known->second.copy.defined())) return Tensor();
  if (!again) {
    if (uses_.size() > 2 * left_) forget_gone();
    uses_.insert_or_assign(key, Use{leaf.life(), x.storage().get(), x.offset(), x.version(), x.storage()->leased()});
    return Tensor();
  }
  Tensor& copy = known->second.copy;
  if (!copy.defined()) {
    if (bytes_made_ > bytes_left_) forget_gone();
    TagScope owner(Category::converted_parameter);
    NoGrad no_grad;
    copy = cast(x, dtype);
    bytes_made_ += copy.bytes();
  }
  static_cast<void>(x.in());  // in memory, or the error that says why not
  return copy.detach();
}

}  // namespace shardgrad::detail
