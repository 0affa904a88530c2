#pragma once
// From tensors to a kernel: resolves operands to views, looks the kernel up, and runs it on the device's compute
// stream. Addresses are resolved when work is queued. This is the only hop between an operation and its kernel. A fault
// of a GPU is rethrown with the operation, its operands and the rank.
//
//     launch(kernels::mul, a, out(y), a, b);          // keyed by a's device and dtype

#include <array>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad {

/// A destination tensor and whether the kernel adds to it (beta 1) or overwrites it (beta 0).
struct Out {
  Tensor tensor;
  float beta = 0;
};
inline Out out(Tensor tensor, float beta = 0) { return {std::move(tensor), beta}; }
/// A result nobody wants.
inline Out unwanted() { return {}; }

class LaunchTrial;
class ReadWatch;
namespace detail {
/// Who is told of this thread's launches.
struct LaunchWatchers {
  LaunchTrial* trial = nullptr;
  ReadWatch* reader = nullptr;
  double* flops = nullptr;
};
extern constinit thread_local LaunchWatchers launch_watchers;
}  // namespace detail

/// Takes over what this thread launches while it lives: how a certificate tries an operation's kernels one by one.
class LaunchTrial {
 public:
  struct Call {
    const SlotBase& slot;
    std::vector<Tensor> inputs = {}, outputs = {};
    bool may_add = true;  ///< the kernel was told to overwrite, and could be told to add
    std::function<void(bool add)> run = {};
  };
  LaunchTrial() : previous_(std::exchange(detail::launch_watchers.trial, this)) {}
  virtual ~LaunchTrial() { detail::launch_watchers.trial = previous_; }
  LaunchTrial(const LaunchTrial&) = delete;
  /// What it launches itself is not on trial.
  virtual void launched(const Call& call) = 0;

 private:
  LaunchTrial* previous_;
};

class WithoutTrial {
 public:
  WithoutTrial() : previous_(std::exchange(detail::launch_watchers.trial, nullptr)) {}
  ~WithoutTrial() { detail::launch_watchers.trial = previous_; }
  WithoutTrial(const WithoutTrial&) = delete;

 private:
  LaunchTrial* previous_;
};

/// Counts the floating-point operations of what this thread launches while it lives, on any device: those of products
/// and attention, and of a user's operations that say theirs (Slot). What memory limits counts as none. What backward
/// computes again counts again.
class FlopCount {
 public:
  FlopCount() : outer_(std::exchange(detail::launch_watchers.flops, &count_)) {}
  ~FlopCount() {
    detail::launch_watchers.flops = outer_;
    if (outer_) *outer_ += count_;
  }
  FlopCount(const FlopCount&) = delete;
  double get() const { return count_; }

 private:
  double count_ = 0;
  double* outer_;
};

/// Told which tensors this thread's operations read while they are recorded: how a recomputed region knows what it
/// would have to read again.
class ReadWatch {
 public:
  virtual void note_read(const Tensor& operand) = 0;

 protected:
  ~ReadWatch() = default;
};

template <class... Parameters, class... Arguments>
void launch(const Slot<Parameters...>& slot, const Tensor& key, const Arguments&... arguments);

namespace detail {

template <class Parameter, class Argument> void note_operand(LaunchTrial::Call& call, const Argument& argument) {
  if constexpr (std::is_same_v<Parameter, View>) {
    if (argument.defined()) call.inputs.push_back(argument);
  } else if constexpr (std::is_same_v<Parameter, OutView>) {
    call.may_add &= argument.beta == 0;
    if (argument.tensor.defined()) call.outputs.push_back(argument.tensor);
  } else if constexpr (requires { argument.epilogue; }) {
    call.may_add &= argument.epilogue == decltype(argument.epilogue){};
  } else if constexpr (OperandList<Argument>) {  // whose operands nobody compares
    call.may_add = false;
  }
}

template <class Parameter, class Argument> void note_read(ReadWatch& watch, const Argument& argument) {
  if constexpr (std::is_same_v<Parameter, View>)
    if (argument.defined()) watch.note_read(argument);
}

template <class Argument> const Argument& adding(const Argument& argument) { return argument; }
inline Out adding(const Out& argument) { return {argument.tensor, 1}; }

template <class... Parameters, class... Arguments>
[[gnu::cold]] void launch_on_trial(LaunchTrial& trial, const Slot<Parameters...>& slot, const Tensor& key,
                                   const Arguments&... arguments) {
  WithoutTrial scope;
  LaunchTrial::Call call{slot};
  (note_operand<Parameters>(call, arguments), ...);
  call.run = [&](bool add) { add ? launch(slot, key, adding(arguments)...) : launch(slot, key, arguments...); };
  trial.launched(call);
}

template <class Parameter, class Argument> Parameter operand(const Argument& argument) {
  if constexpr (std::is_same_v<Parameter, View>)
    return argument.defined() ? argument.in() : View{};
  else if constexpr (std::is_same_v<Parameter, OutView>)
    return argument.tensor.defined() ? argument.tensor.out(argument.beta) : OutView{};
  else
    return static_cast<Parameter>(argument);
}

// What a call touches: room for one operand per parameter, and more where a parameter is a list.
template <size_t N> class Accesses {
 public:
  template <class Operand> void note(const Operand& operand) {
    if constexpr (std::is_same_v<Operand, View> || std::is_same_v<Operand, OutView>) {
      if (operand.defined()) add({operand.data, operand.bytes(), std::is_same_v<Operand, OutView>});
    } else if constexpr (OperandList<Operand>) {
      for (const auto& each : *operand) each.for_each_operand([&](const auto& one) { this->note(one); });
    }
  }
  std::span<const Access> all() {
    if (more_.empty()) return {few_.data(), count_};
    more_.insert(more_.end(), few_.data(), few_.data() + std::exchange(count_, 0));
    return more_;
  }

 private:
  void add(const Access& access) {
    if (count_ < N)
      few_[count_++] = access;
    else
      more_.push_back(access);
  }
  std::array<Access, N> few_;
  size_t count_ = 0;
  std::vector<Access> more_;
};

template <class Operand> void describe_operand(std::string& text, const Operand& operand) {
  const char* comma = text.empty() ? "" : ", ";
  if constexpr (std::is_same_v<Operand, View> || std::is_same_v<Operand, OutView>) {
    if (operand.defined()) text += concat(comma, operand.dtype, operand.shape);
  } else if constexpr (OperandList<Operand>) {
    operand->front().for_each_operand([&text](const auto& one) { describe_operand(text, one); });
    if (operand->size() > 1) text += concat(" and ", operand->size() - 1, " more such");
  }
}

template <class... Operands>
[[noreturn, gnu::cold]] void rethrow_fault(const char* op, const DeviceFault& fault,
                                           const std::tuple<Operands...>& operands) {
  std::string text;
  std::apply([&](const auto&... each) { (describe_operand(text, each), ...); }, operands);
  throw DeviceFault(fault.kind(), concat(op, '(', text, ") on rank ", context().rank(), ": ", fault.what()));
}

}  // namespace detail

/// Runs the slot's kernel for the device and dtype of `key`. On device meta nothing runs, but what is not in memory is
/// brought back, or refused, as elsewhere.
template <class... Parameters, class... Arguments>
void launch(const Slot<Parameters...>& slot, const Tensor& key, const Arguments&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "arguments do not match the slot's signature");
  Device device = key.device();
  const detail::LaunchWatchers watchers = detail::launch_watchers;
  if (watchers.trial && device.kind != DeviceKind::meta) [[unlikely]]
    return detail::launch_on_trial(*watchers.trial, slot, key, arguments...);
  if (watchers.reader) [[unlikely]]
    (detail::note_read<Parameters>(*watchers.reader, arguments), ...);
  if (watchers.flops) [[unlikely]]
    *watchers.flops += slot.flops(detail::operand<Parameters>(arguments)...);
  if (device.kind == DeviceKind::meta) return (static_cast<void>(detail::operand<Parameters>(arguments)), ...);
  Context& ctx = context();
  auto kernel = slot.find(device.kind, key.dtype());
  Stream& stream = ctx.backend(device).compute();
  Launch how{ctx.threads(), stream.native()};
  if (stream.is_inline() && !ctx.checker()) [[likely]] {
    kernel(how, detail::operand<Parameters>(arguments)...);
    return;
  }
  std::tuple<Parameters...> operands{detail::operand<Parameters>(arguments)...};
  detail::Accesses<sizeof...(Parameters)> accesses;
  std::apply([&](const auto&... each) { (accesses.note(each), ...); }, operands);
  auto work = [kernel, how, operands] { std::apply(kernel, std::tuple_cat(std::tuple(how), operands)); };
  try {
    stream.run(slot.name(), std::move(work), accesses.all());
  } catch (const DeviceFault& fault) {
    detail::rethrow_fault(slot.name(), fault, operands);
  }
}

}  // namespace shardgrad
