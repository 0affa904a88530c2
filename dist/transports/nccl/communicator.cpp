#include <shardgrad/dist/transports/nccl/communicator.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include <shardgrad/core/error.h>
#include <shardgrad/core/thread.h>
#include <shardgrad/dist/transports/nccl/nccl.h>

namespace shardgrad::dist {

using namespace std::chrono_literals;
using Lock = std::lock_guard<std::mutex>;

static int version_number() {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}
static std::string version_text(int version = version_number()) {
  return concat("NCCL ", version / 10000, ".", version % 10000 / 100, ".", version % 100);
}
std::string nccl_library() { return version_text(); }

// Gathers and reductions are two groups on one GPU. Older ones do not know NCCL_LAUNCH_ORDER_IMPLICIT
// (nccl_settings.cpp), and may start the groups' kernels in another order on each GPU: a deadlock.
static constexpr int kOldestVersion = 22600;
// NCCL keeps what it promised within a major version: a library may be newer than the header that this was compiled
// with, and lacks what the header has where it is older.
static std::string why_not(int loaded, int compiled) {
  if (loaded < kOldestVersion)
    return concat(version_text(loaded),
                  " is too old: 2.26 or newer is needed, since older ones do not keep the order of ",
                  "several groups on a GPU; put a newer libnccl.so.2 first on LD_LIBRARY_PATH");
  if (loaded / 10000 == compiled / 10000 && loaded / 100 >= compiled / 100) return "";
  return concat(version_text(loaded), " is loaded, but this build was made with ", version_text(compiled), ", and ",
                loaded < compiled ? "an older one lacks what that has" : "another major version has other calls",
                "; put the libnccl.so.2 of the build first on LD_LIBRARY_PATH, or build again with the header of the ",
                "one that is loaded");
}
std::string why_not_nccl() {
  std::string why = why_not(version_number(), NCCL_VERSION_CODE);
  if (why.empty()) return why;
  return concat(why, ", or send by way of host memory, slow, with SHARDGRAD_GROUP=shared_memory (one machine) or ",
                "two_level (several)");
}

// NCCL says of a machine without a driver only that a CUDA call failed.
static std::string cuda_reason() {
  int count = 0;
  cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return status == cudaSuccess ? "" : concat("; CUDA says: ", cudaGetErrorString(status));
}

std::string NcclCommunicator::unique_id() {
  ncclUniqueId id;
  ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess)
    fail_as(ErrorKind::missing, version_text(), " cannot make an id for the job: ", ncclGetErrorString(result), " (",
            ncclGetLastError(nullptr), "); NCCL_DEBUG=INFO tells more, NCCL_SOCKET_IFNAME chooses the network");
  return std::string(id.internal, sizeof(id.internal));
}

NcclCommunicator::NcclCommunicator(const std::string& id, int size, int rank, int gpu, const Check& check) : gpu_(gpu) {
  if (std::string why = why_not_nccl(); !why.empty()) fail_as(ErrorKind::missing, why);
  ncclUniqueId unique;
  SG_ASSERT(id.size() == sizeof(unique.internal), "an NCCL id of ", id.size(), " bytes");
  std::memcpy(unique.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  use_gpu();
  ncclResult_t result = ncclCommInitRankConfig(&comm_, size, unique, rank, &config);
  try {
    result = completed(result, check);
  } catch (...) {
    cancel();
    throw;
  }
  if (result == ncclSuccess) return;
  std::string reason = concat(describe(result), cuda_reason());
  cancel();
  fail_as(ErrorKind::missing, version_text(), " cannot connect rank ", rank, " of ", size, " on GPU ", gpu_, ": ",
          reason, "; NCCL_DEBUG=INFO tells more");
}

NcclCommunicator::~NcclCommunicator() { cancel(); }

void NcclCommunicator::use_gpu() const { cudaSetDevice(gpu_); }

ncclResult_t NcclCommunicator::state() {
  Lock lock(mutex_);
  if (!comm_) return ncclInvalidUsage;
  ncclResult_t now = ncclSuccess, asked = ncclCommGetAsyncError(comm_, &now);
  return asked != ncclSuccess ? asked : now;
}

void wait_for_cause(const Check& check) {
  for (auto end = std::chrono::steady_clock::now() + 3s; std::chrono::steady_clock::now() < end;) {
    check();
    std::this_thread::sleep_for(10ms);
  }
}

// A call whose result is ncclInProgress goes on in the background; until it is over no other may be made.
ncclResult_t NcclCommunicator::completed(ncclResult_t result, const Check& check) {
  for (int polls = 0; result == ncclInProgress; ++polls) {
    if (polls > 100) std::this_thread::sleep_for(100us);
    check();
    result = state();
  }
  return result;
}

void NcclCommunicator::run(const char* what, const std::function<ncclResult_t(ncclComm_t)>& call, const Check& check) {
  ncclResult_t result = ncclInvalidUsage;
  {
    Lock lock(mutex_);
    use_gpu();
    if (comm_) result = call(comm_);
  }
  try {
    result = completed(result, check);
  } catch (...) {
    cancel();  // what NCCL does in the background uses memory and streams that go now
    throw;
  }
  if (result == ncclSuccess) return;
  if (result != ncclInvalidArgument) wait_for_cause(check);
  fail_as(ErrorKind::rank_failed, version_text(), " failed in ", what, ": ", describe(result));
}

std::string NcclCommunicator::describe(ncclResult_t result) {
  Lock lock(mutex_);
  std::string more = comm_ ? ncclGetLastError(comm_) : "";
  return more.empty() ? ncclGetErrorString(result) : concat(ncclGetErrorString(result), " (", more, ")");
}

// The thread that holds the lock may be waiting for the very kernels that abort ends: it is not waited for long.
void NcclCommunicator::cancel() noexcept {
  bool locked = mutex_.try_lock();
  for (int i = 0; i < 2000 && !locked; ++i) {
    std::this_thread::sleep_for(1ms);
    locked = mutex_.try_lock();
  }
  try {
    let_go(ncclCommAbort, 1s, [] {});
  } catch (...) {  // no thread to be had
  }
  if (locked) mutex_.unlock();
}

// Abort and destroy return only when the other ranks of this machine have come to theirs, which may wait for this rank
// elsewhere; what they do on the GPU is done at once. So a thread does them, and is left behind when it takes too long.
void NcclCommunicator::let_go(ncclResult_t (*end)(ncclComm_t), std::chrono::milliseconds limit, const Check& check) {
  ncclComm_t comm = std::exchange(comm_, nullptr);
  if (!comm) return;
  auto task = std::make_shared<std::packaged_task<void()>>([end, comm, gpu = gpu_] {
    cudaSetDevice(gpu);
    end(comm);
  });
  std::future<void> ended = task->get_future();
  Thread([task] { (*task)(); }).detach();
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (ended.wait_for(1ms) != std::future_status::ready && std::chrono::steady_clock::now() < deadline) check();
}

bool NcclCommunicator::connected() {
  Lock lock(mutex_);
  return comm_ != nullptr;
}

void NcclCommunicator::finish(const Check& check) {
  if (!connected()) return;
  try {
    auto deadline = std::chrono::steady_clock::now() + 5s;
    auto patience = [&] {
      check();
      if (std::chrono::steady_clock::now() > deadline) fail("the other ranks do not finish");
    };
    run("finishing", ncclCommFinalize, patience);
    Lock lock(mutex_);
    let_go(ncclCommDestroy, 5s, check);
  } catch (...) {  // whatever ends the job: those who wait for this rank learn it from the control channel
    cancel();
  }
}

void try_nccl(int gpu) {
  NcclCommunicator(NcclCommunicator::unique_id(), 1, 0, gpu, [] {}).finish([] {});
}

}  // namespace shardgrad::dist
