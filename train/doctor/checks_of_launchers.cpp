#include <algorithm>
#include <cctype>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/train/doctor/checks.h>

namespace shardgrad::train::doctor {
namespace {

// Which MPI a text is of: what a library or a launcher says of itself.
std::string maker_of(const std::string& text) {
  for (auto [mark, maker] : {std::pair("Open MPI", "Open MPI"),
                             {"OpenRTE", "Open MPI"},
                             {"Intel", "Intel MPI"},
                             {"MVAPICH", "MVAPICH"},
                             {"MPICH", "MPICH"},
                             {"HYDRA", "MPICH"}})
    if (text.find(mark) != text.npos) return maker;
  return "";
}

// "4.1.4": the first numbers with dots between.
std::string version_in(const std::string& text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!std::isdigit(static_cast<unsigned char>(text[at]))) continue;
    std::string found = text.substr(at, text.find_first_not_of("0123456789.", at) - at);
    if (found.find('.') != found.npos) return found;
    at += found.size();
  }
  return "";
}

std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  return line.empty() ? "nothing" : concat("'", line, "'");
}

Findings of_mpi(State state, const std::string& what, const std::string& remedy = "") {
  return {{"MPI", state, what, remedy}};
}

constexpr const char* kWithout = "; or start the ranks of this machine without it: launch --by local";

// The --mpi of srun by which ranks of this library find each other, of those that SLURM has; empty: none.
std::string plugin_for(const std::string& library, const std::string& list) {
  bool open_mpi = maker_of(library) == "Open MPI";
  for (const char* name : {"pmix", "pmi2"})
    if (list.find(name) != list.npos && (!open_mpi || std::string(name) == "pmix")) return name;
  return "";
}

}  // namespace

Findings check_mpi(const Machine& m) {
  if (m.mpi.empty())
    return of_mpi(State::ok, "none in this build: launch forks the ranks of one machine, and GPUs on several use NCCL");
  std::string install = maker_of(m.mpi) == "Open MPI" ? "install it (Debian: openmpi-bin)" : "install it";
  auto said = m.run({"mpirun", "--version"});
  if (!said)
    return of_mpi(State::problem, concat("mpirun is not in PATH, and this build has ", m.mpi),
                  concat(install, ", or put the bin folder of that MPI in PATH (module load …)", kWithout));
  if (!said->in_time)
    return of_mpi(State::problem, "mpirun --version did not answer within 5 s",
                  concat("run it by hand; the file system it lies on may hang", kWithout));
  if (said->code != 0)
    return of_mpi(State::problem,
                  concat("mpirun --version failed with code ", said->code, ": ", first_line(said->text)),
                  concat("install it again", kWithout));
  std::string maker = maker_of(said->text), version = version_in(said->text);
  if (!maker.empty() && maker != maker_of(m.mpi))
    return of_mpi(State::problem, concat("mpirun is that of ", maker, " ", version, ", this build has ", m.mpi),
                  concat("put the bin folder of ", m.mpi, " first in PATH", kWithout));
  if (!version.empty() && version != version_in(m.mpi))
    return of_mpi(State::note, concat("mpirun is of version ", version, ", the library is ", m.mpi),
                  "where ranks do not find each other, put the bin folder of the library's version first in PATH");
  if (m.root && maker == "Open MPI")
    return of_mpi(State::note, concat("mpirun is ", maker, " ", version, " as the library; it refuses to run as root"),
                  "launch adds --allow-run-as-root; so must you with bare mpirun");
  return of_mpi(State::ok, concat("mpirun is ", maker, " ", version, " as the library"));
}

Findings check_loopback(const Machine& m) {
  if (m.loopback) return {{"loopback", State::ok, "up"}};
  bool needed = !m.mpi.empty();
  return {{"loopback", needed ? State::problem : State::note,
           concat("the loopback interface is not up", needed ? ": mpirun cannot start" : ""),
           concat("ip link set lo up", needed ? kWithout : "")}};
}

Findings check_slurm(const Machine& m) {
  const char* job = m.variable("SLURM_JOB_ID");
  if (m.variable("SLURM_STEP_NUM_TASKS") && !m.mpi.empty() &&
      dist::srun_gave_no_way([&](const char* name) { return m.variable(name); }))
    return {
        {"SLURM", State::problem, concat("srun started this without a way to connect ", m.mpi), "srun --mpi=pmix …"}};
  auto said = m.run({"srun", "--mpi=list"});
  if (!said && !job) return {{"SLURM", State::ok, "not here"}};
  std::string where = "not inside a job (sbatch scripts/slurm/mpirun.sbatch)";
  if (job)
    where = concat("job ", job, ", ", std::max(1, m.number("SLURM_NTASKS")), " tasks on ",
                   std::max(1, m.number("SLURM_JOB_NUM_NODES")), " nodes");
  if (!said) return {{"SLURM", State::note, where + "; srun is not in PATH", "start the ranks with mpirun or launch"}};
  if (m.mpi.empty()) return {{"SLURM", State::ok, where + "; without MPI, set MASTER_ADDR and the like in the job"}};
  if (!said->in_time)
    return {{"SLURM", State::note, where + "; srun --mpi=list did not answer within 5 s",
             "is slurmctld up? scontrol ping; mpirun inside the job goes without srun's help"}};
  std::string plugin = plugin_for(m.mpi, said->text);
  if (plugin.empty())
    return {{"SLURM", State::note, concat(where, "; srun has no plugin that ", m.mpi, " understands"),
             "mpirun inside the job (scripts/slurm/mpirun.sbatch); or have SLURM built with PMIx"}};
  return {{"SLURM", State::ok, concat(where, "; srun --mpi=", plugin, " connects the ranks")}};
}

}  // namespace shardgrad::train::doctor
