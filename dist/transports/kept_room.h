#pragma once
// Memory that a transport keeps for what is on its way, as much as its largest call so far has needed. It is kept
// because a collective runs beside computing, when chance has it: memory that came and went with it would make what a
// rank needs at most a matter of chance, too, and no plan could tell it.

#include <cstddef>

#include <shardgrad/core/storage.h>

namespace shardgrad::dist {

class KeptRoom {
 public:
  explicit KeptRoom(Category::Kind category) : category_(category) {}
  /// At least so many bytes; null for none. What was there is gone where it grows.
  std::byte* of(size_t bytes, const Ref<Allocator>& memory) {
    if (bytes == 0) return nullptr;
    if (!storage_ || storage_->bytes() < bytes) {
      storage_ = Ref<Storage>();
      storage_ = Storage::make(bytes, memory, {category_, 0});
    }
    return static_cast<std::byte*>(storage_->data());
  }

 private:
  Category::Kind category_;
  Ref<Storage> storage_;
};

}  // namespace shardgrad::dist
