#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>
#include <shardgrad/dist/group/world.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/kernels/choices.h>
#include <shardgrad/train/doctor/checks.h>
#include <shardgrad/train/nearest.h>

namespace shardgrad::train::doctor {
namespace {

constexpr EnvironmentChoice kChoices[] = {kIsaChoice,         kProductsChoice,       kTf32Choice,          kCheckChoice,
                                          dist::kGroupChoice, dist::kNcclSumsChoice, dist::kShareGpuChoice};
constexpr const char* kOthers[] = {"SHARDGRAD_RANK",
                                   "SHARDGRAD_WORLD_SIZE",
                                   "SHARDGRAD_JOB_FD",
                                   "SHARDGRAD_JOB_TOKEN",
                                   "SHARDGRAD_RENDEZVOUS_SECONDS",
                                   "SHARDGRAD_TERMINAL",
                                   "SHARDGRAD_CAUSE_FILE",
                                   "SHARDGRAD_COMMAND"};

Finding of_variables(State state, const std::string& what, const std::string& remedy) {
  return {"variables", state, what, remedy};
}

// Values that are refused, names that nobody reads.
void check_words(const Machine& m, Findings& findings) {
  std::vector<std::string> names;
  for (const EnvironmentChoice& choice : kChoices) names.push_back(choice.variable);
  names.insert(names.end(), std::begin(kOthers), std::end(kOthers));
  for (const EnvironmentChoice& choice : kChoices) {
    const char* text = m.variable(choice.variable);
    std::string why = refused(choice, text ? text : "");
    if (!why.empty()) findings.push_back(told("variables", State::problem, why));
  }
  // Without what all of them begin with, which would make any two of them alike.
  const std::string front = "SHARDGRAD_";
  std::vector<std::string> ends;
  for (const std::string& name : names) ends.push_back(name.substr(front.size()));
  for (const auto& [name, value] : m.environment) {
    if (!name.starts_with(front) || std::ranges::count(names, name)) continue;
    std::string meant = nearest(name.substr(front.size()), ends);
    if (!meant.empty())
      findings.push_back(
          of_variables(State::note, name + " is read by nobody", concat("did you mean ", front, meant, "?")));
  }
  const char* threads = m.variable("OMP_NUM_THREADS");
  if (threads && m.number("OMP_NUM_THREADS") <= 0)
    findings.push_back(of_variables(State::note, concat("OMP_NUM_THREADS is '", threads, "', taken for unset"),
                                    "export OMP_NUM_THREADS=N, or unset OMP_NUM_THREADS"));
}

// SHARDGRAD_GROUP against what is here.
void check_group(const Machine& m, Findings& findings) {
  const char* text = m.variable(dist::kGroupChoice.variable);
  std::string group = text ? text : "", why, remedy = "unset SHARDGRAD_GROUP";
  int gpus = int(m.cuda.gpus.size()), nodes = m.number("SLURM_JOB_NUM_NODES");
  const char* shared = m.variable(dist::kShareGpuChoice.variable);
  if (group == "single" && m.ranks > 1) why = concat("one rank, not ", m.ranks);
  if (group == "mpi" && m.mpi.empty()) why = "this build has no MPI";
  if (group == "nccl" && m.nccl.empty()) why = "this build has no NCCL";
  if (group == "nccl" && !m.nccl.empty() && m.ranks > gpus && !(shared && std::string(shared) == "1")) {
    why = concat(m.ranks, " ranks have ", gpus, gpus == 1 ? " GPU" : " GPUs");
    remedy = "as many ranks as GPUs, or unset SHARDGRAD_GROUP";
  }
  if (group == "shared_memory" && nodes > 1) why = concat("SLURM gives this job ", nodes, " machines");
  if (!why.empty())
    findings.push_back(of_variables(State::problem, concat("SHARDGRAD_GROUP=", group, ", but ", why), remedy));
}

// What a process that is started from here would take itself for.
void check_places(const Machine& m, Findings& findings) {
  auto variable = [&](const char* name) { return m.variable(name); };
  if (variable("SHARDGRAD_JOB_FD"))
    findings.push_back(of_variables(State::problem, "this shell is part of a job of launch, and so is what it starts",
                                    "unset SHARDGRAD_JOB_FD SHARDGRAD_RANK SHARDGRAD_WORLD_SIZE"));
  if (variable("OMPI_COMM_WORLD_SIZE") || variable("PMI_SIZE")) return;  // mpirun's ranks look no further
  try {
    dist::rendezvous_limit(variable);
    if (dist::tcp_place(variable))
      findings.push_back(of_variables(
          State::note,
          concat("a program started here is rank ", variable("RANK"), " of ", variable("WORLD_SIZE"), " at ",
                 variable("MASTER_ADDR"), ":", variable("MASTER_PORT"), ", and waits for the others"),
          "to train alone: unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"));
    else if (variable("MASTER_ADDR") || variable("MASTER_PORT"))
      findings.push_back(of_variables(State::note,
                                      "MASTER_ADDR or MASTER_PORT is set, but not RANK and WORLD_SIZE: neither is read",
                                      "to meet by TCP set all four; else unset MASTER_ADDR MASTER_PORT"));
  } catch (const Error& error) {
    findings.push_back(told("variables", State::problem, error.what(), "set it right, or unset it"));
  }
}

}  // namespace

Findings check_variables(const Machine& m) {
  Findings findings;
  check_words(m, findings);
  check_group(m, findings);
  check_places(m, findings);
  if (findings.empty()) findings.push_back(of_variables(State::ok, "none that is wrong", ""));
  return findings;
}

Findings examine(const Machine& machine) {
  Findings all;
  for (auto check :
       {check_build, check_cpu, check_ranks, check_memory, check_shared_memory, check_temporary_folder, check_processes,
        check_limits, check_loopback, check_mpi, check_slurm, check_cuda, check_nccl, check_variables})
    for (Finding& finding : check(machine)) all.push_back(std::move(finding));
  return all;
}

}  // namespace shardgrad::train::doctor
