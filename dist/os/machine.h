#pragma once
// What this machine lets a job do, tried out. Of `launch`, and of who examines the machine before it.

#include <string>

namespace shardgrad::dist {

/// Whether PATH leads to a program of this name; of one with a slash, whether it is there.
bool is_program(const std::string& name);

/// Whether a process may read another one's memory (process_vm_readv), by which Open MPI copies between ranks. Some
/// containers and kernels refuse it.
bool can_read_other_processes();

/// Whether the loopback interface is there and up. True where the system does not tell.
bool has_loopback();

/// The folder for temporary files: TMPDIR, or /tmp.
std::string temporary_folder();
/// Why nothing can be made in a folder, in the system's words; empty when something can.
std::string why_not_writable(const std::string& folder);

/// Why the system does not tell of processes, in its own words: /proc is not mounted. Empty when it does.
std::string why_no_proc();
/// What is to be done about that.
inline constexpr const char* kMountProc = "ranks find each other through /proc: mount it (mount -t proc proc /proc)";

/// What is to be done where the system starts no further process or thread.
inline constexpr const char* kFewerOrMore =
    "use fewer ranks, or raise the limit (ulimit -u, ulimit -v, or pids.max of the container)";

}  // namespace shardgrad::dist
