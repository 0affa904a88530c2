#include <shardgrad/train/nearest.h>

#include <algorithm>
#include <vector>

namespace shardgrad::train {
namespace {

size_t slips(std::string_view a, std::string_view b) {
  std::vector rows(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& least = rows[i][j];
      least = i + j;  // where one of them is empty
      if (i == 0 || j == 0) continue;
      least = std::min({rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]), rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) least = std::min(least, rows[i - 2][j - 2] + 1);
    }
  return rows[a.size()][b.size()];
}

}  // namespace

std::optional<size_t> distance(std::string_view word, std::string_view choice) {
  if (word == choice) return 0;
  constexpr size_t kShortest = 3;  // of a beginning that says something
  if (std::min(word.size(), choice.size()) >= kShortest && (word.starts_with(choice) || choice.starts_with(word)))
    return 1;
  size_t most = word.size() / 3, longer = std::max(word.size(), choice.size());
  if (longer - std::min(word.size(), choice.size()) > most) return {};
  size_t found = slips(word, choice);
  return found <= most ? std::optional(found) : std::nullopt;
}

std::string nearest(std::string_view word, std::span<const std::string> choices) {
  std::string best;
  std::optional<size_t> least;
  for (const std::string& choice : choices)
    if (auto found = distance(word, choice); found && (!least || *found < *least)) {
      least = found;
      best = choice;
    }
  return best;
}

}  // namespace shardgrad::train
