#include <algorithm>
#include <iomanip>
#include <sstream>

#include <shardgrad/core/error.h>
#include <shardgrad/train/doctor/finding.h>
#include <shardgrad/train/terminal.h>

namespace shardgrad::train::doctor {
namespace {

constexpr int kState = 9, kGroup = 11;

const char* word_of(State state) {
  constexpr const char* names[] = {"ok", "note", "problem"};
  return names[int(state)];
}

std::string sum(const Findings& findings) {
  auto problems = std::ranges::count(findings, State::problem, &Finding::state);
  if (problems == 0) return "nothing here prevents training\n";
  return concat(problems, problems == 1 ? " problem prevents" : " problems prevent",
                " training, or a way of starting it; what to do stands behind the arrow\n");
}

}  // namespace

Finding told(const std::string& group, State state, const std::string& sentence, const std::string& otherwise) {
  size_t end = sentence.rfind("; ");
  if (end == sentence.npos) return {group, state, sentence, otherwise};
  return {group, state, sentence.substr(0, end), sentence.substr(end + 2)};
}

bool has_problem(const Findings& findings) { return std::ranges::count(findings, State::problem, &Finding::state) > 0; }

std::string screen(const std::string& title, const Findings& findings, int columns) {
  columns = std::max(columns, 40);
  std::ostringstream out;
  auto paragraph = [&](const std::string& text, const std::string& front, int at) {
    std::string before = front;
    for (const std::string& line : broken(text, columns - at)) {
      out << before << line << "\n";
      before = std::string(size_t(at), ' ');
    }
  };
  paragraph(title, "", 0);
  std::string group;
  for (const Finding& finding : findings) {
    std::ostringstream front;
    front << std::left << std::setw(kState) << word_of(finding.state) << std::setw(kGroup)
          << (finding.group == group ? "" : finding.group);
    group = finding.group;
    paragraph(finding.what, front.str(), kState + kGroup);
    if (!finding.remedy.empty()) paragraph("→ " + finding.remedy, std::string(kState + kGroup, ' '), kState + kGroup);
  }
  paragraph(sum(findings), "", 0);
  return out.str();
}

}  // namespace shardgrad::train::doctor
