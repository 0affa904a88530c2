#pragma once
// A command's work on the ranks of a job, as its configuration says.

#include <functional>
#include <string>
#include <vector>

#include <shardgrad/dist/launch/job.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::cli {

/// What such a command was given.
struct RunOptions {
  const train::Registry* registry;
  std::string config;  ///< file
  std::vector<std::string> overrides;
  std::string group;                 ///< how ranks communicate; empty: chosen automatically
  std::vector<std::string> typed{};  ///< the whole command line
  dist::WhenTold when_told = dist::WhenTold::ends;
};

/// The key `device`. "auto": a GPU where there is one; `says_so` where there is none.
Device choose_device(const std::string& wish, bool says_so);

/// Where rank 0 shows progress. Nothing where standard output is no terminal, and on other ranks.
train::Terminal find_terminal(const dist::Job& job);

/// Reads the configuration, chooses kernels and device, and runs `body` on this rank. Returns the exit code.
int run_job(const RunOptions& options, const std::function<int(const train::Config&, dist::Job&)>& body);

}  // namespace shardgrad::cli
