#include "disk_watch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace shardgrad {
namespace {

namespace fs = std::filesystem;
DiskWatch* watch = nullptr;

std::string path_of(int file) {
  char path[4096];
  ssize_t length = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
  return {path, size_t(std::max<ssize_t>(0, length))};
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Calls the C library's function of this name; before it, what the watch has to say.
template <class Result, class... Args>
Result call(const char* name, Result (*)(Args...), int at, const char* path, std::type_identity_t<Args>... args) {
  auto real = reinterpret_cast<Result (*)(Args...)>(dlsym(RTLD_NEXT, name));
  DiskWatch* disk = DiskWatch::now();
  if (!disk || !disk->has(at, path)) return real(args...);
  std::lock_guard lock(disk->mutex);
  if (int error = disk->before(name)) {
    errno = error;
    return Result(-1);
  }
  return real(args...);
}

DiskWatch* watching(int file) { return watch && watch->has(file, nullptr) ? watch : nullptr; }

}  // namespace

DiskWatch::DiskWatch(std::string folder) : folder_(fs::canonical(folder)) {
  store_all(folder_);
  watch = this;
}

DiskWatch::~DiskWatch() {
  watch = nullptr;
  for (auto [number, file] : kept_) close(file);
}

DiskWatch* DiskWatch::now() { return watch; }

void DiskWatch::end_before(int number, const std::string& lost, const std::string& torn) {
  end_ = number;
  lost_ = lost;
  torn_ = torn;
}

bool DiskWatch::has(int at, const char* path) const {
  std::string whole = path && path[0] == '/' ? path : path && at != AT_FDCWD ? path_of(at) + "/" + path : path_of(at);
  return whole == folder_ || whole.starts_with(folder_ + "/");
}

int DiskWatch::before(const char* call) {
  calls_.push_back(call);
  if (int(calls_.size()) == end_) {
    watch = nullptr;
    leave_stored(lost_, keep(folder_));
    leave_names(torn_, folder_);
    _exit(kEnded);
  }
  if (auto spared = spared_.find(call); spared != spared_.end() && spared->second-- > 0) return 0;
  return error_of(call);
}

int DiskWatch::error_of(const char* call) const {
  if (only_ && *only_ != std::this_thread::get_id()) return 0;
  auto failing = failing_.find(call);
  return failing == failing_.end() ? 0 : failing->second;
}

void DiskWatch::wrote(int file, ssize_t bytes) {
  if (bytes > 0) written_ += size_t(bytes);
  synced_writes_ += (fcntl(file, F_GETFL) & O_DSYNC) != 0;
}

void DiskWatch::synced(int file) { store(path_of(file)); }

// A file's number, which no other file has as long as it is open.
ino_t DiskWatch::keep(const std::string& path) {
  struct stat status {};
  stat(path.c_str(), &status);
  if (!kept_.contains(status.st_ino)) kept_[status.st_ino] = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return status.st_ino;
}

void DiskWatch::store(const std::string& path) {
  Stored stored{.folder = fs::is_directory(path)};
  if (!stored.folder) stored.bytes = contents(path);
  if (stored.folder)
    for (const auto& entry : fs::directory_iterator(path)) {
      stored.names[entry.path().filename()] = keep(entry.path());
      stored_.try_emplace(keep(entry.path()), Stored{.folder = entry.is_directory()});
    }
  stored_[keep(path)] = std::move(stored);
}

void DiskWatch::store_all(const std::string& path) {
  store(path);
  for (const auto& entry : fs::recursive_directory_iterator(path)) store(entry.path());
}

void DiskWatch::leave_stored(const std::string& to, ino_t folder) const {
  fs::create_directories(to);
  for (const auto& [name, number] : stored_.at(folder).names)
    if (const Stored& stored = stored_.at(number); stored.folder)
      leave_stored(to + "/" + name, number);
    else
      std::ofstream(to + "/" + name, std::ios::binary) << stored.bytes;
}

// What was never synced is zeros.
void DiskWatch::leave_names(const std::string& to, const std::string& from) const {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    std::string path = entry.path(), copy = to + "/" + entry.path().filename().string();
    if (entry.is_directory()) {
      leave_names(copy, path);
      continue;
    }
    struct stat status {};
    stat(path.c_str(), &status);
    auto stored = stored_.find(status.st_ino);
    bool synced = stored != stored_.end() && !stored->second.bytes.empty();
    std::ofstream(copy, std::ios::binary)
        << (synced ? stored->second.bytes : std::string(size_t(status.st_size), '\0'));
  }
}

}  // namespace shardgrad

using shardgrad::call, shardgrad::watching;

extern "C" {

ssize_t write(int file, const void* from, size_t count) {
  auto* disk = watching(file);
  return call("write", write, file, nullptr, file, from, disk ? std::min(count, disk->most()) : count);
}

ssize_t pwrite(int file, const void* from, size_t count, off_t at) {
  auto* disk = watching(file);
  auto lock = disk ? std::unique_lock(disk->mutex) : std::unique_lock<std::recursive_mutex>();
  size_t most = disk ? std::min(count, disk->most()) : count;
  ssize_t result = call("pwrite", pwrite, file, nullptr, file, from, most, at);
  if (disk) disk->wrote(file, result);
  return result;
}

int fsync(int file) {
  auto* disk = watching(file);
  auto lock = disk ? std::unique_lock(disk->mutex) : std::unique_lock<std::recursive_mutex>();
  int result = call("fsync", fsync, file, nullptr, file);
  if (disk && result == 0) disk->synced(file);
  return result;
}

int fallocate(int file, int mode, off_t begin, off_t count) {
  return call("fallocate", fallocate, file, nullptr, file, mode, begin, count);
}

int ftruncate(int file, off_t length) noexcept { return call("ftruncate", +ftruncate, file, nullptr, file, length); }

int flock(int file, int operation) noexcept { return call("flock", +flock, file, nullptr, file, operation); }

int rename(const char* from, const char* to) noexcept { return call("rename", +rename, AT_FDCWD, from, from, to); }

int mkdir(const char* path, mode_t mode) noexcept { return call("mkdir", +mkdir, AT_FDCWD, path, path, mode); }

int unlinkat(int folder, const char* name, int flags) noexcept {
  return call("unlinkat", +unlinkat, folder, name, folder, name, flags);
}

// Changes nothing on the disk, so it is not counted. A file whose close fails is closed all the same.
int close(int file) {
  auto real = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "close"));
  auto* disk = watching(file);
  int error = disk ? disk->error_of("close") : 0;
  int result = real(file);
  if (error == 0) return result;
  errno = error;
  return -1;
}

int fstatfs(int file, struct statfs* system) noexcept {
  auto real = reinterpret_cast<int (*)(int, struct statfs*)>(dlsym(RTLD_NEXT, "fstatfs"));
  int result = real(file, system);
  if (auto* disk = watching(file); disk && disk->magic()) system->f_type = disk->magic();
  return result;
}
}
