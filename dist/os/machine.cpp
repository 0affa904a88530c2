#include <shardgrad/dist/os/machine.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {

bool is_program(const std::string& name) {
  if (name.find('/') != name.npos) return access(name.c_str(), X_OK) == 0;
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    if (access(concat(folder, "/", name).c_str(), X_OK) == 0) return true;
  return false;
}

bool can_read_other_processes() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  if (file >> scope && scope > 0 && geteuid() != 0) return false;
  char from = 1, to = 0;
  iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

bool has_loopback() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return true;
  bool found = false;
  for (const ifaddrs* i = all; i; i = i->ifa_next) found |= (i->ifa_flags & IFF_LOOPBACK) && (i->ifa_flags & IFF_UP);
  freeifaddrs(all);
  return found;
}

std::string temporary_folder() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen ? chosen : "/tmp";
}

std::string why_not_writable(const std::string& folder) {
  std::string trial = folder + "/shardgrad-XXXXXX";
  if (!mkdtemp(trial.data())) return std::strerror(errno);  // root may write anywhere, as far as permissions say
  rmdir(trial.c_str());
  return "";
}

std::string why_no_proc() {
  char target[1];
  return readlink("/proc/self/exe", target, sizeof target) < 0 ? std::strerror(errno) : "";
}

}  // namespace shardgrad::dist
