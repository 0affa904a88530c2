#include <shardgrad/kernels/table.h>

#include <atomic>
#include <string_view>

#include <shardgrad/kernels/choices.h>

namespace shardgrad {

// Constant-initialised, so it is ready before any registration runs.
static constinit std::atomic<SlotBase*> first_slot = nullptr;

const SlotBase* SlotBase::first() { return first_slot; }

const char* name_of(Isa isa) {
  constexpr const char* names[] = {"plain", "avx2", "avx512"};
  return names[int(isa)];
}

Isa machine_isa() {
  Isa isa = Isa::plain;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa = Isa::avx2;
  if (isa == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    isa = Isa::avx512;
#endif
  return isa;
}

static Isa chosen_isa() {
  Isa isa = machine_isa();
  std::string_view wish = environment_choice(kIsaChoice);
  for (Isa lower : {Isa::plain, Isa::avx2})
    if (wish == name_of(lower) && lower < isa) isa = lower;
  return isa;
}

Isa best_isa() {
  static const Isa isa = chosen_isa();
  return isa;
}

void SlotBase::add(DeviceKind device, DType dtype, AnyKernel kernel, bool replaces) {
  if (!listed_) {
    listed_ = true;
    next_ = first_slot;
    while (!first_slot.compare_exchange_weak(next_, this)) continue;  // others may make operations meanwhile
  }
  bool& replaced = replaced_[row(device)][int(dtype)];
  if (replaced && !replaces) return;
  kernels_[row(device)][int(dtype)] = kernel;
  replaced = replaces;
}

// A slot's place in the list stays as it is: new slots come before it.
TableCopy::TableCopy() {
  for (SlotBase* slot = first_slot; slot; slot = slot->next_) slots_.emplace_back(slot, *slot);
}
void TableCopy::restore() const {
  for (const auto& [slot, copy] : slots_) *slot = copy;
}

void SlotBase::missing(DeviceKind device, DType dtype) const {
  fail_as(ErrorKind::missing, name_, ": there is no kernel for device ", name_of(device), " and dtype ", dtype);
}

}  // namespace shardgrad
