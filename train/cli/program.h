#pragma once
// The `shardgrad` program: commands, options and exit codes. main() only calls run.

#include <string>
#include <vector>

namespace shardgrad::cli {

/// Runs a command line and returns the exit code: 0 done, 2 refused input, 3 missing device or library, 4 a rank
/// failed, 75 saved on a signal.
int run(int argc, char** argv);

/// What `shardgrad train` was given.
struct TrainOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string group;  ///< how ranks communicate; empty: chosen automatically
};
int train_command(const TrainOptions& options);

/// What `shardgrad plan` was given.
struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  int ranks = 1;
  bool measure = false;
};
int plan_command(const PlanOptions& options);

/// What `shardgrad certify` was given.
struct CertifyOptions {
  std::string op, device = "cpu";
  std::vector<std::string> libraries, use;  ///< use: "layer_norm=mine"
};
/// Prints which properties of certify/certify.h hold, and speeds when all do; 1 when one does not.
int certify_command(const CertifyOptions& options);

/// The text of `shardgrad --version`.
std::string version_text();

}  // namespace shardgrad::cli
