#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <shardgrad/kernels/cpu/loops.h>
#include <shardgrad/kernels/ops.h>

#include <tests/devices.h>

namespace shardgrad::test {
namespace {

std::vector<std::string> slots_without(DeviceKind device, DType dtype) {
  std::vector<std::string> missing;
  for (const SlotBase* slot : kernels::all_slots()) {
    bool of_norms = slot == &kernels::join_values || slot == &kernels::clip_scale;  // which are in f64
    if (!slot->has(device, of_norms ? DType::f64 : dtype)) missing.push_back(slot->name());
  }
  std::sort(missing.begin(), missing.end());
  return missing;
}

TEST(CpuTable, EverySlotHasACpuKernelForF32AndF64) {
  EXPECT_GT(kernels::all_slots().size(), 50u);
  EXPECT_EQ(slots_without(DeviceKind::cpu, DType::f32), std::vector<std::string>());
  EXPECT_EQ(slots_without(DeviceKind::cpu, DType::f64), std::vector<std::string>());
  EXPECT_EQ(slots_without(DeviceKind::acc, DType::f32), std::vector<std::string>());
}

// They round bf16 by chance, and take no f16.
TEST(CpuTable, OnlyOptimizersLackKernelsForF16) {
  EXPECT_EQ(slots_without(DeviceKind::cpu, DType::bf16), std::vector<std::string>());
  EXPECT_EQ(slots_without(DeviceKind::cpu, DType::f16), (std::vector<std::string>{"adam", "sgd"}));
}

TEST(CpuTable, DevicesHaveTheKernelsOfTheCpu) {
  for (Device device : kernel_devices())
    for (int dtype = 0; dtype < kDTypeCount; ++dtype)
      EXPECT_EQ(slots_without(device.kind, DType(dtype)), slots_without(DeviceKind::cpu, DType(dtype)))
          << device << ' ' << DType(dtype);
}

TEST(CpuTable, AMissingKernelIsNamed) {
  try {
    kernels::adam.find(DeviceKind::cpu, DType::u8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::missing);
    EXPECT_STREQ(error.what(), "adam: there is no kernel for device cpu and dtype u8");
  }
}

TEST(CpuTable, EveryLoopTableIsCompleteAndTheBestThatIsBuiltIsTaken) {
  const cpu::Loops* best = nullptr;
  for (Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    const cpu::Loops* loops = cpu::loops_of(isa);
    if (!loops) continue;
    best = loops;
    for (const auto& row : loops->elementwise.unary)
      for (auto loop : row) EXPECT_NE(loop, nullptr) << name_of(isa);
    for (const auto& row : loops->elementwise.binary)
      for (auto loop : row) EXPECT_NE(loop, nullptr) << name_of(isa);
  }
  EXPECT_EQ(best, &cpu::loops());
}

}  // namespace
}  // namespace shardgrad::test
