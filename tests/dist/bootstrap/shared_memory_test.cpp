#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

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

// As where the memory of a machine, or of its /dev/shm, is full.
TEST(SharedMemory, WhatTheSystemDoesNotGiveIsNotTakenToBeThere) {
  int file = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, 4096), 0);
  fcntl(file, F_ADD_SEALS, F_SEAL_GROW);
  auto memory = SharedMemory::adopt(file, 4096);
  EXPECT_TRUE(memory->back(0, 4096));
  EXPECT_FALSE(memory->back(0, 8192));
}

}  // namespace
}  // namespace shardgrad::dist
