#pragma once
// A job around a program of Python's. dist::run_job is a guard around a function; here the program goes on beside it: a
// thread of the job's own is inside the guard and waits, while the program's thread computes in the job's context.
//
//     the program's thread      init() ────── computes, sends ────── finish(): leaves the context
//     the job's thread                │ run_job: finds the ranks …  waits  … └─ the guard ends well, or by an error │

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <shardgrad/core/thread.h>
#include <shardgrad/dist/launch/job.h>

namespace shardgrad::python {

class RunningJob {
 public:
  /// Returns when the ranks have met; then begun() says whether they have. The guard prints what went wrong.
  explicit RunningJob(const dist::JobOptions& options);
  ~RunningJob();
  RunningJob(const RunningJob&) = delete;
  bool begun() const { return job_ != nullptr; }
  dist::Job& job() { return *job_; }
  Context& context() { return *context_; }
  /// Keeps a group until the job ends.
  void keep(std::unique_ptr<dist::ProcessGroup> group) { groups_.push_back(std::move(group)); }
  /// The calling thread, which had made it, leaves the job. With an error the job ends by it, everywhere. The exit
  /// code.
  int finish(std::exception_ptr error);

 private:
  int body(dist::Job& job);
  std::mutex mutex_;
  std::condition_variable changed_;
  dist::Job* job_ = nullptr;
  Context* context_ = nullptr;
  std::optional<ContextScope> scope_;  // of the program's thread
  std::vector<std::unique_ptr<dist::ProcessGroup>> groups_;
  bool leave_ = false;
  std::exception_ptr error_;
  std::optional<int> code_;
  Thread thread_;
};

}  // namespace shardgrad::python
