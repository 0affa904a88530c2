#pragma once
// Scratch memory for a kernel, entered in the ledger as workspace and given back at the end of the scope.

#include <shardgrad/core/context.h>
#include <shardgrad/core/storage.h>

namespace shardgrad::Category {
inline constexpr Kind workspace = named<"workspace">;
}

namespace shardgrad {

class Workspace {
 public:
  Workspace(Device device, size_t bytes)
      : storage_(Storage::make(bytes, context().backend(device).memory(), {Category::workspace, 0})) {}
  template <class T> T* as() const { return static_cast<T*>(storage_->data()); }

 private:
  Ref<Storage> storage_;
};

}  // namespace shardgrad
