#include <shardgrad/dist/launch/launch.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/bootstrap/roll_call.h>
#include <shardgrad/dist/bootstrap/shared_memory.h>
#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/dist/os/children.h>
#include <shardgrad/dist/os/machine.h>
#include <shardgrad/dist/os/process_watch.h>
#include <shardgrad/dist/os/relay.h>
#include <shardgrad/dist/os/report.h>

namespace shardgrad::dist {
namespace {

/// What mpirun gets to end the ranks, once the job has failed.
constexpr auto kGraceOfRanks = std::chrono::seconds(8);

// The first number of Open MPI's version; 0 for another MPI.
int open_mpi_version() {
  std::string library = mpi_library(), name = "Open MPI v";
  return library.starts_with(name) ? std::atoi(library.c_str() + name.size()) : 0;
}

std::string quoted_word(const std::string& text) {
  bool plain = !text.empty() && text.find_first_not_of(
                                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                    "_-+=./:,@%") == text.npos;
  if (plain) return text;
  std::ostringstream result;
  result << '\'';
  for (char c : text)
    if (c == '\'')
      result << "'\\''";
    else
      result << c;
  result << '\'';
  return result.str();
}

// What this machine lacks that Open MPI cannot start without; empty when nothing is known.
std::string what_mpirun_lacks() {
  std::string folder = temporary_folder(), why = why_not_writable(folder);
  if (!why.empty()) return concat("it must be able to write to '", folder, "' (TMPDIR): ", why);
  return has_loopback() ? "" : "it needs the loopback interface, which is not up here (ip link set lo up)";
}

int conclude(const Report& report, int status, MpirunWatch& watch) {
  int code = exit_code_of(status);
  if (report.has_cause()) {
    std::string cause = report.text.substr(report.text.find(' ') + 1);  // of any number of lines
    while (cause.ends_with('\n')) cause.pop_back();
    // The ranks may not have seen what killed one of them, but mpirun's exit code says it: 128 + signal.
    if (cause.ends_with(kUnknownEnd) && code > 128)
      cause.replace(cause.size() - std::strlen(kUnknownEnd), cause.npos, describe_status(code - 128));
    std::fprintf(stderr, "%s\n", cause.c_str());
    return std::atoi(report.text.c_str());
  }
  bool started = report.started();
  if (WIFEXITED(status) && code > 128 && sigabbrev_np(code - 128)) {
    std::string whose = watch.whose(code - 128), how = describe_status(code - 128);
    std::fprintf(stderr, "shardgrad: %s died: %s%s\n", whose.c_str(), how.c_str(),
                 started ? "" : ", before it had begun");
    return int(ErrorKind::rank_failed);
  }
  std::string lacks = started || WIFSIGNALED(status) ? "" : what_mpirun_lacks();
  if (!lacks.empty() && code != 0)
    std::fprintf(stderr, "shardgrad: mpirun %s: %s; or start the ranks without it: launch --by local\n",
                 describe_status(status).c_str(), lacks.c_str());
  else if (WIFSIGNALED(status) || (code != 0 && !started))
    std::fprintf(stderr, "shardgrad: mpirun %s; run the line above (without -q) to see what it says\n",
                 describe_status(status).c_str());
  return code;
}

int run_mpirun(int n, const std::vector<std::string>& argv, const LaunchOptions& options) {
  std::vector<std::string> command = mpirun_command(n, argv, options);
  std::fprintf(stderr, "%s\n", shell_line(command).c_str());

  auto report = SharedMemory::create("shardgrad-report", 4096);  // a file without a name
  // mpirun passes SIGUSR1 on to all ranks.
  auto all_here = [&](int) {
    Report said = read_report(report->path());
    bool here = said.started() || said.has_cause();
    for (int rank = 0; !here && said.here(rank); ++rank) here = rank == n - 1;
    return here;
  };
  Relay relay;  // what is left in it is passed on without the children, when signals end this process as usual
  std::optional<Children> started(std::in_place, all_here, SIGTERM, SIGTSTP);
  Children& children = *started;
  const char* terminal = ttyname(STDOUT_FILENO);  // where what the ranks say comes out
  children.start(command,
                 {"SHARDGRAD_CAUSE_FILE=" + report->path(), concat("SHARDGRAD_TERMINAL=", terminal ? terminal : "")},
                 SIGTERM, relay.input());
  int status = 0;
  MpirunWatch watch(report->path());
  auto deadline = std::chrono::steady_clock::time_point::max();
  while (children.alive() > 0) {
    for (const Children::Ended& ended : children.wait()) status = ended.status;
    if (std::string end = watch.look(); !end.empty())
      report_cause(report->path(), int(ErrorKind::rank_failed), "shardgrad: " + end);
    auto now = std::chrono::steady_clock::now();
    if (deadline > now + kGraceOfRanks && read_report(report->path()).has_cause()) deadline = now + kGraceOfRanks;
    if (now > deadline) children.signal(SIGKILL);  // mpirun hangs, or is stopped
  }
  started.reset();
  bool lost = !relay.finish();
  if (lost) std::fprintf(stderr, "%s\n", kOutputLost);
  int code = conclude(read_report(report->path()), status, watch);
  return lost && code == 0 ? int(ErrorKind::input) : code;
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
  std::ostringstream line;
  for (const std::string& word : words) line << (&word == &words[0] ? "" : " ") << quoted_word(word);
  return line.str();
}

std::vector<std::string> mpirun_command(int n, const std::vector<std::string>& argv, const LaunchOptions& options) {
  int threads = wanted_threads(options.threads, std::getenv("OMP_NUM_THREADS"), usable_cores() / n);
  std::vector<std::string> command = {"mpirun", "-n", std::to_string(n)};
  auto add = [&](std::initializer_list<const char*> words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  if (int version = open_mpi_version()) {
    if (geteuid() == 0) add({"--allow-run-as-root"});
    add({"--oversubscribe", "--bind-to", "none"});  // Open MPI counts cores, and refuses more ranks than those
    bool copies = can_read_other_processes();
    if (version < 5) {
      add({"-q"});  // no pages of text about a failure that we name in one line
      if (!copies) add({"--mca", "btl_vader_single_copy_mechanism", "none"});
    } else {
      add({"--mca", "btl_tcp_if_include", "lo"});  // Debian's 5.0 warns of machines with IPv4 and IPv6
      if (!copies) add({"--mca", "smsc", "^cma"});
    }
    add({"-x"});
    command.push_back(concat("OMP_NUM_THREADS=", threads));
  }
  command.insert(command.end(), argv.begin(), argv.end());
  return command;
}

int launch(int n, const std::vector<std::string>& argv, const LaunchOptions& options) {
  SG_CHECK(n >= 1, "launch: ", n, " ranks are not possible");
  SG_CHECK(!argv.empty(), "launch: there is no program to run");
  SG_CHECK(options.threads >= 0, "launch: ", options.threads, " threads are not possible; 0 shares the cores");
  SG_CHECK(options.by.empty() || options.by == "mpi" || options.by == "local", "launch: there is no way '", options.by,
           "'; choose mpi or local");
  SG_CHECK(is_program(argv[0]), "launch: there is no program '", argv[0], "'");
  bool mpi = !mpi_library().empty() && is_program("mpirun");
  if (options.by == "mpi" && !mpi)
    fail_as(ErrorKind::missing,
            mpi_library().empty() ? "launch: this build has no MPI" : "launch: mpirun is not in PATH",
            "; leave out 'mpi' to start the ranks of this machine without it");
  return mpi && options.by != "local" ? run_mpirun(n, argv, options) : launch_local(n, argv, options.threads);
}

}  // namespace shardgrad::dist
