#pragma once
// Intrusive reference counting: one allocation per object, one word per handle.

#include <atomic>
#include <cstddef>
#include <utility>

namespace shardgrad {

/// Base of everything held by Ref. The count is atomic because queued work may drop the last handle.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  /// True when this was the last handle: the caller deletes.
  bool drop() const noexcept { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool unique() const noexcept { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  virtual ~RefCounted() = default;
  template <class T> friend class Ref;
  /// Called when the last handle goes; overridden by types that must not be destroyed recursively.
  virtual void destroy() noexcept { delete this; }

 private:
  mutable std::atomic<int> count_{0};
};

/// A shared handle on a RefCounted object.
template <class T> class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U> Ref(const Ref<U>& other) : Ref(static_cast<T*>(other.get())) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ && object_->drop()) static_cast<RefCounted*>(object_)->destroy();
  }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(const Ref& other) const noexcept { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args> Ref<T> make_ref(Args&&... args) { return Ref<T>(new T(std::forward<Args>(args)...)); }

}  // namespace shardgrad
