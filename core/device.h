#pragma once
// Where memory lives and work runs.

#include <cstdint>
#include <ostream>
#include <string_view>

#include <shardgrad/core/error.h>

namespace shardgrad {

enum class DeviceKind : uint8_t {
  cpu,   ///< host memory, compute inline in the caller's thread
  acc,   ///< a test device: host memory behind its own tag, every stream a thread (see backend.h)
  meta,  ///< shapes and ledger, no memory: what `plan` runs on
  cuda,  ///< an NVIDIA GPU
  sim,   ///< `acc` with the kernels of `cuda`, run on the host by a simulator
};
inline constexpr int kDeviceKindCount = 5;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  uint8_t index = 0;
  bool operator==(const Device&) const = default;
};
inline constexpr Device kCpu{DeviceKind::cpu, 0}, kAcc{DeviceKind::acc, 0}, kMeta{DeviceKind::meta, 0},
    kCuda{DeviceKind::cuda, 0}, kSim{DeviceKind::sim, 0};

// What code above core/ asks of a device, instead of which one it is.
/// Whether tensors there have values: everywhere but on meta.
constexpr bool has_values(Device device) { return device.kind != DeviceKind::meta; }
/// Whether its memory is other memory than the host's: everywhere but on cpu.
constexpr bool has_own_memory(Device device) { return device.kind != DeviceKind::cpu; }
/// Whether it computes and copies beside the threads of the host's cores, which are what cpu has; on meta nothing does.
constexpr bool computes_by_itself(Device device) { return has_values(device) && has_own_memory(device); }

/// Host memory that behaves like an accelerator's: acc and sim.
constexpr bool is_emulated(DeviceKind kind) { return kind == DeviceKind::acc || kind == DeviceKind::sim; }

constexpr const char* name_of(DeviceKind kind) {
  constexpr const char* names[kDeviceKindCount] = {"cpu", "acc", "meta", "cuda", "sim"};
  return names[int(kind)];
}
inline std::ostream& operator<<(std::ostream& out, Device device) {
  out << name_of(device.kind);
  return device.index ? out << ':' << int(device.index) : out;
}

/// "cpu", "acc", "meta", "cuda" or "sim". Throws Error(input) listing the choices.
inline Device parse_device(std::string_view text) {
  for (int k = 0; k < kDeviceKindCount; ++k)
    if (text == name_of(DeviceKind(k))) return {DeviceKind(k), 0};
  fail("unknown device '", text, "'; choose one of cpu, cuda, acc, sim, meta");
}

}  // namespace shardgrad
