#include <shardgrad/dist/bootstrap/mpi_session.h>

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/file_guard.h>

namespace shardgrad::dist {

MpiSession::MpiSession() {
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  SG_CHECK(!finalized,
           "MPI has been ended in this process, by a job before this one; a process that mpirun has started runs ",
           "one job: do all of it within one run_job, or start another process");
  if (initialized) {
    MPI_Query_thread(&provided);
  } else {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    started_here_ = true;
  }
  if (provided < MPI_THREAD_SERIALIZED)
    fail_as(ErrorKind::missing, "MPI offers thread level ", provided,
            ", but calls come from several threads; it must be ", "started with MPI_THREAD_SERIALIZED (",
            MPI_THREAD_SERIALIZED, ") or more");
  MPI_Comm_dup(MPI_COMM_WORLD, &world_);
  int* bound = nullptr;
  int found = 0;
  MPI_Comm_get_attr(world_, MPI_TAG_UB, &bound, &found);
  max_tag_ = found ? *bound : 32767;
}

void MpiSession::renumber(int rank) {
  std::lock_guard lock(mutex_);
  MPI_Comm before = world_;
  MPI_Comm_split(before, 0, rank, &world_);
  MPI_Comm_free(&before);
}

void MpiSession::unlink_segments() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char* name : {"/dev/shm/vader_segment.", "/dev/shm/sm_segment."}) {
      size_t begin = line.find(name);
      if (begin == line.npos) continue;
      std::string path = line.substr(begin, line.find(' ', begin) - begin);
      unlink(path.c_str());
      unlinked_.push_back(path);
    }
}

// MPI_Finalize complains about names that it cannot remove itself.
void MpiSession::finish(const std::function<void()>& meet) {
  FileGuard names(unlinked_);
  for (const std::string& path : unlinked_) std::ofstream(path, std::ios::app);
  meet();
  std::lock_guard lock(mutex_);
  MPI_Comm_free(&world_);
  if (std::exchange(started_here_, false)) MPI_Finalize();
  names.keep();  // another rank's may still be needed
}

// Without finish() the job ends badly, and MPI is left to the operating system.
MpiSession::~MpiSession() = default;

bool MpiSession::all_done(std::vector<MPI_Request>& requests) {
  std::lock_guard lock(mutex_);
  int done = 0;
  MPI_Testall(int(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

void MpiSession::wait(std::vector<MPI_Request>& requests, const std::function<void()>& check, Requests kind) try {
  using namespace std::chrono_literals;
  for (int i = 0; i < 50; ++i) {
    if (all_done(requests)) return;
    sched_yield();
  }
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: this thread's short sleeps are short
  for (auto pause = 10us; !all_done(requests); pause = std::min<std::chrono::microseconds>(pause * 3 / 2, 200us)) {
    check();
    std::this_thread::sleep_for(pause);
  }
} catch (...) {
  if (kind == Requests::collective) throw;  // MPI's, until the job has ended
  std::lock_guard lock(mutex_);
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  throw;
}

}  // namespace shardgrad::dist
