#pragma once
// The kernel table: one slot per operation, and in it one function per (device, dtype). A kernel is a plain function
// on views; registering it is one line, in the tree or in a library outside:
//
//     static void relu_f32(const Launch& launch, OutView y, View x) { … }
//     static const Register r(kernels::relu, DeviceKind::cpu, DType::f32, relu_f32);
//
// Of the whole process, changed only while no operation runs (at load, TableCopy). Device `acc` runs the cpu kernels.

#include <type_traits>
#include <utility>
#include <vector>

#include <shardgrad/core/device.h>
#include <shardgrad/core/dtype.h>
#include <shardgrad/core/view.h>

namespace shardgrad {

/// What a kernel gets besides its operands.
struct Launch {
  int threads = 1;                ///< CPU threads it may use
  void* native_stream = nullptr;  ///< the device's stream handle; null on the host
};

/// Instruction sets that the CPU's loops are compiled for (kernels/cpu/loops.h).
enum class Isa : uint8_t { plain, avx2, avx512 };
/// The best instruction set of this machine, lowered by SHARDGRAD_ISA=plain|avx2|avx512 when set. Throws Error(input)
/// for another value of that.
Isa best_isa();
const char* name_of(Isa isa);

/// The type-free part of a slot, for listings.
class SlotBase {
 public:
  const char* name() const { return name_; }
  bool has(DeviceKind device, DType dtype) const { return kernels_[row(device)][int(dtype)] != nullptr; }
  /// All slots that have at least one kernel, as a linked list.
  static const SlotBase* first();
  const SlotBase* next() const { return next_; }

 protected:
  friend class TableCopy;
  using AnyKernel = void (*)();
  constexpr explicit SlotBase(const char* name) : name_(name) {}
  static constexpr int row(DeviceKind device) { return device == DeviceKind::acc ? 0 : int(device); }
  void add(DeviceKind device, DType dtype, AnyKernel kernel, bool replaces);
  [[noreturn]] void missing(DeviceKind device, DType dtype) const;

  const char* name_;
  AnyKernel kernels_[kDeviceKindCount][kDTypeCount] = {};
  bool replaced_[kDeviceKindCount][kDTypeCount] = {};
  SlotBase* next_ = nullptr;
  bool listed_ = false;
};

/// The kernel table at one moment. Restoring it goes back from kernels that were put in the place of others since; no
/// operation may run meanwhile.
class TableCopy {
 public:
  TableCopy();
  void restore() const;

 private:
  std::vector<std::pair<SlotBase*, SlotBase>> slots_;
};

/// What a kernel takes that holds operands of its own, such as the ranges of an optimizer.
template <class T>
concept OperandList = requires(const T& list) {
  list->front().for_each_operand([](const auto&) {});
};

/// The kernels of one operation, which take Args after the Launch.
template <class... Args> class Slot : public SlotBase {
 public:
  using Kernel = void (*)(const Launch&, Args...);
  using Flops = double (*)(const Args&...);
  /// `flops`: how many floating-point operations a call makes, told by the shapes of its operands, whose data may be
  /// null. Left out by what memory limits.
  constexpr explicit Slot(const char* name, Flops flops = nullptr) : SlotBase(name), flops_(flops) {}
  double flops(const Args&... operands) const { return flops_ ? flops_(operands...) : 0; }
  /// While the program or a library loads.
  void add(DeviceKind device, DType dtype, Kernel kernel) {
    SlotBase::add(device, dtype, reinterpret_cast<AnyKernel>(kernel), false);
  }
  /// In the place of what stands there, and of what a library that is loaded later adds.
  void replace(DeviceKind device, DType dtype, Kernel kernel) {
    SlotBase::add(device, dtype, reinterpret_cast<AnyKernel>(kernel), true);
  }
  /// The kernel for a device and dtype. Throws Error(missing) naming operation, device and dtype.
  Kernel find(DeviceKind device, DType dtype) const {
    AnyKernel kernel = kernels_[row(device)][int(dtype)];
    if (!kernel) [[unlikely]]
      missing(device, dtype);
    return reinterpret_cast<Kernel>(kernel);
  }

 private:
  Flops flops_;
};

/// Adds a kernel to a slot while the program loads.
struct Register {
  template <class... Args>
  Register(Slot<Args...>& slot, DeviceKind device, DType dtype, typename Slot<Args...>::Kernel kernel) {
    slot.add(device, dtype, kernel);
  }
};

}  // namespace shardgrad
