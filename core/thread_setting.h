#pragma once
// What a thread sets for the work that it does: whether operations are recorded, the owner of new tensors. A rank may
// have several threads, so a setting belongs to one thread, and there to the context it works for: a thread that begins
// to work for a context finds what the setting is at first. Layers above core declare their own:
//
//     inline constinit thread_local ThreadSetting<bool> loud{false};
//     ThreadSetting<bool>::Scope scope(loud, true);         // until the end of the scope, in this thread
//     if (loud.of(context())) …

#include <utility>

namespace shardgrad {

class Context;
/// The calling thread's context. Throws Error(input) in a thread without one.
Context& context();

template <class T> class ThreadSetting {
 public:
  constexpr explicit ThreadSetting(T initial) : initial_(initial), value_(initial) {}

  /// The calling thread's value while it works for `context`.
  const T& of(const Context& context) const { return context_ == &context ? value_ : initial_; }

  /// Sets the calling thread's value for its context, for a scope. Throws Error(input) in a thread without a context.
  class Scope {
   public:
    Scope(ThreadSetting& setting, T value) : setting_(setting), before_(setting) {
      setting_.context_ = &context();
      setting_.value_ = std::move(value);
    }
    ~Scope() { setting_ = before_; }
    Scope(const Scope&) = delete;

   private:
    ThreadSetting& setting_;
    ThreadSetting before_;
  };

 private:
  T initial_, value_;
  const Context* context_ = nullptr;
};

}  // namespace shardgrad
