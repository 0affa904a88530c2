// A program for the tests of whole jobs: `dist_probe SCENARIO` is one rank, well behaved or faulty in a known way;
// `dist_probe --local N …`, `--launch N …` and `--tcp N …` start N of them. With PROBE_MACHINES=M in the environment
// they pretend to be on M machines, which needs root; with PROBE_TCP_MACHINES=M those of --tcp do, dealt out in turn.
// PROBE_DEVICE=cuda gives them that device.

#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <span>
#include <thread>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/launch/job.h>
#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/dist/os/children.h>
#include <shardgrad/dist/os/sockets.h>
#include <shardgrad/dist/transports/transport.h>
#include <shardgrad/dist/watch/control.h>
#include <tests/dist/group/large_counts.h>

namespace shardgrad::dist::testing {
namespace {

using namespace std::chrono_literals;

Work begin_step(ProcessGroup& world, int i) {
  Tensor t = from_vector(std::vector<float>(1000, 1.f), {1000});
  return world.all_reduce(t, Label{concat("layers.", i), "backward"});
}

void step(ProcessGroup& world, int i) { begin_step(world, i).host_wait(); }

/// Ten steps; rank 1 does something else before the sixth.
int steps_with(Job& job, const std::function<void()>& deed) {
  for (int i = 0; i < 10; ++i) {
    if (i == 5 && job.world().rank() == 1) deed();
    step(job.world(), i);
  }
  if (job.world().rank() == 0) std::cout << "ten steps done" << std::endl;
  return 0;
}

/// Rank 1 gets `signal` within the sixth step's collective, where the ranks after it wait too. Rank 0 keeps them there:
/// it computes until the job has failed.
int signal_within_a_collective(Job& job, int signal) {
  ProcessGroup& world = job.world();
  for (int i = 0; i < 5; ++i) step(world, i);
  for (; world.rank() == 0; std::this_thread::sleep_for(10ms)) world.control().check();
  Work sum = begin_step(world, 5);
  if (world.rank() == 1) {
    auto entered = [&] { return world.control().whereabouts_of(1).starts_with("in all_reduce #6 "); };
    for (int i = 0; i < 500 && !entered(); ++i) std::this_thread::sleep_for(10ms);
    std::this_thread::sleep_for(600ms);  // into the transport's own wait, and other machines have heard of it
    SG_CHECK(entered() && !sum.done(), "the signal would come outside: rank 1 is ", world.control().whereabouts_of(1));
    raise(signal);
  }
  sum.host_wait();
  return 0;
}

/// Rank 1 leaves a group by an exception, with collectives unfinished to which the others come a moment later, and
/// before it is told.
int leave_unfinished(Job& job) {
  struct Slow {
    bool is_slow;
    ~Slow() {
      if (is_slow) std::this_thread::sleep_for(300ms);
    }
  } slow{job.world().rank() == 1};
  auto part = job.world().split(0, 0);
  if (job.world().rank() != 1) std::this_thread::sleep_for(100ms);
  Work sum = begin_step(*part, 0);
  if (job.world().rank() == 1) fail("label 11 of sample 5");
  sum.host_wait();
  step(*part, 1);
  return 0;
}

int suite(Job& job) {
  for (const GroupCase& c : group_cases()) {
    c.run(job.world());
    job.world().barrier();
  }
  if (job.world().rank() == 0) std::cout << "suite over " << job.world().kind() << std::endl;
  return ::testing::Test::HasFailure() ? 1 : 0;
}

/// Says how many CPUs the ranks may run on together, and how many ranks on the same one.
int count_cpus(Job& job) {
  std::vector<int32_t> ranks_on(CPU_SETSIZE);
  std::thread([&] {  // as the threads do that a rank starts
    cpu_set_t set;
    sched_getaffinity(0, sizeof(set), &set);
    for (size_t i = 0; i < CPU_SETSIZE; ++i) ranks_on[i] = CPU_ISSET(i, &set);
  })
      .join();
  Tensor sum = from_vector(ranks_on, {CPU_SETSIZE});
  job.world().all_reduce(sum).host_wait();
  ranks_on = sum.to_vector<int32_t>();
  if (job.world().rank() == 0)
    std::cout << CPU_SETSIZE - std::count(ranks_on.begin(), ranks_on.end(), 0) << " CPUs, at most "
              << *std::max_element(ranks_on.begin(), ranks_on.end()) << " ranks on one" << std::endl;
  return 0;
}

void stop_for(int seconds) {
  std::string command = concat("(sleep ", seconds, "; kill -CONT ", getpid(), ") >/dev/null 2>&1 &");
  if (std::system(command.c_str()) == 0) raise(SIGSTOP);
}

int large(Job& job) {
  counts_above_2_to_31_bytes(job.world());
  return ::testing::Test::HasFailure() ? 1 : 0;
}

/// Another process stops all threads of this one for ten seconds, as a debugger does.
void be_debugged() {
  pid_t me = getpid();
  if (fork() == 0) {
    std::vector<pid_t> threads;
    for (const auto& entry : std::filesystem::directory_iterator(concat("/proc/", me, "/task")))
      threads.push_back(std::stoi(entry.path().filename()));
    for (pid_t thread : threads)
      if (ptrace(PTRACE_ATTACH, thread, nullptr, nullptr) == 0) waitpid(thread, nullptr, __WALL);
    std::this_thread::sleep_for(10s);
    for (pid_t thread : threads) ptrace(PTRACE_DETACH, thread, nullptr, nullptr);
    _exit(0);
  }
  std::this_thread::sleep_for(1s);
}

constexpr std::string_view kDeleted = " (deleted)";

/// The files of /dev/shm that this process maps, those without a name marked as the system does.
std::vector<std::string> files_in_dev_shm() {
  std::vector<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (size_t begin = line.find("/dev/shm/"); begin != line.npos) found.push_back(line.substr(begin));
  return found;
}

/// Counts the names that this job would leave behind in /dev/shm.
int count_names_in_dev_shm(Job& job) {
  step(job.world(), 0);
  auto files = files_in_dev_shm();
  auto left = std::ranges::count_if(files, [](const std::string& file) { return !file.ends_with(kDeleted); });
  std::cout << concat("names left: ", left, "\n") << std::flush;
  return 0;
}

/// The job ends well, and the launcher is killed in the moment in which MPI's files have names again, to be removed by
/// MPI. Writes the names to a file: the launcher takes with it what it has not printed yet.
int kill_launcher_at_the_end(Job& job) {
  if (job.world().rank() != 0) return 0;
  std::string last;
  const char* path = std::getenv("PROBE_NAMES");
  SG_CHECK(path, "PROBE_NAMES is not set");
  std::ofstream names(path);
  for (std::string& file : files_in_dev_shm())
    if (file.find("_segment.") != file.npos && file.ends_with(kDeleted)) {
      last = file.substr(0, file.size() - kDeleted.size());
      names << last << std::endl;
    }
  SG_CHECK(!last.empty(), "MPI has no files in /dev/shm here");
  pid_t launcher = getppid();
  if (fork() == 0) {
    for (auto end = std::chrono::steady_clock::now() + 10s; access(last.c_str(), F_OK) != 0;)
      if (std::chrono::steady_clock::now() > end) _exit(1);
    kill(launcher, SIGKILL);
    _exit(0);
  }
  return 0;
}

int until_asked_to_stop(Job& job) {
  if (job.world().rank() == 0) std::cout << "running" << std::endl;
  for (int i = 0;; ++i) {
    Tensor wish = from_vector<int32_t>({job.stop_requested()}, {1});
    job.world().all_reduce(wish).host_wait();
    if (wish.item() > 0) return 75;
    std::this_thread::sleep_for(10ms);
  }
}

/// What an evaluation is, or a loop that does not end: nothing that waits for another rank.
int compute_for_ever(Job& job) {
  if (job.world().rank() == 0) std::cout << "running" << std::endl;
  for (std::atomic<uint64_t> count{0};;) count.fetch_add(1, std::memory_order_relaxed);
}

/// Rank 0 writes losses to a file of its own, as C programs do, and rank 1 fails.
int write_and_fail(Job& job) {
  FILE* file = job.world().rank() == 0 ? std::fopen(std::getenv("PROBE_FILE"), "w") : nullptr;
  if (file) std::fputs("0.25\n", file);
  return steps_with(job, [] { fail("label 11 of sample 5"); });
}

/// Work is still queued on the compute stream, in memory that the ranks share, when the body ends, well or badly.
int leave_work_behind(Job& job, bool well) {
  Tensor t(Storage::make(1 << 20, job.world().memory(), {Category::communication, 0}), 0, {1 << 18}, DType::f32);
  std::span<char> bytes(static_cast<char*>(t.out().data), t.bytes());
  context().backend(context().default_device()).compute().run("late", [bytes] {
    std::this_thread::sleep_for(300ms);
    std::ranges::fill(bytes, char(1));
  });
  job.world().barrier(CollectiveOptions({}, Event()));
  SG_CHECK(well || job.world().rank() == 0, "label 11 of sample 5");
  return 0;
}

/// A file may not grow further.
void write_too_much() {
  rlimit limit{1000, 1000};
  setrlimit(RLIMIT_FSIZE, &limit);
  std::filesystem::path path = std::filesystem::temp_directory_path() / concat("dist_probe-", getpid());
  std::ofstream file(path);
  file << std::string(5000, '.') << std::flush;
  std::filesystem::remove(path);
  SG_CHECK(file, "cannot write: ", std::strerror(errno));
}

/// Ranks as threads, where there is no room for so many.
int too_many_threads() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  rlimit limit{pages * 4096 + (50 << 20), RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  try {
    run_ranks(64, [](ProcessGroup& world) { world.barrier(); });
  } catch (...) {
    std::cout << describe(std::current_exception()) << std::endl;
    return exit_code(std::current_exception(), 64);
  }
  return 0;
}

int rank_in_environment() {
  const char* rank = std::getenv("SHARDGRAD_RANK");
  return rank ? std::atoi(rank) : launched_rank();
}

/// What rank 1 does before it comes to run_job.
void before_the_start(const std::string& name) {
  if (rank_in_environment() != 1) return;
  if (name == "stop-at-start") raise(SIGSTOP);
  if (name == "kill-at-start") {
    std::this_thread::sleep_for(500ms);
    raise(SIGKILL);
  }
  if (name == "slow-start")
    for (auto end = std::chrono::steady_clock::now() + 3s; std::chrono::steady_clock::now() < end;) {
    }
}

/// A thread from before the job. Ends its rank when a signal that it has taken could come to it again.
void take_one_signal() {
  timespec hour{3600, 0};
  if (nanosleep(&hour, nullptr) == 0) return;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  if (!sigismember(&blocked, SIGUSR1)) std::_Exit(3);
}

int report_place(Job& job) {
  const Bootstrap& b = job.bootstrap();
  if (b.ranks().node_count() > 1)
    std::cout << concat("rank ", b.rank(), " is rank ", b.local_rank(), " of ", b.local_size(), " on machine ",
                        b.node_rank(), "\n");
  std::string line = concat("rank ", job.world().rank(), " of ", job.world().size(), " by ", job.bootstrap().name(),
                            " over ", job.world().kind(), ", ", context().threads(), " threads\n");
  std::cout << line << std::flush;
  return 0;
}

const std::map<std::string, std::function<int(Job&)>>& scenarios() {
  static const std::map<std::string, std::function<int(Job&)>> all = {
      {"suite", suite},
      {"place", report_place},
      {"cpus", count_cpus},
      {"large", large},
      {"tiny-heap", report_place},
      {"meet-and-leave", report_place},
      {"names", count_names_in_dev_shm},
      {"debugged", [](Job& job) { return steps_with(job, be_debugged); }},
      {"until-asked", until_asked_to_stop},
      {"compute", compute_for_ever},
      {"write-and-fail", write_and_fail},
      {"good", [](Job& job) { return steps_with(job, [] {}); }},
      {"bad-option", [](Job& job) { return steps_with(job, [] {}); }},
      {"throw", [](Job& job) { return steps_with(job, [] { throw std::runtime_error("label 11 of sample 5"); }); }},
      {"refuse-in-two-lines",
       [](Job& job) { return steps_with(job, [] { fail("two things are wrong:\n  label 11\n  sample 5"); }); }},
      {"refuse", [](Job& job) { return steps_with(job, [] { fail("label 11 of sample 5"); }); }},
      {"kill", [](Job& job) { return signal_within_a_collective(job, SIGKILL); }},
      {"crash", [](Job& job) { return steps_with(job, [] { raise(SIGILL); }); }},
      {"exit", [](Job& job) { return steps_with(job, [] { std::_Exit(0); }); }},
      {"stop", [](Job& job) { return signal_within_a_collective(job, SIGSTOP); }},
      {"stop-3", [](Job& job) { return steps_with(job, [] { stop_for(3); }); }},
      {"slow", [](Job& job) { return steps_with(job, [] { std::this_thread::sleep_for(12s); }); }},
      {"diverge", [](Job& job) { return steps_with(job, [&] {
                                   job.world().barrier(Label{"norm", "step"});
                                 }); }},
      {"leave", [](Job& job) { return job.world().rank() == 1 ? 0 : steps_with(job, [] {}); }},
      {"leave-unfinished", leave_unfinished},
      {"stop-at-start", [](Job& job) { return steps_with(job, [] {}); }},
      {"slow-start", [](Job& job) { return steps_with(job, [] {}); }},
      {"kill-at-start", [](Job& job) { return steps_with(job, [] {}); }},
      {"kill-at-the-end", [](Job& job) { return steps_with(job, [] {}); }},
      {"write-too-much", [](Job& job) { return steps_with(job, write_too_much); }},
      {"exit-all",
       [](Job& job) {
         job.world().barrier();
         std::_Exit(0);
         return 0;
       }},
      {"leave-work-behind", [](Job& job) { return leave_work_behind(job, true); }},
      {"leave-work-behind-and-throw", [](Job& job) { return leave_work_behind(job, false); }},
      {"kill-launcher-at-the-end", kill_launcher_at_the_end},
      {"kill-launcher", [](Job& job) { return steps_with(job, [] { kill(getppid(), SIGKILL); }); }},
  };
  return all;
}

int run_scenario(const std::string& name) {
  if (const char* rank = std::getenv("RANK"); rank && name == "meet-and-leave" && std::atoi(rank) == 1) {
    bootstrap_from_environment();
    return 0;
  }
  return run_job([&](Job& job) { return scenarios().at(name)(job); },
                 [&](const Bootstrap&) {
                   SG_CHECK(name != "bad-option", "unknown option 'lrr'; did you mean 'lr'?");
                   JobOptions options;
                   if (const char* device = std::getenv("PROBE_DEVICE")) options.context.device = parse_device(device);
                   if (const char* device = std::getenv("PROBE_DEVICE_OF_RANK_1"); device && launched_rank() == 1)
                     options.context.device = parse_device(device);
                   if (name == "tiny-heap") options.group.heap_limit = size_t(1) << 20;
                   return options;
                 });
}

/// As a user starts them who has no MPI: each process is told who it is. Rank 0 comes last.
int start_by_tcp(int n, const std::vector<std::string>& arguments) {
  int port = port_of(listen_on("localhost", 0)[0]), code = 0;
  const char* machines = std::getenv("PROBE_TCP_MACHINES");
  Children children([](int) { return true; });
  for (int rank = n - 1; rank >= 0; --rank)
    children.start(
        arguments,
        {concat("RANK=", rank), concat("WORLD_SIZE=", n), "MASTER_ADDR=localhost", concat("MASTER_PORT=", port),
         concat("SHARDGRAD_MACHINE=", machines ? rank % std::atoi(machines) : 0), "SHARDGRAD_RENDEZVOUS_SECONDS=20"},
        SIGKILL);
  while (children.alive() > 0) {
    siginfo_t info;
    waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    std::this_thread::sleep_for(300ms);  // before Linux 6.15 a process that was waited for does not say how it ended
    for (const Children::Ended& ended : children.wait())
      if (code == 0 && WIFEXITED(ended.status)) code = WEXITSTATUS(ended.status);
  }
  return code;
}

/// Ranks of one machine in equal parts on pretended ones, which differ in their names.
void pretend_machines(int machines) {
  int part = launched_rank() * machines / launched_processes();
  std::string name = concat("machine-", part);
  if (unshare(CLONE_NEWUTS) != 0 || sethostname(name.data(), name.size()) != 0)
    throw std::runtime_error("PROBE_MACHINES needs root");
}

int start(const std::string& how, int n, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "/proc/self/exe");
  arguments[0] = std::filesystem::read_symlink(arguments[0]);
  if (how == "--tcp") return start_by_tcp(n, arguments);
  return how == "--local" ? launch_local(n, arguments) : launch(n, arguments);
}

}  // namespace
}  // namespace shardgrad::dist::testing

int main(int argc, char** argv) {
  using namespace shardgrad::dist::testing;
  ::testing::InitGoogleTest(&argc, argv);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() > 2 && arguments[0].starts_with("--"))
    return start(arguments[0], std::stoi(arguments[1]), {arguments.begin() + 2, arguments.end()});
  if (const char* machines = std::getenv("PROBE_MACHINES")) pretend_machines(std::atoi(machines));
  if (arguments.at(0) == "too-many-threads") return too_many_threads();
  before_the_start(arguments.at(0));
  if (std::getenv("PROBE_THREAD")) std::thread(take_one_signal).detach();
  if (const char* file = std::getenv("PROBE_SECOND_JOB")) {
    run_scenario(arguments[0]);
    std::fopen(file, "r+");  // where the memory of the first job was
  }
  int code = run_scenario(arguments.at(0));
  if (std::getenv("PROBE_ASKED_LATE")) raise(SIGUSR1);
  if (arguments.at(0) == "kill-at-the-end" && rank_in_environment() == 1) raise(SIGKILL);
  return code;
}
