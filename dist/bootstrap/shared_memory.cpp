#include <shardgrad/dist/bootstrap/shared_memory.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

template <class... Parts> [[noreturn]] static void fail_system(const Parts&... parts) {
  fail_as(ErrorKind::missing, "shared memory: ", parts..., ": ", std::strerror(errno));
}

SharedMemory::SharedMemory(int descriptor, size_t bytes) : descriptor_(descriptor), bytes_(bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (data == MAP_FAILED) {
    int reason = errno;
    close(descriptor);
    errno = reason;
    fail_system(bytes, " bytes of address space cannot be mapped");
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  madvise(data, bytes, MADV_DONTDUMP);  // a core file would hold all of it, touched or not
  data_ = static_cast<std::byte*>(data);
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close(descriptor_);
}

std::shared_ptr<SharedMemory> SharedMemory::create(const char* name, size_t bytes) {
  int descriptor = memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0) fail_system("memfd_create");
  if (ftruncate(descriptor, off_t(bytes)) != 0) {
    int reason = errno;
    close(descriptor);
    errno = reason;
    fail_system("a file of ", bytes, " bytes");
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::open(const std::string& path, size_t bytes) {
  int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail_system(path);
  struct stat file {};
  if (fstat(descriptor, &file) != 0 || size_t(file.st_size) != bytes) {
    close(descriptor);
    fail("shared memory: ", path, " has ", file.st_size, " bytes, not ", bytes);
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::adopt(int descriptor, size_t bytes) {
  return std::shared_ptr<SharedMemory>(new SharedMemory(descriptor, bytes));
}

std::string SharedMemory::path() const { return concat("/proc/", getpid(), "/fd/", descriptor_); }

bool SharedMemory::back(size_t offset, size_t bytes) const {
  int error;
  do error = posix_fallocate(descriptor_, off_t(offset), off_t(bytes));
  while (error == EINTR);
  if (error != 0) return false;
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers and kernels lack
  size_t page = size_t(sysconf(_SC_PAGESIZE)), begin = offset / page * page;
  madvise(data_ + begin, offset + bytes - begin, kPopulateWrite);  // saves the page faults
  return true;
}

std::shared_ptr<SharedMemory> share_memory(Bootstrap& bootstrap, const char* name, size_t bytes, std::string& reason) {
  std::shared_ptr<SharedMemory> memory;
  std::string path, error;
  int first = bootstrap.ranks().global_rank(bootstrap.node_rank(), 0);
  if (bootstrap.rank() == first) try {
      memory = SharedMemory::create(name, bytes);
      path = memory->path();
    } catch (const Error& e) {
      error = e.what();
    }
  path = bootstrap.exchange(path)[size_t(first)];
  if (bootstrap.rank() != first && !path.empty()) try {
      memory = SharedMemory::open(path, bytes);
    } catch (const Error& e) {
      error = e.what();
    }
  if (error = bootstrap.any_error(error); !error.empty()) {
    reason = error;
    return nullptr;
  }
  bootstrap.hold(memory);
  return memory;
}

}  // namespace shardgrad::dist
