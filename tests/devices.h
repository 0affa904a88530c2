#pragma once
// The devices that run the kernels of kernels/cuda on this machine: the simulator, and a GPU where there is one.
// SHARDGRAD_TEST_DEVICE=cuda (or sim) leaves the other out, and its tests fail where the GPU is missing. A simulator
// that was built and does not load fails them too: they would pass with no device at all.

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <built_with.h>
#include <gtest/gtest.h>

#include <shardgrad/core/backend.h>

namespace shardgrad::test {

inline std::vector<Device> kernel_devices() {
  if (const char* wish = std::getenv("SHARDGRAD_TEST_DEVICE")) return {parse_device(wish)};
  std::vector<Device> devices;
  if (dlopen("libshardgrad_sim_kernels.so", RTLD_NOW | RTLD_LOCAL))
    devices.push_back(kSim);
  else if (kBuiltWithSim)
    ADD_FAILURE() << "device sim is in this build and cannot be loaded: " << dlerror();
  if (cuda_device_count() > 0) devices.push_back(kCuda);
  return devices;
}

/// For the last argument of INSTANTIATE_TEST_SUITE_P: "sim", "cuda".
inline std::string device_name(const ::testing::TestParamInfo<Device>& info) { return name_of(info.param.kind); }

}  // namespace shardgrad::test
