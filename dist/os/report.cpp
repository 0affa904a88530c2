#include <shardgrad/dist/os/report.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <shardgrad/core/error.h>

namespace shardgrad::dist {
namespace {

constexpr const char* kStarted = "started\n";

std::string line_of(int rank) { return concat("here: rank ", rank, '\n'); }

/// The file, open and locked; closed when it goes.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags, int lock) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ >= 0) flock(descriptor_, lock);
  }
  ~LockedFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  LockedFile(const LockedFile&) = delete;
  bool is_open() const { return descriptor_ >= 0; }
  Report read() const {
    Report report;
    char piece[4096];
    for (ssize_t got; (got = pread(descriptor_, piece, sizeof(piece), off_t(report.text.size()))) > 0;)
      report.text.append(piece, size_t(got));
    report.text.resize(report.text.find_last_not_of('\0') + 1);  // new memory is zero
    return report;
  }
  bool write(const std::string& text) const {
    return ftruncate(descriptor_, 0) == 0 && pwrite(descriptor_, text.data(), text.size(), 0) == ssize_t(text.size());
  }

 private:
  int descriptor_;
};

}  // namespace

bool Report::here(int rank) const { return text.find(line_of(rank)) != text.npos; }
bool Report::anybody_here() const { return text.starts_with("here: "); }
bool Report::started() const { return text.starts_with(kStarted); }
bool Report::has_cause() const { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

Report read_report(const std::string& path) {
  LockedFile file(path, O_RDONLY, LOCK_SH);
  return file.is_open() ? file.read() : Report();
}

void report_here(const std::string& path, int rank) {
  LockedFile file(path, O_RDWR | O_CREAT, LOCK_EX);
  if (!file.is_open()) return;
  Report report = file.read();
  if (!report.started() && !report.has_cause()) file.write(report.text + line_of(rank));
}

void report_met(const std::string& path) {
  LockedFile file(path, O_RDWR | O_CREAT, LOCK_EX);
  if (file.is_open() && !file.read().has_cause()) file.write(kStarted);
}

bool report_cause(const std::string& path, int code, const std::string& line) {
  LockedFile file(path, O_RDWR | O_CREAT, LOCK_EX);
  return file.is_open() && (file.read().has_cause() || file.write(concat(code, ' ', line, '\n')));
}

}  // namespace shardgrad::dist
