#include <shardgrad/dist/bootstrap/bootstrap.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/forked.h>
#include <shardgrad/dist/bootstrap/shared_memory.h>
#include <shardgrad/dist/bootstrap/tcp_bootstrap.h>

namespace shardgrad::dist {
namespace {

class SingleBootstrap final : public Bootstrap {
 public:
  SingleBootstrap() : Bootstrap("single", 0, 1, RankMap({"here"})) {}
  std::vector<std::string> exchange(const std::string& mine) override { return {mine}; }
};

int number(const char* text, int otherwise) { return text ? std::atoi(text) : otherwise; }

// Open MPI, MPICH and Intel MPI (Hydra), SLURM's srun. A batch script of SLURM is not a step: it has no step tasks.
struct Launcher {
  const char *size, *rank;
  bool mpi;  // an MPI's own
};
constexpr Launcher kLaunchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", true},
                                   {"PMI_SIZE", "PMI_RANK", true},
                                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false}};

const Launcher* launcher(const EnvironmentLookup& variable = std::getenv) {
  for (const Launcher& l : kLaunchers)
    if (variable(l.size)) return &l;
  return nullptr;
}

bool launched_by_mpi() { return launcher() && launcher()->mpi; }

}  // namespace

std::string Bootstrap::any_error(const std::string& mine) {
  for (std::string& error : exchange(mine))
    if (!error.empty()) return std::move(error);
  return {};
}

std::shared_ptr<void> Bootstrap::control_memory(size_t bytes, std::string& reason) {
  auto memory = share_memory(*this, "shardgrad-control", bytes, reason);
  return memory ? std::shared_ptr<void>(memory, memory->data()) : nullptr;
}

std::unique_ptr<Bootstrap> make_single_bootstrap() { return std::make_unique<SingleBootstrap>(); }

int number_of(const char* name, const char* text, int least, int most) {
  int value = 0;
  const char* end = text + std::strlen(text);
  auto [stop, error] = std::from_chars(text, end, value);
  SG_CHECK(error == std::errc() && stop == end && value >= least && value <= most, name, " is '", text,
           "'; it must be a number from ", least, " to ", most);
  return value;
}

std::chrono::seconds rendezvous_limit(const EnvironmentLookup& variable) {
  constexpr const char* kName = "SHARDGRAD_RENDEZVOUS_SECONDS";
  const char* text = variable(kName);
  return std::chrono::seconds(text ? number_of(kName, text, 1, 1 << 20) : 300);
}

int launched_processes() { return launcher() ? number(std::getenv(launcher()->size), 1) : 1; }
int launched_rank() { return launcher() ? number(std::getenv(launcher()->rank), 0) : 0; }

// Open MPI then fills a page with its own words.
bool srun_gave_no_way(const EnvironmentLookup& variable) {
  for (const char* name : {"PMIX_RANK", "PMI_RANK", "PMI_FD"})
    if (variable(name)) return false;
  const Launcher* by = launcher(variable);
  return by && !by->mpi && number(variable(by->size), 1) > 1;
}

int processes_of_job() {
  if (std::getenv("SHARDGRAD_JOB_FD")) return number(std::getenv("SHARDGRAD_WORLD_SIZE"), 1);
  return std::getenv("RANK") ? number(std::getenv("WORLD_SIZE"), 1) : launched_processes();
}

bool started_alone() {
  for (const char* name : {"SHARDGRAD_JOB_FD", "RANK", "WORLD_SIZE"})
    if (std::getenv(name)) return false;
  return launched_processes() == 1;
}

std::unique_ptr<Bootstrap> bootstrap_from_environment() {
  if (auto forked = forked_bootstrap_from_environment()) return forked;
  if (!launched_by_mpi())
    if (auto tcp = tcp_bootstrap_from_environment()) return tcp;
  int tasks = number(std::getenv("SLURM_NTASKS"), 1);
  SG_CHECK(launcher() || tasks <= 1, "SLURM gives this job ", tasks, " tasks (SLURM_NTASKS), but this process was ",
           "started alone and would be a world of one; start it with: mpirun -n ", tasks, " …, or: srun --mpi=pmix …");
  if (!launcher()) return make_single_bootstrap();
  int processes = launched_processes();
  std::string remedy = concat("; start them with: shardgrad launch -n ", processes, " …");
  SG_CHECK(mpi_library().empty() || !srun_gave_no_way(std::getenv), "srun started ", processes, " processes, but gave ",
           mpi_library(), " no way to connect them; start them with: srun --mpi=pmix …");
  SG_CHECK(!mpi_library().empty() || processes == 1, "the launcher started ", processes,
           " processes, but this build has no MPI to connect them", remedy);
  if (mpi_library().empty()) return make_single_bootstrap();
  auto bootstrap = make_mpi_bootstrap();
  SG_CHECK(bootstrap->size() == processes, "the launcher started ", processes, " processes, but ", mpi_library(),
           " finds a world of ", bootstrap->size(), ": it is another MPI's launcher", remedy,
           ", or with the mpirun of that library");
  return bootstrap;
}

}  // namespace shardgrad::dist
