#include "tests/fake_nccl/fake_nccl.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/fake_cuda/fake_cuda.h"

namespace fake_nccl {
namespace {

struct Message {
  int peer;
  const void* from;  // of a send
  void* to;          // of a receive
  size_t bytes;
};

/// What one rank asks for.
struct Wish {
  std::string op;  // equal on all ranks, or they wait for ever
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  std::vector<Message> messages;
};

struct Meeting {
  std::map<int, Wish> wishes;
  bool done = false;
};

}  // namespace

/// The ranks that share a unique id.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0, joined = 0, ended = 0;
  std::map<uint64_t, Meeting> meetings;  // by sequence
};

struct Communicator {
  std::shared_ptr<Clique> clique;
  int rank, size, device;
  uint64_t calls = 0;
  std::atomic<bool> aborted{false};
  std::atomic<bool> busy{false};  // a call goes on in the background
  std::atomic<int> asked{0};
};

namespace {

constexpr int kVersion = 22809;
struct State {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::map<std::string, int> calls;
  std::map<std::string, std::pair<int, ncclResult_t>> failures;
  std::map<int, ncclResult_t> broken;  // by rank
  int ids = 0, alive = 0, aborted = 0, version = kVersion;
};
State& state() {
  static State state;
  return state;
}

ncclResult_t enter(const char* function) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  int count = ++s.calls[function];
  auto failure = s.failures.find(function);
  return failure != s.failures.end() && failure->second.first == count ? failure->second.second : ncclSuccess;
}

size_t size_of(ncclDataType_t type) { return type == ncclUint8 ? 1 : type == ncclInt32 || type == ncclFloat32 ? 4 : 8; }

// In the tree order of the other transports: one order is as good as another here, and tests can compare bits.
template <class T> void sum(std::vector<const T*> parts, T* out, size_t count) {
  std::vector<T> level(parts.size());
  for (size_t i = 0; i < count; ++i) {
    size_t n = parts.size();
    for (size_t k = 0; k < n; ++k) level[k] = parts[k][i];
    for (; n > 1; n = (n + 1) / 2)
      for (size_t k = 0; k < n; k += 2) level[k / 2] = k + 1 < n ? T(level[k] + level[k + 1]) : level[k];
    out[i] = level[0];
  }
}

void sum_parts(const std::vector<const std::byte*>& parts, void* out, size_t count, ncclDataType_t type) {
  auto as = [&]<class T>(T* typed) {
    std::vector<const T*> inputs;
    for (const std::byte* part : parts) inputs.push_back(reinterpret_cast<const T*>(part));
    sum(inputs, typed, count);
  };
  if (type == ncclUint8) as(static_cast<uint8_t*>(out));
  if (type == ncclInt32) as(static_cast<int32_t*>(out));
  if (type == ncclInt64) as(static_cast<int64_t*>(out));
  if (type == ncclFloat32) as(static_cast<float*>(out));
  if (type == ncclFloat64) as(static_cast<double*>(out));
}

const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }

// Does what all ranks have asked for. Results are made aside first: buffers may overlap as NCCL allows.
using Perform = std::function<void(Meeting&)>;

void perform_messages(Meeting& meeting) {
  for (auto& [rank, wish] : meeting.wishes) {
    std::map<int, size_t> taken;  // messages from each peer, in order
    for (Message& receive : wish.messages) {
      if (!receive.to) continue;
      size_t skip = taken[receive.peer]++;
      for (const Message& send : meeting.wishes[receive.peer].messages)
        if (send.from && send.peer == rank && skip-- == 0) std::memmove(receive.to, send.from, receive.bytes);
    }
  }
}

// One rank's part, in its stream: comes, waits for the others, and the last one does the work.
void meet(Communicator* comm, uint64_t sequence, Wish wish, const Perform& perform) {
  Clique& clique = *comm->clique;
  std::unique_lock lock(clique.mutex);
  Meeting& meeting = clique.meetings[sequence];
  meeting.wishes[comm->rank] = std::move(wish);
  bool all = int(meeting.wishes.size()) == comm->size;
  for (auto& [rank, other] : meeting.wishes) all = all && other.op == meeting.wishes[comm->rank].op;
  if (all) {
    perform(meeting);
    meeting.done = true;
    clique.changed.notify_all();
  }
  clique.changed.wait(lock, [&] { return meeting.done || comm->aborted; });
}

struct Group {
  int depth = 0;
  std::vector<Message> messages;
  Communicator* comm = nullptr;
  cudaStream_t stream = nullptr;
};
thread_local Group group;

ncclResult_t queue(Communicator* comm, cudaStream_t stream, Wish wish, Perform perform) {
  if (comm->busy || comm->aborted) return ncclInvalidUsage;
  comm->busy = true;  // seen to be over by the second question
  comm->asked = 0;
  fake_cuda::launch(stream, [=, sequence = ++comm->calls] { meet(comm, sequence, wish, perform); });
  return ncclInProgress;
}

}  // namespace

void reset() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.calls.clear();
  s.failures.clear();
  s.broken.clear();
  s.alive = s.aborted = 0;
  s.version = kVersion;
}
void set_version(int version) {
  std::lock_guard lock(state().mutex);
  state().version = version;
}
int alive() {
  std::lock_guard lock(state().mutex);
  return state().alive;
}
int aborted() {
  std::lock_guard lock(state().mutex);
  return state().aborted;
}
void fail_call(const std::string& function, int nth, ncclResult_t error) {
  std::lock_guard lock(state().mutex);
  state().failures[function] = {state().calls[function] + nth, error};
}
void break_connections_of(int rank, ncclResult_t error) {
  std::lock_guard lock(state().mutex);
  state().broken[rank] = error;
}

}  // namespace fake_nccl

using namespace fake_nccl;

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError   ? "unhandled system error"
         : result == ncclRemoteError ? "remote process exited"
                                     : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return "pretended"; }
ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard lock(state().mutex);
  *version = state().version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  std::lock_guard lock(state().mutex);
  std::memcpy(id->internal, &++state().ids, sizeof(int));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  ncclResult_t result = enter("ncclCommInitRankConfig");
  if (result != ncclSuccess) return result;
  if (config->blocking != 0) return ncclInvalidArgument;
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto& clique = s.cliques[std::string(id.internal, sizeof(id.internal))];
  if (!clique) clique = std::make_shared<Clique>();
  *comm = new Communicator{clique, rank, size, fake_cuda::current_device()};
  ++s.alive;
  std::lock_guard inside(clique->mutex);
  clique->size = size;
  ++clique->joined;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* now) {
  {
    std::lock_guard lock(state().mutex);
    auto broken = state().broken.find(comm->rank);
    if (broken != state().broken.end()) {
      *now = broken->second;
      return ncclSuccess;
    }
  }
  std::lock_guard lock(comm->clique->mutex);
  if (++comm->asked > 1) comm->busy = false;
  bool waits = comm->clique->joined < comm->size || comm->busy;
  *now = waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->busy = true;
  comm->asked = 0;
  return ncclInProgress;
}

// As NCCL's, it ends what waits on the GPU at once, and returns when the other ranks of the machine have come to
// theirs. Freed at the end of the process only: streams may still hold it.
static ncclResult_t end(ncclComm_t comm, bool abort) {
  static std::vector<std::unique_ptr<Communicator>> ended;
  {
    std::lock_guard lock(state().mutex);
    ended.emplace_back(comm);
    --state().alive;
    state().aborted += abort;
  }
  Clique& clique = *comm->clique;
  std::unique_lock lock(clique.mutex);
  comm->aborted = true;
  ++clique.ended;
  clique.changed.notify_all();
  clique.changed.wait(lock, [&] { return clique.ended == clique.joined; });
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return end(comm, false); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return end(comm, true); }

ncclResult_t ncclGroupStart() {
  group = {};
  group.depth = 1;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Group ended = std::exchange(group, {});
  if (!ended.comm) return ncclSuccess;
  return queue(ended.comm, ended.stream, {"messages", nullptr, nullptr, 0, ended.messages}, perform_messages);
}
static ncclResult_t add_message(const char* function, Message message, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = enter(function);
  if (result != ncclSuccess) return result;
  if (group.depth == 0) return ncclInvalidUsage;
  group.messages.push_back(message);
  group.comm = comm;
  group.stream = stream;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message("ncclSend", {peer, in, nullptr, count * size_of(type)}, comm, stream);
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add_message("ncclRecv", {peer, nullptr, out, count * size_of(type)}, comm, stream);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclResult_t result = enter("ncclAllGather");
  if (result != ncclSuccess) return result;
  size_t one = count * size_of(type);
  for (int peer = 0; peer < comm->size && group.depth > 0; ++peer) {
    group.messages.push_back({peer, in, nullptr, one});
    group.messages.push_back({peer, nullptr, static_cast<std::byte*>(out) + size_t(peer) * one, one});
    group.comm = comm;
    group.stream = stream;
  }
  if (group.depth > 0) return ncclSuccess;
  return queue(comm, stream, {"gather" + std::to_string(one), in, out, one, {}}, [one](Meeting& meeting) {
    for (auto& [to, reader] : meeting.wishes)
      for (auto& [from, writer] : meeting.wishes)
        std::memmove(static_cast<std::byte*>(reader.out) + size_t(from) * one, writer.in, one);
  });
}

static ncclResult_t reduce(const char* function, bool scatter, const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  ncclResult_t result = enter(function);
  if (result != ncclSuccess) return result;
  size_t one = count * size_of(type), all = scatter ? one * size_t(comm->size) : one;
  return queue(comm, stream, {function + std::to_string(one), in, out, one, {}}, [=](Meeting& meeting) {
    std::vector<std::vector<std::byte>> copies;
    for (auto& [rank, wish] : meeting.wishes) copies.emplace_back(bytes(wish.in), bytes(wish.in) + all);
    for (auto& [rank, wish] : meeting.wishes) {
      std::vector<const std::byte*> parts;
      for (auto& copy : copies) parts.push_back(copy.data() + (scatter ? size_t(rank) * one : 0));
      sum_parts(parts, wish.out, count, type);
    }
  });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return reduce("ncclReduceScatter", true, in, out, count, type, comm, stream);
}
ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return reduce("ncclAllReduce", false, in, out, count, type, comm, stream);
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  ncclResult_t result = enter("ncclBroadcast");
  if (result != ncclSuccess) return result;
  size_t one = count * size_of(type);
  std::string op = "broadcast" + std::to_string(one) + "/" + std::to_string(root);
  return queue(comm, stream, {op, in, out, one, {}}, [=](Meeting& meeting) {
    for (auto& [rank, wish] : meeting.wishes) std::memmove(wish.out, meeting.wishes[root].in, one);
  });
}
