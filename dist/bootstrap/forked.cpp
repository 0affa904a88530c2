#include <shardgrad/dist/bootstrap/forked.h>

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

size_t rounded(size_t bytes) { return (bytes + 127) / 128 * 128; }

class ForkedBootstrap final : public Bootstrap {
 public:
  ForkedBootstrap(ForkedMemory memory, int rank, int size)
      : Bootstrap("forked", rank, size, RankMap(std::vector<std::string>(size_t(size), "here"))),
        memory_(std::move(memory)),
        local_(make_local_bootstrap("forked", memory_.meeting_place(), rank, size)) {
    memory_.here(rank).store(true);
  }
  std::vector<std::string> exchange(const std::string& mine) override { return local_->exchange(mine); }
  std::shared_ptr<void> control_memory(size_t bytes, std::string&) override {
    SG_CHECK(bytes <= memory_.control_bytes(), "this program and the launcher that started it (shardgrad launch --by ",
             "local) are of different versions: its control channel is ", bytes, " bytes long, and the launcher's ",
             memory_.control_bytes(), "; use the launcher of this program's library");
    return memory_.control();
  }

 private:
  ForkedMemory memory_;
  std::unique_ptr<Bootstrap> local_;
};

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  SG_CHECK(text, "SHARDGRAD_JOB_FD is set but ", name, " is not; start the program with shardgrad launch");
  return std::atoi(text);
}

}  // namespace

size_t ForkedMemory::meeting_at(int ranks) { return rounded(size_t(ranks) * sizeof(std::atomic<bool>)); }
size_t ForkedMemory::control_at(int ranks) { return rounded(meeting_at(ranks) + local_bootstrap_bytes(ranks)); }

ForkedMemory::ForkedMemory(int ranks, size_t control_bytes)
    : memory_(SharedMemory::create("shardgrad-job", control_at(ranks) + control_bytes)), ranks_(ranks) {}

static std::string name_of(int descriptor) {
  struct stat file {};
  return fstat(descriptor, &file) == 0 ? concat(descriptor, ':', file.st_ino) : "";
}

std::string ForkedMemory::name() const { return name_of(descriptor()); }

ForkedMemory ForkedMemory::adopt(const std::string& name, int ranks) {
  int descriptor = std::atoi(name.c_str());
  struct stat file {};
  SG_CHECK(name_of(descriptor) == name && fstat(descriptor, &file) == 0 && size_t(file.st_size) > control_at(ranks),
           "SHARDGRAD_JOB_FD is '", name,
           "', which is not the memory of a job here: a process that shardgrad launch has ",
           "started runs one job, and those that it starts itself run none; start them without the variables ",
           "SHARDGRAD_JOB_FD, SHARDGRAD_RANK and SHARDGRAD_WORLD_SIZE, or each with a launcher of its own");
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return ForkedMemory(SharedMemory::adopt(descriptor, size_t(file.st_size)), ranks);
}

std::atomic<bool>& ForkedMemory::here(int rank) const {
  return reinterpret_cast<std::atomic<bool>*>(memory_->data())[rank];
}

std::unique_ptr<Bootstrap> forked_bootstrap_from_environment() {
  const char* name = std::getenv("SHARDGRAD_JOB_FD");
  if (!name) return nullptr;
  int size = environment_number("SHARDGRAD_WORLD_SIZE");
  return std::make_unique<ForkedBootstrap>(ForkedMemory::adopt(name, size), environment_number("SHARDGRAD_RANK"), size);
}

}  // namespace shardgrad::dist
