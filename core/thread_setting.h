#pragma once
// What a thread sets for the work that it does: the owner of new tensors, whether operations are recorded. A rank may
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
  class Scope;
  constexpr explicit ThreadSetting(T initial) : initial_(initial) {}
  ThreadSetting(const ThreadSetting&) = delete;

  /// The calling thread's value while it works for `context`.
  const T& of(const Context& context) const {
    for (const Scope* scope = top_; scope; scope = scope->below_)
      if (scope->context_ == &context) return scope->value_;
    return initial_;
  }

 private:
  T initial_;
  Scope* top_ = nullptr;
};

/// Sets the calling thread's value for its context, for a scope. Scopes may end in any order; the last one that is left
/// of a context counts there. Throws Error(input) in a thread without a context.
template <class T> class ThreadSetting<T>::Scope {
 public:
  Scope(ThreadSetting& setting, T value)
      : setting_(setting), context_(&context()), value_(std::move(value)), below_(setting.top_) {
    setting.top_ = this;
  }
  ~Scope() {
    Scope** at = &setting_.top_;
    while (*at != this) at = &(*at)->below_;
    *at = below_;
  }
  Scope(const Scope&) = delete;

 private:
  friend ThreadSetting;
  ThreadSetting& setting_;
  const Context* context_;
  T value_;
  Scope* below_;
};

}  // namespace shardgrad
