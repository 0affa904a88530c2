#include <gtest/gtest.h>

#include <filesystem>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/shared_memory.h>

namespace shardgrad::dist {
namespace {

auto open_files() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

// More than an address space holds: the file can be made, and not be seen.
TEST(SharedMemory, WhatCannotBeMappedIsClosed) {
  constexpr size_t kTooMuch = size_t(1) << 48;
  auto before = open_files();
  try {
    SharedMemory::create("test", kTooMuch);
    ADD_FAILURE() << "mapped";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::missing);
    EXPECT_EQ(std::string(error.what()),
              "shared memory: 281474976710656 bytes of address space cannot be mapped: Cannot allocate memory");
  }
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace shardgrad::dist
