#include <shardgrad/python/job.h>

namespace shardgrad::python {

RunningJob::RunningJob(const dist::JobOptions& options) {
  thread_ = Thread([this, options] {
    auto configured = [&](const dist::Bootstrap&) { return options; };
    int code = dist::run_job([this](dist::Job& job) { return body(job); }, configured);
    std::lock_guard lock(mutex_);
    code_ = code;
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return job_ || code_; });
  if (!job_) return;
  scope_.emplace(*context_);
  job_->world().take_over();
}

RunningJob::~RunningJob() {
  if (thread_.joinable()) finish(nullptr);
}

int RunningJob::body(dist::Job& job) {
  std::unique_lock lock(mutex_);
  context_ = Context::current();
  job_ = &job;
  changed_.notify_all();
  changed_.wait(lock, [&] { return leave_; });
  groups_.clear();
  if (error_) std::rethrow_exception(error_);
  return 0;
}

int RunningJob::finish(std::exception_ptr error) {
  scope_.reset();
  {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
    leave_ = true;
    changed_.notify_all();
  }
  thread_.join();
  return *code_;
}

}  // namespace shardgrad::python
