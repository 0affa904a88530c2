#include <shardgrad/dist/bootstrap/roll_call.h>

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/os/rank_map.h>
#include <shardgrad/dist/os/report.h>

namespace shardgrad::dist {

using namespace std::chrono_literals;

RollCall::RollCall() : limit_(rendezvous_limit()), warn_after_(std::min<std::chrono::milliseconds>(60s, limit_ / 2)) {}

std::string RollCall::look(const RankProcesses& missing) {
  for (const auto& [rank, pids] : missing)
    for (pid_t pid : pids) stillness_.try_emplace(pid, pid).first->second.look();
  std::string end = those_still_for(limit_, missing);
  if (!end.empty()) return end + "; the other ranks wait for it (SHARDGRAD_RENDEZVOUS_SECONDS sets how long)";
  std::string still = warned_ ? "" : those_still_for(warn_after_, missing);
  if (!still.empty()) {
    warned_ = true;
    std::fprintf(stderr, "shardgrad: %s; the other ranks wait for it\n", still.c_str());
  }
  return "";
}

// "rank 1 (pid 7) has not begun and has done nothing for 60 s (stopped by a signal)"
std::string RollCall::those_still_for(std::chrono::milliseconds limit, const RankProcesses& missing) const {
  constexpr int kSaid = 3;
  std::ostringstream text;
  std::vector<int> more;
  int said = 0;
  for (const auto& [rank, pids] : missing) {
    auto time_of = [this](pid_t pid) { return stillness_.at(pid).time(); };
    auto least = std::ranges::min_element(pids, {}, time_of);
    if (least == pids.end() || time_of(*least) < limit) continue;
    if (++said > kSaid) {
      more.push_back(rank);
      continue;
    }
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time_of(*least)).count();
    text << (text.tellp() > 0 ? ", and " : "") << "rank " << rank << " (pid " << pids.back()
         << ") has not begun and has done nothing for " << seconds << " s" << why_still(pids.back());
  }
  if (!more.empty()) text << ", nor have " << list_of(more);
  return std::move(text).str();
}

// Empty where the process ends meanwhile: the read of its file then fails, which iterators over the buffer would throw.
static std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

// The value of a variable in the text of /proc/PID/environ.
static const char* value_in(const std::string& environment, const std::string& name) {
  std::string begin = '\0' + name + '=';
  size_t at = ('\0' + environment).find(begin);
  return at == environment.npos ? nullptr : environment.c_str() + at + begin.size() - 1;
}

static RankProcesses ranks_that_report_to(const std::string& report) {
  RankProcesses found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::string name = entry.path().filename(), environment;
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    environment = text_of(entry.path() / "environ");
    const char* file = value_in(environment, "SHARDGRAD_CAUSE_FILE");
    if (!file || file != report) continue;
    for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
      if (const char* rank = value_in(environment, variable)) {
        found[std::atoi(rank)].push_back(std::stoi(name));
        break;
      }
  }
  return found;
}

// Those that do not wait for the others themselves, or that something stops meanwhile.
static RankProcesses missing_among(const RankProcesses& ranks, const Report& report) {
  RankProcesses missing;
  for (const auto& [rank, pids] : ranks) {
    if (!report.here(rank) || !why_still(pids.back()).empty()) missing[rank] = pids;
  }
  return missing;
}

std::string MpirunWatch::look() {
  auto now = Clock::now();
  note_dead();
  if (met_ || now < next_) return "";
  next_ = now + std::min<Clock::duration>((now - began_) / 20, 1s);  // often at first: a rank may soon be gone
  Report report = read_report(report_);
  met_ = report.started() || report.has_cause();
  if (met_) return "";
  RankProcesses ranks = ranks_that_report_to(report_);
  for (const auto& [rank, pids] : ranks)
    for (pid_t pid : pids)
      if (!watched_.contains(pid)) watched_.emplace(pid, std::pair(rank, ProcessWatch(pid)));
  if (!report.anybody_here()) return "";  // nobody waits for others: perhaps it is no program of this library
  std::string end = roll_call_.look(missing_among(ranks, report));
  if (end.empty()) return "";
  note_dead();                                                     // whose numbers may be others' by now
  for (const auto& [pid, watched] : watched_) kill(pid, SIGKILL);  // mpirun would have them go on first
  return end;
}

void MpirunWatch::note_dead() {
  std::erase_if(watched_, [this](const auto& entry) {
    const auto& [rank, process] = entry.second;
    if (!process.died()) return false;
    first_ended_.try_emplace(process.how_it_ended(), concat("rank ", rank, " (pid ", entry.first, ")"));
    return true;
  });
}

std::string MpirunWatch::whose(int status) {
  note_dead();
  auto first = first_ended_.find(describe_status(status));
  return first == first_ended_.end() ? "a rank" : first->second;
}

}  // namespace shardgrad::dist
