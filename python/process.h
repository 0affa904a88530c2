#pragma once
// What the interpreter has one of: the context of its threads, and the group of ranks. A process that no launcher has
// started as one of several has both from the first tensor on, and no guard: its errors are Python's alone.

#include <exception>

#include <shardgrad/python/job.h>

namespace shardgrad::python {

/// The group of all ranks. Throws Error(input) before dist.init() where a launcher has started several processes, and
/// after the job's end.
dist::ProcessGroup& world();
/// Whether somebody has asked the program to save and end.
bool stop_requested();
/// While it lives, world() is a pretended one: a plan's.
class PretendedWorld {
 public:
  explicit PretendedWorld(dist::ProcessGroup& group);
  ~PretendedWorld();
  PretendedWorld(const PretendedWorld&) = delete;
};
/// In a child that os.fork has made: the job, and the threads of its parent, are not the child's.
void forked();
/// The interpreter is about to end.
void exiting();
/// Keeps a group as long as the world.
dist::ProcessGroup& keep(std::unique_ptr<dist::ProcessGroup> group);
/// Whether ranks have met, or one alone has begun.
bool has_context();
/// Throws Error(input) for a second one, and on a thread that is not the one which imported the library. False: the job
/// did not begin, and why has been printed.
bool begin(const dist::JobOptions& options);
/// Whether there are several ranks, whose job end() ends.
bool has_job();
/// Leaves it; with an error the job ends by it, everywhere. The exit code.
int end(std::exception_ptr error);

}  // namespace shardgrad::python
