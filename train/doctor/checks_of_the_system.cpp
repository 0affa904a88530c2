#include <algorithm>
#include <sstream>

#include <shardgrad/core/context.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/os/machine.h>
#include <shardgrad/kernels/choices.h>
#include <shardgrad/train/doctor/checks.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train::doctor {
namespace {

std::string readable(uint64_t bytes) { return format_bytes(int64_t(bytes)); }

std::string so_many(int count, const char* what) { return concat(count, " ", what, count == 1 ? "" : "s"); }

// A number that a file has as its text; nothing for "max".
std::optional<uint64_t> number_in(const Machine& m, const std::string& path) {
  std::istringstream text(m.read(path).value_or(""));
  uint64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

// The least that a group of this process, or one above it, allows: of cgroups of version 2, and of 1.
uint64_t limit_of_groups(const Machine& m, const std::string& controller, const char* file, const char* older) {
  uint64_t least = kUnlimited;
  std::istringstream groups(m.read("/proc/self/cgroup").value_or("0::/"));
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string names = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!names.empty() && names != controller) continue;
    std::string root = names.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    while (true) {
      std::string folder = root + (path == "/" ? "" : path);
      least = std::min(least, number_in(m, folder + "/" + (names.empty() ? file : older)).value_or(kUnlimited));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  return least;
}

// "MemTotal:       24683468 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> memory_of(const Machine& m, const std::string& name) {
  std::istringstream lines(m.read("/proc/meminfo").value_or(""));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name + ":")) return std::strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  return {};
}

}  // namespace

uint64_t allowed_memory(const Machine& m) {
  uint64_t limit = limit_of_groups(m, "memory", "memory.max", "memory.limit_in_bytes");
  return std::min(memory_of(m, "MemTotal").value_or(kUnlimited), limit);
}

Findings check_build(const Machine& m) {
  std::string parts, lacks;
  auto add = [&](const char* name, const std::string& version) {
    std::string& to = version.empty() || version == "none" ? lacks : parts;
    to += concat(to.empty() ? "" : ", ", name, &to == &parts ? " " + version : "");
  };
  add("oneDNN", m.build.onednn);
  add("OpenMP", m.build.openmp);
  add("PCRE2", m.build.pcre2);
  add("CUDA", m.build.cuda);
  std::string mpi = m.mpi.empty() ? "no MPI" : m.mpi;
  return {{"build", State::ok,
           concat(m.build.compiler, "; ", mpi, parts.empty() ? "" : ", ", parts, lacks.empty() ? "" : "; without ",
                  lacks)}};
}

Findings check_cpu(const Machine& m) {
  std::string cores = concat(m.cores, " of ", so_many(m.cpus, "core"), " may be used");
  const char* wish = m.variable(kIsaChoice.variable);
  const auto& sets = kIsaChoice.words;  // from the slowest on
  bool lower = wish && *wish && std::ranges::find(sets, wish) < std::ranges::find(sets, m.isa);
  if (lower)
    return {{"CPU", State::note, concat(m.isa, ", but SHARDGRAD_ISA holds kernels down to ", wish, "; ", cores),
             "unset SHARDGRAD_ISA"}};
  return {{"CPU", State::ok, concat(m.isa, "; ", cores)}};
}

Findings check_ranks(const Machine& m) {
  int threads = wanted_threads(0, m.variable("OMP_NUM_THREADS"), m.cores / m.ranks);
  std::string what =
      concat(so_many(m.ranks, "rank"), " × ", so_many(threads, "thread"), " on ", so_many(m.cores, "core"));
  if (m.ranks * threads <= m.cores) return {{"ranks", State::ok, what}};
  if (m.ranks <= m.cores)
    return {{"ranks", State::note, concat(what, " (OMP_NUM_THREADS): they wait for each other"),
             concat("OMP_NUM_THREADS=", m.cores / m.ranks, ", or launch --threads ", m.cores / m.ranks)}};
  return {{"ranks", State::note, concat(what, ": slower than ", so_many(m.cores, "rank"), " would be"),
           concat("launch -n ", m.cores, "; bare mpirun refuses more ranks than cores without --oversubscribe, launch ",
                  "adds it")}};
}

Findings check_memory(const Machine& m) {
  std::optional<uint64_t> total = memory_of(m, "MemTotal"), free = memory_of(m, "MemAvailable");
  if (!total || !free) return {};  // of /proc, which another check is about
  uint64_t limit = allowed_memory(m);
  std::string what = concat(readable(*free), " of ", readable(*total), " free");
  if (limit < *total) what += concat(", ", readable(limit), " allowed to this container or job");
  uint64_t each = std::min(*free, limit) / uint64_t(m.ranks);
  what += concat(": ", readable(each), " a rank");
  constexpr uint64_t kLittle = uint64_t(256) << 20;
  if (each >= kLittle) return {{"memory", State::ok, what}};
  return {
      {"memory", State::note, what, "fewer ranks, or more memory; `shardgrad plan` says what a configuration needs"}};
}

Findings check_shared_memory(const Machine& m) {
  Findings findings;
  if (m.heap_fault.empty()) {
    findings.push_back({"sharing", State::ok, "the ranks of this machine can share memory"});
  } else {
    std::string remedy = "let memfd_create be called, or make room in memory";
    if (m.limits.address_bytes != kUnlimited) remedy = "ulimit -v unlimited: address space is reserved for all memory";
    if (!m.mpi.empty()) remedy += "; until then MPI connects the ranks, slower: launch --by mpi";
    if (m.limits.file_bytes != kUnlimited) remedy = "ulimit -f unlimited: shared memory counts as a file";
    if (!m.proc_fault.empty()) remedy = dist::kMountProc;
    findings.push_back({"sharing", State::problem, m.heap_fault, remedy});
  }
  constexpr uint64_t kOfOpenMpi = uint64_t(4) << 20;  // a rank's; btl_vader_segment_size
  if (m.mpi.starts_with("Open MPI") && m.dev_shm_bytes.value_or(0) < kOfOpenMpi * uint64_t(m.ranks))
    findings.push_back(
        {"sharing", State::note,
         concat("Open MPI's own shared memory needs about ", readable(kOfOpenMpi * uint64_t(m.ranks)), " in /dev/shm, ",
                m.dev_shm_bytes ? readable(*m.dev_shm_bytes) + " are free" : "which is not there",
                "; without it what MPI sends goes by TCP"),
         "docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm"});
  return findings;
}

Findings check_temporary_folder(const Machine& m) {
  if (m.temporary_fault.empty()) return {{"TMPDIR", State::ok, concat(m.temporary_folder, " can be written")}};
  bool needed = !m.mpi.empty();
  return {{"TMPDIR", needed ? State::problem : State::note,
           concat("nothing can be made in ", m.temporary_folder, ": ", m.temporary_fault,
                  needed ? "; mpirun needs it" : ""),
           concat("export TMPDIR=FOLDER, one on a local disk that you may write",
                  needed ? "; or start without mpirun: launch --by local" : "")}};
}

Findings check_processes(const Machine& m) {
  if (!m.proc_fault.empty())
    return {{"/proc", State::problem, concat("/proc/self/exe cannot be read: ", m.proc_fault), dist::kMountProc}};
  Findings findings;
  if (!m.pidfd)
    findings.push_back({"/proc", State::note,
                        "the system has no pidfd_open: that a rank died is seen by its silence, seconds later",
                        "a kernel of Linux 5.3 or newer, and a container that lets it be called"});
  if (!m.reads_other_processes && m.mpi.starts_with("Open MPI"))
    findings.push_back({"/proc", State::note,
                        "processes may not read each other's memory: Open MPI copies twice where MPI moves the bytes",
                        "docker run --cap-add=SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0"});
  if (findings.empty()) findings.push_back({"/proc", State::ok, "mounted; ranks see each other end"});
  return findings;
}

Findings check_limits(const Machine& m) {
  // As found by lowering them: mpirun hangs or ends without a word with fewer files, or with less stack.
  uint64_t files = 32 + 4 * uint64_t(m.ranks), least_stack = uint64_t(256) << 10;
  uint64_t processes = 16 + uint64_t(m.ranks) * 16;
  uint64_t tasks = limit_of_groups(m, "pids", "pids.max", "pids.max");
  Findings findings;
  auto add = [&](State state, const std::string& what, const std::string& remedy) {
    findings.push_back({"limits", state, what, remedy});
  };
  if (m.limits.files < files)
    add(State::problem,
        concat("a process may open ", m.limits.files, " files; ", so_many(m.ranks, "rank"), " need about ", files),
        "ulimit -n 1024; where that is refused: LimitNOFILE, limits.conf, docker run --ulimit nofile=1024");
  if (m.limits.stack_bytes < least_stack)
    add(State::problem, concat("stacks may have ", readable(m.limits.stack_bytes), ": threads and mpirun need 256 KiB"),
        "ulimit -s 8192");
  if (!m.root && m.limits.processes < processes)
    add(State::problem, concat("you may have ", m.limits.processes, " processes and threads; this needs ", processes),
        "ulimit -u 4096; where that is refused: limits.conf");
  if (tasks < processes)
    add(State::problem, concat("this container or job may have ", tasks, " threads; this needs ", processes),
        "docker run --pids-limit=4096; under systemd TasksMax=4096");
  if (m.infiniband && m.limits.locked_bytes != kUnlimited)
    add(State::note,
        concat("only ", readable(m.limits.locked_bytes), " may be locked in memory: InfiniBand needs more"),
        "ulimit -l unlimited; limits.conf, LimitMEMLOCK of slurmd");
  if (findings.empty()) findings.push_back({"limits", State::ok, "files, threads and stacks suffice"});
  return findings;
}

}  // namespace shardgrad::train::doctor
