#pragma once
// Everything that belongs to one rank: its number, random seed, default device, ledger, recorder, devices, and what
// layers above keep for it (slot). No operation changes state that the whole process has, so N ranks can be N threads
// of one process. What a thread sets for its own work, such as the owner of new tensors, belongs to the thread
// (thread_setting.h).
//
//     sg::Context context;                       // installs itself in this thread
//     sg::Tensor x = sg::zeros({2, 3});          // belongs to it
//
// A thread started by the library carries its maker's context; a call from a thread without one throws.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>
#include <utility>
#include <vector>

#include <shardgrad/core/backend.h>
#include <shardgrad/core/device.h>
#include <shardgrad/core/end_hooks.h>
#include <shardgrad/core/home.h>
#include <shardgrad/core/ledger.h>
#include <shardgrad/core/recorder.h>
#include <shardgrad/core/thread_setting.h>

namespace shardgrad {

class HappensBefore;

namespace detail {
inline constinit thread_local ThreadSetting<Tag> owner{Tag{Category::activation, 0}};
/// Where the calling thread has a seed of its own, because it repeats what was drawn by another; null elsewhere.
inline constinit thread_local ThreadSetting<uint64_t*> own_seed{nullptr};

/// A context in the line of those that a thread has taken up; the last one is current. It may go meanwhile.
struct ContextLink {
  Ref<Home> home;
  ContextLink* below = nullptr;
};
}  // namespace detail

class Context {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    int local_rank = -1;  ///< number among the ranks of its machine, which chooses the GPU; -1: as rank
    uint64_t seed = 0;
    int threads = 0;             ///< CPU threads for compute; 0: as wanted_threads says of all usable_cores
    Device device = kCpu;        ///< where tensors are made by default
    bool check_streams = false;  ///< happens-before checker on every stream (always on for devices acc and sim)
    uint64_t delay_seed = 0;     ///< non-zero: random legal delays before queued work, up to max_delay
    std::chrono::microseconds max_delay{200};
  };

  Context();
  explicit Context(Options options);
  /// By the thread that made it; contexts may go in any order, and the last one that is left is current. On an
  /// asynchronous device a tensor is used while the context that made it is current. It may be dropped by any thread at
  /// any time, also while its context ends and after.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The calling thread's context, or null, as when that has ended.
  static Context* current();

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  uint64_t seed() const {
    const uint64_t* own = detail::own_seed.of(*this);
    return own ? *own : options_.seed;
  }
  /// Use manual_seed, which also begins the sequences anew.
  void set_seed(uint64_t seed) {
    uint64_t* own = detail::own_seed.of(*this);
    (own ? *own : options_.seed) = seed;
  }
  int threads() const { return options_.threads; }
  /// Of what is computed from now on, at least 1. PyTorch's set_num_threads.
  void set_threads(int threads);
  Device default_device() const { return options_.device; }
  const Options& options() const { return options_; }

  Ledger& ledger() { return *ledger_; }
  const std::shared_ptr<Ledger>& shared_ledger() const { return ledger_; }
  Recorder& recorder() { return recorder_; }
  /// The memory and streams of a device; made on first use. Throws Error(missing) for a device this build or machine
  /// lacks.
  Backend& backend(Device device) {
    Backend* made = backend_cache_[size_t(device.kind)].load(std::memory_order_acquire);
    return made && device.index == 0 ? *made : make(device);
  }
  /// The happens-before checker, or null when off.
  HappensBefore* checker() { return checker_.get(); }

  /// This context's T, made at its first use: how a layer above keeps something for a rank (autograd/progress.h).
  template <class T> T& slot() {
    return static_cast<Slot<T>&>(
               slot(typeid(T), []() -> std::unique_ptr<AnySlot> { return std::make_unique<Slot<T>>(); }))
        .value;
  }
  /// The owner of tensors that the calling thread makes now; see TagScope.
  Tag tag() const { return detail::owner.of(*this); }

  /// Runs `end` when this context ends, before its devices go; not if the returned handle went first. For objects that
  /// use its streams and may outlive it. `end` must not throw.
  [[nodiscard]] std::shared_ptr<void> at_end(std::function<void()> end) { return at_end_.add(std::move(end)); }

  /// Ends every wait of this context with `error`; the first call wins. Safe from any thread.
  void abort(std::exception_ptr error);
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  /// Throws the abort's error if there is one. Every blocking wait of the library calls it at least every 50 ms.
  void check_abort() const;

 private:
  struct AnySlot {
    virtual ~AnySlot() = default;
  };
  template <class T> struct Slot final : AnySlot { T value{}; };
  AnySlot& slot(std::type_index type, std::unique_ptr<AnySlot> (*make)());
  Backend& make(Device device);
  Options options_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  Recorder recorder_;
  std::unique_ptr<HappensBefore> checker_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex abort_mutex_;
  std::exception_ptr abort_error_;
  std::mutex backend_mutex_, slot_mutex_;
  std::unique_ptr<Backend> backends_[kDeviceKindCount];
  std::atomic<Backend*> backend_cache_[kDeviceKindCount]{};
  // Beside the first of a kind: further GPUs, and what stands for them in tests.
  std::map<std::pair<DeviceKind, int>, std::unique_ptr<Backend>> further_backends_;
  detail::ContextLink link_{ledger_->home()};
  EndHooks at_end_;
  std::vector<std::pair<std::type_index, std::unique_ptr<AnySlot>>> slots_;
};

/// Makes `context` the calling thread's for a scope; how the library's own threads carry their maker's. Settings of
/// threads are what they are in a new context, or what this thread has set for that one.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;

 private:
  detail::ContextLink link_;
};

/// CPU cores that this process may run on, at least 1.
int usable_cores();
/// How many threads a rank uses: `threads`, or without that (0) what the text of OMP_NUM_THREADS says, which may be
/// null, or without that one for each CPU of its share.
int wanted_threads(int threads, const char* omp_num_threads, int share);

/// Tensors that the calling thread makes in this scope belong to `tag`.
class TagScope {
 public:
  explicit TagScope(Tag tag) : scope_(detail::owner, tag) {}
  explicit TagScope(Category::Kind category) : TagScope(Tag{category, context().tag().unit}) {}

 private:
  ThreadSetting<Tag>::Scope scope_;
};

}  // namespace shardgrad
