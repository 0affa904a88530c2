// Pretended machines, each with one thing that is not as it should be.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <shardgrad/core/error.h>
#include <shardgrad/train/doctor/checks.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::train::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Files = std::map<std::string, std::string>;
using Commands = std::map<std::string, dist::CommandOutput>;

constexpr const char* kMpirunOf414 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org\n";
constexpr const char* kMemory = "MemTotal:       8388608 kB\nMemFree:  10 kB\nMemAvailable:   4194304 kB\n";
constexpr uint64_t kMiB = 1 << 20;

std::function<std::optional<std::string>(const std::string&)> these(const Files& files) {
  return [files](const std::string& path) {
    auto found = files.find(path);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  };
}

std::function<std::optional<dist::CommandOutput>(const std::vector<std::string>&)> saying(const Commands& commands) {
  return [commands](const std::vector<std::string>& argv) {
    auto found = commands.find(argv[0] + " " + argv[1]);
    return found == commands.end() ? std::nullopt : std::optional(found->second);
  };
}

Machine healthy() {
  Machine m;
  m.build = {"0.1.0", "abc", "GNU 12.2.0", "2.6.3", "4.5", "10.42", "none"};
  m.mpi = "Open MPI v4.1.4";
  m.isa = "avx512";
  m.cpus = 8;
  m.cores = 4;
  m.limits.stack_bytes = 8 * kMiB;
  m.dev_shm_bytes = 64 * kMiB;
  m.read = these({{"/proc/meminfo", kMemory}});
  m.run = saying({{"mpirun --version", {.text = kMpirunOf414}}});
  return m;
}

// The only finding of a check that is not ok.
Finding trouble(const Findings& findings) {
  Finding found{"none"};
  int count = 0;
  for (const Finding& finding : findings)
    if (finding.state != State::ok) found = finding, ++count;
  EXPECT_EQ(count, 1);
  return found;
}

void expect_trouble(const Findings& findings, State state, const std::string& what, const std::string& remedy) {
  Finding found = trouble(findings);
  EXPECT_EQ(found.state, state) << found.what;
  EXPECT_THAT(found.what, HasSubstr(what));
  EXPECT_THAT(found.remedy, HasSubstr(remedy));
}
void expect_problem(const Findings& findings, const std::string& what, const std::string& remedy) {
  expect_trouble(findings, State::problem, what, remedy);
}
void expect_note(const Findings& findings, const std::string& what, const std::string& remedy) {
  expect_trouble(findings, State::note, what, remedy);
}
void expect_ok(const Findings& findings, const std::string& what) {
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].state, State::ok) << findings[0].what;
  EXPECT_THAT(findings[0].what, HasSubstr(what));
  EXPECT_EQ(findings[0].remedy, "");
}

TEST(Doctor, AHealthyMachineFitsAScreenAndHasNoProblem) {
  Findings findings = examine(healthy());
  std::string text = screen("title", findings, 80);
  EXPECT_FALSE(has_problem(findings)) << text;
  for (const Finding& finding : findings) EXPECT_EQ(finding.state, State::ok) << finding.what;
  EXPECT_LE(std::ranges::count(text, '\n'), 24) << text;
  EXPECT_THAT(text, HasSubstr("nothing here prevents training\n"));
}

TEST(Doctor, TheScreenIsNoWiderThanTheTerminalAndNamesAGroupOnce) {
  Findings findings{
      {"build", State::ok, "fine"},
      {"limits", State::problem, "a word and /a/path/without/any/space/that/is/longer/than/a/line", "do it"},
      {"limits", State::note, "größer × breiter"}};
  EXPECT_EQ(screen("title", findings, 40),
            "title\n"
            "ok       build      fine\n"
            "problem  limits     a word and\n"
            "                    /a/path/without/any/\n"
            "                    space/that/is/longer\n"
            "                    /than/a/line\n"
            "                    → do it\n"
            "note                größer × breiter\n"
            "1 problem prevents training, or a way of\n"
            "starting it; what to do stands behind\n"
            "the arrow\n");
  Machine broken = healthy();
  broken.limits.files = 20;
  broken.temporary_fault = "Read-only file system";
  broken.temporary_folder = std::string(300, 'x');
  for (int columns : {40, 60, 80, 131}) {
    std::istringstream lines(screen("title", examine(broken), columns));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), columns) << line;
  }
}

TEST(Doctor, TheBuildSaysWhatIsInItAndWhatIsNot) {
  expect_ok(check_build(healthy()), "GNU 12.2.0; Open MPI v4.1.4, oneDNN 2.6.3, OpenMP 4.5, PCRE2 10.42; without CUDA");
  Machine m = healthy();
  m.mpi = "";
  m.build.cuda = "13.0 for 90";
  m.build.onednn = "none";
  expect_ok(check_build(m), "no MPI, OpenMP 4.5, PCRE2 10.42, CUDA 13.0 for 90; without oneDNN");
}

TEST(Doctor, AnInstructionSetThatIsHeldDownIsNoted) {
  Machine m = healthy();
  expect_ok(check_cpu(m), "avx512; 4 of 8 cores may be used");
  m.environment["SHARDGRAD_ISA"] = "avx2";
  expect_note(check_cpu(m), "SHARDGRAD_ISA holds kernels down to avx2", "unset SHARDGRAD_ISA");
  for (const char* same : {"", "avx512", "avx3"}) {  // the last is refused, as a variable
    m.environment["SHARDGRAD_ISA"] = same;
    expect_ok(check_cpu(m), "avx512");
  }
}

TEST(Doctor, RanksAndThreadsAreCountedAgainstCores) {
  Machine m = healthy();
  expect_ok(check_ranks(m), "2 ranks × 2 threads on 4 cores");
  m.ranks = 1;
  m.environment["OMP_NUM_THREADS"] = "1";
  expect_ok(check_ranks(m), "1 rank × 1 thread on 4 cores");
  m.environment["OMP_NUM_THREADS"] = "8";
  expect_note(check_ranks(m), "1 rank × 8 threads on 4 cores", "OMP_NUM_THREADS=4");
  m.environment.clear();
  m.ranks = 4;
  m.cores = 1;
  expect_note(check_ranks(m), "4 ranks × 1 thread on 1 core", "launch -n 1; bare mpirun refuses more ranks than cores");
}

TEST(Doctor, MemoryIsWhatTheContainerOrJobMayUse) {
  Machine m = healthy();
  expect_ok(check_memory(m), "4.0 GiB of 8.0 GiB free: 2.0 GiB a rank");
  m.read = these({{"/proc/meminfo", kMemory}, {"/proc/self/cgroup", "0::/"}, {"/sys/fs/cgroup/memory.max", "max\n"}});
  expect_ok(check_memory(m), "4.0 GiB of 8.0 GiB free: 2.0 GiB a rank");
  m.read = these({{"/proc/meminfo", kMemory},
                  {"/proc/self/cgroup", "0::/slurm/job_1/step_0\n"},
                  {"/sys/fs/cgroup/slurm/job_1/step_0/memory.max", "max\n"},
                  {"/sys/fs/cgroup/slurm/job_1/memory.max", "1073741824\n"},
                  {"/sys/fs/cgroup/slurm/memory.max", "2147483648\n"}});
  expect_ok(check_memory(m), "1.0 GiB allowed to this container or job: 512.0 MiB a rank");
  m.ranks = 16;
  expect_note(check_memory(m), "64.0 MiB a rank", "fewer ranks");
  m.ranks = 2;
  m.read = these({{"/proc/meminfo", kMemory},
                  {"/proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/7\n0::/\n"},
                  {"/sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "268435456\n"}});
  expect_note(check_memory(m), "256.0 MiB allowed to this container or job: 128.0 MiB a rank", "shardgrad plan");
}

TEST(Doctor, RanksThatCannotShareMemoryAreToldWhatIsInTheWay) {
  Machine m = healthy();
  expect_ok(check_shared_memory(m), "can share memory");
  m.heap_fault = "shared memory: memfd_create: Function not implemented";
  expect_problem(check_shared_memory(m), m.heap_fault, "memfd_create");
  EXPECT_THAT(trouble(check_shared_memory(m)).remedy, HasSubstr("slower: launch --by mpi"));
  m.limits.address_bytes = 1000 * kMiB;
  expect_problem(check_shared_memory(m), m.heap_fault, "ulimit -v unlimited");
  m.mpi = "";
  EXPECT_THAT(trouble(check_shared_memory(m)).remedy, Not(HasSubstr("launch --by mpi")));
  m.limits.file_bytes = kMiB;
  expect_problem(check_shared_memory(m), m.heap_fault, "ulimit -f unlimited");
}

TEST(Doctor, OpenMpisOwnSharedMemoryNeedsRoom) {
  Machine m = healthy();
  m.ranks = 17;
  expect_note(check_shared_memory(m), "about 68.0 MiB in /dev/shm, 64.0 MiB are free", "--shm-size=1g");
  m.dev_shm_bytes.reset();
  expect_note(check_shared_memory(m), "which is not there", "/dev/shm");
  m.mpi = "";
  expect_ok(check_shared_memory(m), "can share memory");
}

TEST(Doctor, MpirunNeedsAFolderForTemporaryFilesAndALoopbackInterface) {
  Machine m = healthy();
  m.temporary_folder = "/ro";
  m.temporary_fault = "Read-only file system";
  expect_problem(check_temporary_folder(m), "nothing can be made in /ro: Read-only file system", "export TMPDIR=");
  m.loopback = false;
  expect_problem(check_loopback(m), "not up: mpirun cannot start", "ip link set lo up; or start");
  m.mpi = "";
  expect_note(check_temporary_folder(m), "/ro", "export TMPDIR=");
  expect_note(check_loopback(m), "not up", "ip link set lo up");
}

TEST(Doctor, WithoutProcRanksDoNotFindEachOther) {
  Machine m = healthy();
  m.proc_fault = "No such file or directory";
  m.heap_fault = "shared memory: /proc/7/fd/3: No such file or directory";
  m.read = these({});
  expect_problem(check_processes(m), "/proc/self/exe cannot be read", "mount -t proc proc /proc");
  expect_problem(check_shared_memory(m), "/proc/7/fd/3", "mount -t proc proc /proc");
  EXPECT_TRUE(check_memory(m).empty());
}

TEST(Doctor, WhatTheSystemKeepsFromProcessesIsNoted) {
  Machine m = healthy();
  m.pidfd = false;
  expect_note(check_processes(m), "pidfd_open", "Linux 5.3");
  m.pidfd = true;
  m.reads_other_processes = false;
  expect_note(check_processes(m), "may not read each other's memory", "ptrace_scope=0");
  m.mpi = "";
  expect_ok(check_processes(m), "mounted");
}

TEST(Doctor, LimitsThatRanksRunIntoAreProblems) {
  Machine m = healthy();
  m.limits.files = 20;
  expect_problem(check_limits(m), "may open 20 files; 2 ranks need about 40", "ulimit -n 1024");
  m.limits = {.files = 40, .stack_bytes = 64 << 10};
  expect_problem(check_limits(m), "stacks may have 64.0 KiB", "ulimit -s 8192");
  m.limits = {.processes = 30};
  expect_problem(check_limits(m), "you may have 30 processes and threads; this needs 48", "ulimit -u");
  m.root = true;
  expect_ok(check_limits(m), "suffice");
  m.read = these({{"/proc/self/cgroup", "0::/a"}, {"/sys/fs/cgroup/a/pids.max", "20\n"}});
  expect_problem(check_limits(m), "may have 20 threads; this needs 48", "--pids-limit");
}

TEST(Doctor, InfiniBandNeedsMemoryThatIsLocked) {
  Machine m = healthy();
  m.limits.locked_bytes = 8 * kMiB;
  expect_ok(check_limits(m), "suffice");
  m.infiniband = true;
  expect_note(check_limits(m), "8.0 MiB may be locked", "ulimit -l unlimited");
}

TEST(Doctor, MpirunMustBeThatOfTheLibrary) {
  Machine m = healthy();
  expect_ok(check_mpi(m), "mpirun is Open MPI 4.1.4 as the library");
  m.run = saying({});
  expect_problem(check_mpi(m), "mpirun is not in PATH", "openmpi-bin");
  m.run = saying({{"mpirun --version", {.in_time = false}}});
  expect_problem(check_mpi(m), "did not answer within 5 s", "launch --by local");
  m.run = saying({{"mpirun --version", {.code = 127, .text = "libopen-rte.so.40: cannot open\nmore"}}});
  expect_problem(check_mpi(m), "failed with code 127: 'libopen-rte.so.40: cannot open'", "launch --by local");
  m.run = saying({{"mpirun --version", {.text = "HYDRA build details:\n    Version:       4.0.2\n"}}});
  expect_problem(check_mpi(m), "that of MPICH 4.0.2, this build has Open MPI v4.1.4", "first in PATH");
  m.run = saying({{"mpirun --version", {.text = "mpirun (Open MPI) 5.0.7\n"}}});
  expect_note(check_mpi(m), "of version 5.0.7, the library is Open MPI v4.1.4", "first in PATH");
  m.mpi = "MPICH Version:\t4.0.2";
  m.run = saying({{"mpirun --version", {.text = "HYDRA build details:\n    Version:       4.0.2\n"}}});
  expect_ok(check_mpi(m), "MPICH 4.0.2");
  m.mpi = "";
  expect_ok(check_mpi(m), "none in this build");
}

TEST(Doctor, OpenMpiRefusesRoot) {
  Machine m = healthy();
  m.root = true;
  expect_note(check_mpi(m), "refuses to run as root", "--allow-run-as-root");
}

TEST(Doctor, SlurmMustHaveAPluginThatTheLibraryUnderstands) {
  Machine m = healthy();
  expect_ok(check_slurm(m), "not here");
  auto with = [&](const std::string& list) { m.run = saying({{"srun --mpi=list", {.text = list}}}); };
  with("MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n");
  expect_ok(check_slurm(m), "not inside a job");
  m.environment = {{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "2"}};
  EXPECT_EQ(m.tasks_of_slurm(), 4);
  expect_ok(check_slurm(m), "job 17, 8 tasks on 2 nodes; srun --mpi=pmix connects the ranks");
  with("MPI plugin types are...\n\tnone\n\tpmi2\n");
  expect_note(check_slurm(m), "no plugin that Open MPI v4.1.4 understands", "scripts/slurm/mpirun.sbatch");
  m.mpi = "MPICH Version:\t4.0.2";
  expect_ok(check_slurm(m), "srun --mpi=pmi2 connects");
  m.run = saying({{"srun --mpi=list", {.in_time = false}}});
  expect_note(check_slurm(m), "did not answer within 5 s", "scontrol ping");
  m.run = saying({});
  expect_note(check_slurm(m), "srun is not in PATH", "launch");
}

TEST(Doctor, AStepOfSlurmWithoutAPluginIsAProblem) {
  Machine m = healthy();
  m.environment = {{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}};
  expect_problem(check_slurm(m), "srun started this without a way to connect", "srun --mpi=pmix");
  m.environment["PMIX_RANK"] = "0";
  m.run = saying({{"srun --mpi=list", {.text = "pmix"}}});
  expect_ok(check_slurm(m), "job 17");
}

TEST(Doctor, GpusThatTheBuildCannotUseAreProblems) {
  Machine m = healthy();
  expect_ok(check_cuda(m), "not in this build");
  EXPECT_TRUE(check_nccl(m).empty());
  m.nvidia = true;
  expect_note(check_cuda(m), "this build has no device cuda", "-DSHARDGRAD_CUDA=ON");
  m.cuda = {.built = true, .why_not = "no CUDA device: no NVIDIA driver is loaded on this machine"};
  expect_note(check_cuda(m), "no NVIDIA driver is loaded on this machine: device=cpu", "install NVIDIA's driver");
  m.cuda = {.built = true, .driver = 12040, .why_not = "it knows CUDA 12.4, this build needs 13.0; update it"};
  expect_problem(check_cuda(m), "CUDA 12.4, this build needs 13.0", "update it");
  m.cuda.why_not = "none is visible";
  expect_problem(check_cuda(m), "none is visible", "CUDA_VISIBLE_DEVICES");
  m.cuda = {.built = true, .driver = 13000, .gpus = {{"H100", 90, 80ull << 30}, {"V100", 70, 16ull << 30, "too old"}}};
  expect_problem(check_cuda(m), "GPU 1: V100, 7.0, 16.0 GiB; too old", "CUDA_VISIBLE_DEVICES");
  m.cuda.gpus.pop_back();
  expect_note(check_cuda(m), "2 ranks share 1 of them", "launch -n 1");
  m.ranks = 1;
  expect_ok(check_cuda(m), "GPU 0: H100, 9.0, 80.0 GiB; the driver knows CUDA 13.0");
}

TEST(Doctor, NcclMustBeNewEnough) {
  Machine m = healthy();
  m.cuda = {.built = true, .driver = 13000, .gpus = {{"H100", 90, 80ull << 30}}};
  expect_note(check_nccl(m), "not in this build", "-DSHARDGRAD_NCCL=ON");
  m.nccl = "NCCL 2.28.9";
  expect_ok(check_nccl(m), "NCCL 2.28.9");
  m.nccl_fault = "NCCL 2.25.7 is too old; put a newer one first";
  expect_problem(check_nccl(m), "NCCL 2.25.7 is too old", "put a newer one first");
  m.cuda.gpus.clear();
  expect_note(check_nccl(m), "NCCL 2.25.7 is too old", "put a newer one first");
}

// What check_variables finds where these are set.
Findings with_variables(const std::map<std::string, std::string>& environment, Machine m = healthy()) {
  m.environment = environment;
  return check_variables(m);
}

TEST(Doctor, ValuesThatAreRefusedAndNamesThatNobodyReadsAreFound) {
  expect_ok(with_variables({{"SHARDGRAD_ISA", "plain"}, {"SHARDGRAD_GEMM", ""}, {"SHARDGRAD_TF32", "0"}}), "none");
  for (const char* name : {"ISA", "GEMM", "TF32", "CHECK", "GROUP", "NCCL_SUMS", "NCCL_SHARE_GPU"})
    expect_problem(with_variables({{concat("SHARDGRAD_", name), "yes"}}), concat("SHARDGRAD_", name, " is 'yes'"),
                   "or unset it");
  expect_note(with_variables({{concat("SHARDGRAD_", "GROP"), "mpi"}}), "SHARDGRAD_GROP is read by nobody",
              "SHARDGRAD_GROUP?");
  expect_ok(with_variables({{"SHARDGRAD_CHROOTS", "/x"}}), "none");  // a script's
  expect_note(with_variables({{"OMP_NUM_THREADS", "many"}}), "OMP_NUM_THREADS is 'many'", "unset OMP_NUM_THREADS");
  expect_problem(with_variables({{"SHARDGRAD_RENDEZVOUS_SECONDS", "soon"}}), "SHARDGRAD_RENDEZVOUS_SECONDS is 'soon'",
                 "must be a number");
}

TEST(Doctor, AGroupThatIsNotHereIsAProblem) {
  auto group = [](const char* kind, const Machine& m = healthy()) {
    return with_variables({{"SHARDGRAD_GROUP", kind}}, m);
  };
  expect_ok(group("mpi"), "none");
  expect_problem(group("single"), "one rank, not 2", "unset SHARDGRAD_GROUP");
  expect_problem(group("nccl"), "this build has no NCCL", "unset SHARDGRAD_GROUP");
  Machine m = healthy();
  m.mpi = "";
  expect_problem(group("mpi", m), "this build has no MPI", "unset SHARDGRAD_GROUP");
  m.nccl = "NCCL 2.28.9";
  m.cuda = {.built = true, .gpus = {{"H100", 90}}};
  expect_problem(group("nccl", m), "2 ranks have 1 GPU", "as many ranks as GPUs");
  expect_ok(with_variables({{"SHARDGRAD_GROUP", "nccl"}, {"SHARDGRAD_NCCL_SHARE_GPU", "1"}}, m), "none");
  expect_problem(with_variables({{"SHARDGRAD_GROUP", "shared_memory"}, {"SLURM_JOB_NUM_NODES", "2"}}), "2 machines",
                 "unset");
}

TEST(Doctor, WhatAProcessStartedHereWouldTakeItselfForIsSaid) {
  expect_problem(with_variables({{"SHARDGRAD_JOB_FD", "3:1"}}), "part of a job of launch", "unset SHARDGRAD_JOB_FD");
  expect_note(with_variables({{"MASTER_ADDR", "node1"}}), "but not RANK and WORLD_SIZE", "unset MASTER_ADDR");
  expect_problem(with_variables({{"RANK", "0"}}), "RANK is set, but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
                 "unset all of them");
  std::map<std::string, std::string> all{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29511"}};
  expect_note(with_variables(all), "rank 1 of 2 at node1:29511, and waits", "unset RANK WORLD_SIZE");
  all["RANK"] = "2";
  expect_problem(with_variables(all), "RANK is '2'", "must be a number from 0 to 1");
  all["RANK"] = "1";
  all["SHARDGRAD_JOB_TOKEN"] = "short";
  expect_problem(with_variables(all), "SHARDGRAD_JOB_TOKEN has 5 characters", "openssl rand");
  all["OMPI_COMM_WORLD_SIZE"] = "2";
  expect_ok(with_variables(all), "none");
}

}  // namespace
}  // namespace shardgrad::train::doctor
