#include <shardgrad/python/process.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using dist::ProcessGroup;

// A process that is no rank of a job.
struct Alone {
  Context context;
  std::shared_ptr<dist::Control> control = std::make_shared<dist::Control>(dist::make_private_page(1), 0);
  ProcessGroup world{dist::make_single_transport(control), control, {0}, 1, {}};
  std::vector<std::unique_ptr<ProcessGroup>> groups;

  explicit Alone(const Context::Options& options) : context(options) {}
};

// Of one interpreter there is one in a process, and its threads share what they make.
struct Process {
  std::unique_ptr<Alone> alone;
  std::unique_ptr<RunningJob> job;
  ProcessGroup* pretended = nullptr;
  const char* ended = nullptr;        // why nothing goes on
  std::atomic<bool> exiting = false;  // the interpreter is: what threads are left are not waited for by it
  // Of other threads than the program's own: those that have used the library, those that stay where they are until the
  // process ends, and calls that are being made.
  std::atomic<int> threads = 0, stayed = 0, inside = 0;
  unsigned long main = PyThread_get_thread_ident();
};
Process process;

// Other threads of Python's than the first.
struct OtherThread {
  ContextScope scope;
  explicit OtherThread(Context& context) : scope(context) { ++process.threads; }
  ~OtherThread() { --process.threads; }
};
thread_local std::optional<OtherThread> other_thread;

// The interpreter would end a thread that comes back while it goes, in the middle of C++: it stays, as those of Python
// 3.14 do. Without the GIL.
[[noreturn]] void stay() {
  ++process.stayed;
  while (true) pause();
}

constexpr const char* kFinished = "the job has ended (shardgrad.dist.finish()), and with it what tensors are made with";
constexpr const char* kForked =
    "this process is a fork of one that has computed with several threads, which a fork has not; start "
    "it anew (multiprocessing.get_context('spawn')), or fork before the first tensor";

void check_not_ended() {
  if (process.exiting && other_thread) {
    PyEval_SaveThread();
    stay();
  }
  if (process.ended) other_thread.reset();  // of a context that is gone
  SG_CHECK(!process.ended, process.ended);
}

void begin_alone() {
  SG_CHECK(dist::started_alone(), "a launcher has started this process as one of several; call shardgrad.dist.init() ",
           "before the first tensor, so that they find each other");
  SG_CHECK(PyThread_get_thread_ident() == process.main, "the first tensor is made by a thread; make one in the ",
           "program's own thread before, or call shardgrad.dist.init() there");
  process.alone = std::make_unique<Alone>(Context::Options());
}

}  // namespace

void enter_context() {
  if (process.ended) [[unlikely]]
    check_not_ended();
  if (Context::current()) [[likely]]
    return;
  if (!has_context()) return begin_alone();
  other_thread.emplace(process.job ? process.job->context() : process.alone->context);
}

bool Wait::enter_counted() {
  enter_context();
  if (!other_thread) [[likely]]
    return false;
  ++process.inside;
  if (process.ended) {  // in between
    --process.inside;
    check_not_ended();
  }
  return true;
}
void Wait::leave_counted() {
  --process.inside;
  if (process.exiting) stay();
}

bool has_context() { return process.job || process.alone; }
bool has_job() { return process.job != nullptr; }

ProcessGroup& world() {
  enter_context();
  if (process.pretended) return *process.pretended;
  SG_CHECK(has_context(), "there is no group of ranks here");
  return process.job ? process.job->job().world() : process.alone->world;
}

PretendedWorld::PretendedWorld(ProcessGroup& group) {
  SG_CHECK(!process.pretended, "plan: a plan is being made");
  process.pretended = &group;
}
PretendedWorld::~PretendedWorld() { process.pretended = nullptr; }

void forked() {
  if (!has_context()) return;
  process.ended = kForked;
  static_cast<void>(process.job.release());  // the parent's
  static_cast<void>(process.alone.release());
}

bool stop_requested() {
  enter_context();
  return process.job && process.job->job().stop_requested();
}

ProcessGroup& keep(std::unique_ptr<ProcessGroup> group) {
  ProcessGroup& kept = *group;
  if (process.job)
    process.job->keep(std::move(group));
  else
    process.alone->groups.push_back(std::move(group));
  return kept;
}

bool begin(const dist::JobOptions& options) {
  check_not_ended();
  SG_CHECK(!process.job, "dist.init: this process has joined its job before");
  SG_CHECK(PyThread_get_thread_ident() == process.main, "dist.init: a rank is a process, and this is one of its ",
           "threads; start the ranks with `shardgrad launch -n N python program.py` or mpirun, and call it in the ",
           "program's own thread");
  SG_CHECK(!process.alone, "dist.init: tensors have been made before, with other options; call it first");
  bool waits_for_a_launcher = std::getenv("SLURM_NTASKS") && std::string(std::getenv("SLURM_NTASKS")) != "1";
  if (dist::started_alone() && !waits_for_a_launcher) {
    process.alone = std::make_unique<Alone>(options.context);
    return true;
  }
  auto job = std::make_unique<RunningJob>(options);
  if (!job->begun()) return false;
  process.job = std::move(job);
  return true;
}

// Threads that go on are refused from here on; what they are in the middle of ends first, if it does in a moment.
static void wait_for_other_threads() {
  auto goes_on = [](int i) {
    bool will_stay = process.exiting && process.stayed < process.threads && i < 150;  // at its next call
    return i < 500 && (process.inside > 0 || will_stay);
  };
  for (int i = 0; goes_on(i); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void exiting() { process.exiting = true; }

int end(std::exception_ptr error) {
  if (!process.ended && has_context()) process.ended = kFinished;
  static_cast<void>(process.alone.release());  // goes with the process: threads and graphs may hold tensors
  if (!error) wait_for_other_threads();
  if (!process.job) return 0;
  std::unique_ptr<RunningJob> job = std::move(process.job);
  return job->finish(std::move(error));
}

}  // namespace shardgrad::python
