#pragma once
// The `shardgrad` program: commands, options and exit codes. train::program calls run.

#include <functional>
#include <string>
#include <vector>

#include <shardgrad/train/cli/run_job.h>
#include <shardgrad/train/generate.h>

namespace CLI {
class App;
}

namespace shardgrad::cli {

/// Runs a command line and returns the exit code, see train/program.h.
int run(int argc, char** argv, const train::Registry& registry);

int train_command(RunOptions options);
/// To the ranks that this process will start: what was typed.
void tell_ranks(const std::vector<std::string>& typed);
/// The command line that goes on with the run of this name, after `typed`, which began it with this configuration.
std::string line_to_go_on(std::vector<std::string> typed, const train::Config& config, const std::string& name);

/// Of `folder`, a run's or a checkpoint's (named_checkpoint): the run's own `config` is read. `group` unused by
/// predict; `dtype` is export's.
struct UseOptions {
  RunOptions run;
  std::string folder, input, output, dtype;
};
/// Prints the scores of the last checkpoint.
int eval_command(const UseOptions& options);
/// Writes what the model says of new samples.
int predict_command(const UseOptions& options);
/// Writes the last checkpoint's model as a Hugging Face folder.
int export_command(const UseOptions& options);

/// What `shardgrad generate` was given. `from` is a run's folder or a Hugging Face folder.
struct TextOptions {
  RunOptions run;
  std::string from, file, dtype = "as saved";
  std::vector<std::string> prompts;
  train::GenerateOptions how;
};
/// Prints prompts with what a language model says after them.
int generate_command(const TextOptions& options);

/// Compares the last checkpoint with its hashes, and prints the one number of them all.
int hash_command(const std::string& folder);
/// Prints what a safetensors file holds.
int inspect_command(const std::string& path);
/// Writes a run's page (report/page.h) to `output`, by default report.html in its folder.
int report_command(const std::string& folder, const std::string& output);

/// What `shardgrad plan` was given.
struct PlanOptions {
  const train::Registry* registry;
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 0;  ///< 0: as the configuration says, or 1
  bool measure = false;
  std::string group;     ///< that connects the ranks (dist::ProcessGroup::kind); empty: one that needs no memory
  int machines = 0;      ///< that the ranks are dealt to, one after the other; 0: not said
  bool compare = false;  ///< strategies and numbers of ranks side by side
  bool time = false;     ///< the same, of times: steps are timed here
  int per_machine = 1;   ///< ranks of a machine, that are timed side by side
  int threads = 0;       ///< that a rank computes with; 0: this machine's, shared out
  double memory = 0;     ///< GiB a rank has; 0: not said
  double tflops = 0;     ///< TFLOP a rank computes in a second; 0: not said
  double bandwidth = 0;  ///< GB a rank sends in a second; 0: not said
  double latency = 0;    ///< µs that a collective takes
  std::string network;   ///< a file that says both (network.h); empty: none
  std::string from;      ///< where the two are from, in words; empty: the command line
};
/// Adds the command `plan`, which fills `options` and becomes `chosen`.
void add_plan(CLI::App& app, PlanOptions& options, std::function<int()>& chosen);

/// What `shardgrad certify` was given.
struct CertifyOptions {
  std::string op, device = "cpu";
  std::vector<std::string> libraries, use;  ///< use: "layer_norm=mine"
};
/// Prints which properties of certify/certify.h hold, and speeds when all do; 1 when one does not.
int certify_command(const CertifyOptions& options);

/// Writes a project with a model of its own into `folder`. Throws Error(input) for a folder that is not empty or cannot
/// be made.
int new_command(const std::string& folder);

/// What `shardgrad doctor` was given.
struct DoctorOptions {
  int ranks = 0;                            ///< of a job on this machine; 0: SLURM's tasks here, or else 2
  bool examines = false;                    ///< also an environment that is refused otherwise
  std::string file, group, device = "cpu";  ///< of --measure
};
/// Adds the command `doctor`, which fills `options` and becomes `chosen`.
void add_doctor(CLI::App& app, DoctorOptions& options, std::function<int()>& chosen);
/// Looks at build, machine and shell, as a job of so many ranks (0: SLURM's tasks here, or else 2) would, and prints
/// what it found. 1 when something prevents training, or a way of starting it that this build has; else 0.
int doctor_command(int ranks);
/// Times what connects the ranks of this job, or two on this machine, and writes it for `shardgrad plan --network`.
int measure_command(const DoctorOptions& options);

/// Adds the command `tokenizer` with its own commands, the chosen one of which becomes `chosen`.
void add_tokenizer(CLI::App& app, std::function<int()>& chosen);

/// The text of `shardgrad --version`.
std::string version_text();

}  // namespace shardgrad::cli
