#include <shardgrad/train/doctor/machine.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/os/machine.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/shared_heap.h>
#include <shardgrad/kernels/choices.h>
#include <shardgrad/train/about.h>

namespace shardgrad::train::doctor {

const char* Machine::variable(const char* name) const {
  auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

int Machine::number(const char* name) const {
  const char* text = variable(name);
  return text ? std::atoi(text) : 0;
}

int Machine::tasks_of_slurm() const {
  int tasks = std::max(0, number("SLURM_NTASKS")), nodes = std::max(1, number("SLURM_JOB_NUM_NODES"));
  return (tasks + nodes - 1) / nodes;
}

namespace {

std::map<std::string, std::string> all_variables() {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    std::string text = *entry;
    size_t end = std::min(text.find('='), text.size());
    all[text.substr(0, end)] = text.substr(std::min(end + 1, text.size()));
  }
  return all;
}

std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return {};
  return text.str();
}

std::optional<dist::CommandOutput> ask(const std::vector<std::string>& argv) {
  if (!dist::is_program(argv[0])) return {};
  return dist::output_of(argv, std::chrono::seconds(5));
}

uint64_t limit_of(int resource) {
  rlimit limit{};
  bool known = getrlimit(__rlimit_resource_t(resource), &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? limit.rlim_cur : kUnlimited;
}

// What ranks on this machine do first (dist/transports/shared_heap.h): address space for all, and the first pages.
std::string why_no_heap(int ranks) {
  struct sigaction ignored {};
  struct sigaction before {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignored, &before);  // a file that may not be as large is an error of its making, as in a job
  std::string fault;
  try {
    auto memory = dist::SharedMemory::create("shardgrad-doctor", dist::SharedHeap::heap_bytes(ranks, 0));
    dist::SharedMemory::open(memory->path(), memory->bytes());
    if (!memory->back(0, size_t(ranks) << 20)) fault = "shared memory: there is no room for 1 MiB per rank";
  } catch (const Error& error) {
    fault = error.what();
  }
  sigaction(SIGXFSZ, &before, nullptr);
  return fault;
}

std::optional<uint64_t> free_bytes(const char* folder) {
  struct statvfs system {};
  if (statvfs(folder, &system) != 0) return {};
  return uint64_t(system.f_bavail) * system.f_frsize;
}

}  // namespace

Machine this_machine(int ranks) {
  Machine m{.environment = all_variables(), .read = text_of, .run = ask};
  m.ranks = ranks > 0 ? ranks : m.tasks_of_slurm();
  if (m.ranks == 0) m.ranks = 2;
  m.build = build_info();
  m.mpi = dist::mpi_library();
  m.nccl = dist::nccl_library();
  m.nccl_fault = dist::why_not_nccl();
  m.host = host_name();
  m.isa = name_of(machine_isa());
  m.cpus = int(sysconf(_SC_NPROCESSORS_ONLN));
  m.cores = usable_cores();
  m.limits = {limit_of(RLIMIT_NOFILE), limit_of(RLIMIT_NPROC), limit_of(RLIMIT_FSIZE),
              limit_of(RLIMIT_AS),     limit_of(RLIMIT_STACK), limit_of(RLIMIT_MEMLOCK)};
  m.root = geteuid() == 0;
  m.loopback = dist::has_loopback();
  m.pidfd = dist::ProcessWatch(getpid()).descriptor() >= 0;
  m.reads_other_processes = dist::can_read_other_processes();
  std::error_code none;
  m.infiniband = !std::filesystem::is_empty("/sys/class/infiniband", none) && !none;
  m.nvidia = std::filesystem::exists("/proc/driver/nvidia/version", none);
  m.temporary_folder = dist::temporary_folder();
  m.temporary_fault = dist::why_not_writable(m.temporary_folder);
  m.proc_fault = dist::why_no_proc();
  m.heap_fault = why_no_heap(m.ranks);
  m.dev_shm_bytes = free_bytes("/dev/shm");
  m.cuda = survey_cuda();
  return m;
}

uint64_t allowed_memory() { return allowed_memory({.read = text_of}); }

}  // namespace shardgrad::train::doctor
