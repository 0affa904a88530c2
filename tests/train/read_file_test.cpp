// Small files that somebody has named: what is mistaken or made to do harm neither fills the memory nor waits for ever.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/train/checkpoint/manifest.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/text/tokenizer.h>
#include <shardgrad/train/trace.h>

#include "config_texts.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using train::FileKind;
namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr FileKind kTest{"a test", 100}, kPiped{"a test", 100, true};

std::string read_whole(const std::string& path, const FileKind& kind, milliseconds patience = milliseconds(10000)) {
  return train::read_file(path, kind, patience);
}
std::string refused(const std::string& path, const FileKind& kind, milliseconds patience = milliseconds(10000)) {
  return error_of([&] { read_whole(path, kind, patience); });
}

TEST(ReadFile, AFileHasAtMostTheBytesOfItsKind) {
  TemporaryFolder folder;
  folder.write("most", std::string(100, 'x'));
  folder.write("more", std::string(101, 'x'));
  EXPECT_EQ(read_whole(folder / "most", kTest), std::string(100, 'x'));
  EXPECT_EQ(
      refused(folder / "more", kTest),
      concat("cannot read '", folder / "more", "': it has 101 B, and a test has at most 100 B; name the right file"));
  fs::resize_file(folder / "more", uintmax_t(5) << 30);
  EXPECT_THAT(refused(folder / "more", kTest), HasSubstr("it has 5.0 GiB, and"));
  EXPECT_THAT(refused("/proc/self/maps", kTest), HasSubstr("it has more than 100 B")) << "of which 0 bytes are said";
}

TEST(ReadFile, WhatIsNoRegularFileIsRefusedAtOnce) {
  TemporaryFolder folder;
  mkfifo((folder / "pipe").c_str(), 0600);
  for (std::string path : {folder / "pipe", std::string("/dev/zero"), std::string("/dev/null")})
    EXPECT_EQ(refused(path, kTest), concat("cannot read '", path, "': it is no regular file; name the file of a test"));
  EXPECT_THAT(refused("/dev/zero", kPiped), HasSubstr("it is no regular file"));
  EXPECT_THAT(refused(folder.path(), kPiped), HasSubstr("it is a folder"));
  EXPECT_THAT(refused("/dev/fd/999", kPiped), HasSubstr("<(…) is there for one process, and not for those that are"));
  EXPECT_THAT(refused(folder / "gone", kPiped), HasSubstr("/gone': No such file or directory"));
}

// As a shell's <(…) makes it.
TEST(ReadFile, APipeIsReadToItsEnd) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::thread writer([&] {
    for (const char* part : {"one ", "two"}) {
      ASSERT_GT(write(ends[1], part, strlen(part)), 0);
      std::this_thread::sleep_for(milliseconds(20));
    }
    close(ends[1]);
  });
  EXPECT_EQ(read_whole(concat("/dev/fd/", ends[0]), kPiped), "one two");
  writer.join();
  EXPECT_THAT(refused(concat("/dev/fd/", ends[0]), kPiped), HasSubstr("it is a pipe that gives nothing"));
  close(ends[0]);
}

TEST(ReadFile, APipeHasATimeAndASize) {
  TemporaryFolder folder;
  std::string path = folder / "pipe";
  mkfifo(path.c_str(), 0600);
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(refused(path, kPiped, milliseconds(50)), HasSubstr("has not come to an end within 0s; use a file"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], std::string(200, 'x').data(), 200), 200);
  EXPECT_THAT(refused(concat("/dev/fd/", ends[0]), kPiped),
              HasSubstr("it has more than 100 B, and a test has at most"));
  for (int end : ends) close(end);
}

// Each rank reads the configuration, and a pipe gives every byte once.
TEST(ReadFile, APipeIsForOneProcess) {
  TemporaryFolder folder;
  std::string path = folder / "pipe";
  mkfifo(path.c_str(), 0600);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  std::string message = refused(path, kPiped);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}) unsetenv(name);
  EXPECT_THAT(message,
              HasSubstr("it is a pipe, which one process can read, and each of the 2 ranks has to; use a file"));
}

// Nothing that is read of a name that somebody gives waits for a pipe's writer.
TEST(ReadFile, EveryReaderRefusesAPipeAndADevice) {
  TemporaryFolder folder;
  Context context;
  auto named = [&](const std::string& name, bool device) {
    fs::remove(folder / name);
    if (device)
      fs::create_symlink("/dev/zero", folder / name);
    else
      mkfifo((folder / name).c_str(), 0600);
    return folder / name;
  };
  std::map<std::string, std::function<void(const std::string& path)>> readers{
      {"config.json", [&](const std::string&) { train::hf::read_model_config(folder.path()); }},
      {"tokenizer.json", [](const std::string& path) { text::load_tokenizer(path); }},
      {"run.json", [&](const std::string&) { train::read_manifest(folder.path()); }},
      {"latest", [&](const std::string&) { train::last_checkpoint(folder.path()); }},
      {"trace.json", [](const std::string& path) { train::read_trace(path); }},
      {"a.safetensors",
       [](const std::string& path) { train::SafetensorsFile(path, train::SafetensorsFile::Access::read); }},
      {"images.gz", [](const std::string& path) { data::read_idx(path, 3); }},
      {"libx.so", [](const std::string& path) { train::Registry().load(path); }}};
  for (const auto& [name, reader] : readers)
    for (bool device : {false, true}) {
      std::string path = named(name, device);
      EXPECT_THAT(error_of([&read = reader, &path] { read(path); }),
                  HasSubstr(concat(name, "': it is no regular file")))
          << name;
    }
  EXPECT_THAT(error_of([&] { train::read_config("/dev/zero", {}, {}); }),
              HasSubstr("the configuration: cannot read '/dev/zero': it is no regular file"));
}

}  // namespace
}  // namespace shardgrad
