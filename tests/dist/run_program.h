#pragma once
// Runs a command line and keeps what it says.

#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

namespace shardgrad::dist::testing {

struct Ran {
  int code;
  std::string output;  ///< standard output and error together
  double seconds;
  std::string last_line() const {
    size_t end = output.find_last_not_of('\n'), begin = output.rfind('\n', end);
    return output.substr(begin + 1, end - begin);
  }
};

inline Ran run_program(const std::string& command) {
  auto begin = std::chrono::steady_clock::now();
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Ran ran{0, "", 0};
  for (int c; (c = std::fgetc(pipe)) != EOF;) ran.output += char(c);
  int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ran;
}

/// The program of this name beside the test's own, quoted for the shell.
inline std::string program(const std::string& name) {
  return "'" + std::filesystem::read_symlink("/proc/self/exe").replace_filename(name).string() + "'";
}

/// Processes that have `token` among their arguments.
inline int processes_with(const std::string& token) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ostringstream text;
    text << std::ifstream(entry.path() / "cmdline").rdbuf();  // of a process that ends meanwhile nothing
    count += text.view().find(token) != std::string_view::npos;
  }
  return count;
}

/// True when within so many seconds no process with `token` is left.
inline bool all_gone(const std::string& token, int seconds = 2) {
  for (int i = 0; i < 10 * seconds; ++i) {
    if (processes_with(token) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

}  // namespace shardgrad::dist::testing
