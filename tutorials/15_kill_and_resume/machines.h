#pragma once
// A disk whose power can go, and ranks that are processes of this machine: of one job, or as if each had a host of its
// own.

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <shardgrad/dist/launch/launch_local.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

/// Files, and which of them the disk really has.
class Disk {
 public:
  struct PowerGone {};
  void write(const std::string& file, const std::string& text) { act(), files_[file] = {text, false}; }
  void sync(const std::string& file) { act(), find(file).synced = true; }
  void rename(const std::string& from, const std::string& to) {
    act();
    files_[to] = find(from);
    files_.erase(from);
  }
  std::optional<std::string> read(const std::string& file) const {
    auto found = files_.find(file);
    return found == files_.end() ? std::nullopt : std::optional(found->second.text);
  }
  /// After so many actions the power goes in the place of the next one, which throws PowerGone.
  void cut_power_after(int actions) { left_ = actions; }
  /// What was not synced is torn.
  void lose_power() {
    for (auto& [name, file] : files_) {
      if (!file.synced) file.text.resize(file.text.size() / 2);
      file.synced = true;
    }
  }

 private:
  struct File {
    std::string text;
    bool synced;
  };
  File& find(const std::string& file) {
    auto found = files_.find(file);
    SG_CHECK(found != files_.end(), "this disk has no file '", file, "'");
    return found->second;
  }
  void act() {
    if (left_-- == 0) throw PowerGone();
  }
  std::map<std::string, File> files_;
  int left_ = -1;
};

/// How processes have ended, by rank: 128 + n for signal n, as a shell says it. And the last line of what they said.
struct Ends {
  std::vector<int> codes;
  std::string last_line;
};

inline int free_port() {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(listener);
  SG_CHECK(bound, "this machine has no free port");
  return ntohs(address.sin_port);
}

/// Starts `started` of a job of so many ranks, each as somebody would on a host of its own: told by its environment who
/// it is, and where rank 0 listens. Their standard error goes to one file.
inline Ends on_hosts(const char* what, int ranks, const std::vector<int>& started, const std::string& file,
                     const std::function<void(sg::dist::ProcessGroup&)>& body) {
  std::fflush(nullptr);  // a forked process has what is not written yet
  std::string port = std::to_string(free_port());
  std::vector<pid_t> processes;
  for (int rank : started) {
    processes.push_back(fork());
    if (processes.back() != 0) continue;
    int log = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0 || dup2(log, STDERR_FILENO) < 0) _exit(1);
    setenv("RANK", std::to_string(rank).c_str(), 1), setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("MASTER_ADDR", "localhost", 1), setenv("MASTER_PORT", port.c_str(), 1);
    auto one_thread = [](const sg::dist::Bootstrap&) { return sg::dist::JobOptions{.context = {.threads = 1}}; };
    _exit(sg::dist::run_job([&](sg::dist::Job& job) { return body(job.world()), 0; }, one_thread));
  }
  Ends ends;
  for (pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    ends.codes.push_back(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  std::string text = sg::train::read_file(file, sg::train::kRecord);
  if (text.ends_with('\n')) text.pop_back();
  ends.last_line = text.substr(text.rfind('\n') + 1);
  for (int code : ends.codes) std::cout << what << ": code " << code << "\n";
  if (!ends.last_line.empty()) std::cout << ends.last_line << "\n";
  return ends;
}

/// A job of ranks that are processes of one machine: its exit code, and why that is not 0.
inline Ends job(int ranks, const std::function<void(sg::dist::ProcessGroup&)>& body) try {
  std::fflush(nullptr);
  sg::dist::spawn(ranks, body, {.context = {.threads = 1}});
  return {{0}, ""};
} catch (const sg::Error& error) {
  return {{int(error.kind())}, error.what()};
}

/// What ranks tell, in memory that their processes share.
struct Told {
  int64_t steps, shard_bytes;
};
/// When a run is killed.
struct Accident {
  int64_t in_step = -1, in_save = -1;
};

/// Memory that forked processes share.
template <class T> T& shared() {
  return *new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) T{};
}

/// Removed in the end, with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() { std::filesystem::create_directories(path_); }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string path(const std::string& name) const { return path_ / name; }
  /// One in it, which is made.
  std::string folder(const std::string& name) const {
    std::filesystem::create_directories(path_ / name);
    return path_ / name;
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("shardgrad-rung-15-" + std::to_string(getpid()));
};

/// What lies in a folder, in order: each name up to its second dash.
inline std::string names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    names.insert(name.substr(0, name.find('-', name.find('-') + 1)));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Bytes of the tensors in the two files of a checkpoint: a file begins with the length of its header.
inline int64_t tensor_bytes(const std::string& checkpoint) {
  int64_t bytes = 0;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    std::string text = sg::train::read_file(checkpoint + file, sg::train::kRecord);
    bytes += int64_t(text.size()) - 8 - *reinterpret_cast<const int64_t*>(text.data());
  }
  return bytes;
}
