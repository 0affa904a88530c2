#include <shardgrad/train/text/bpe_trainer.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include <shardgrad/core/error.h>

namespace shardgrad::text {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const { return std::hash<uint64_t>()(uint64_t(pair.first) << 32 | pair.second); }
};

struct Frequent {
  int64_t count;
  Pair pair;
  bool operator<(const Frequent& other) const { return count != other.count ? count < other.count : pair > other.pair; }
};

// The words as tokens, and where each pair of them stands.
class Words {
 public:
  void add(std::string_view word, int64_t count) {
    Word& added = words_.emplace_back();
    added.count = count;
    for (char byte : word) added.ids.push_back(uint8_t(byte));
    count_pairs(words_.size() - 1, 1);
  }
  void begin() {
    for (const auto& [pair, seen] : pairs_) queue_.push({seen.count, pair});
  }
  /// The pair that stands most often, if one stands twice.
  std::optional<Pair> best() {
    while (!queue_.empty()) {
      Frequent top = queue_.top();
      queue_.pop();
      int64_t now = pairs_.at(top.pair).count;
      if (now == top.count && now >= 2) return top.pair;
      if (now >= 2) queue_.push({now, top.pair});  // some of them were merged with others
    }
    return {};
  }
  void merge(const Pair& pair, uint32_t result) {
    std::vector<size_t> where = std::move(pairs_.at(pair).words);
    grown_.clear();
    newest_ = result;
    for (size_t index : where) {
      count_pairs(index, -1);
      replace(words_[index].ids, pair, result);
      count_pairs(index, 1);
    }
    for (const Pair& grown : grown_) queue_.push({pairs_.at(grown).count, grown});
  }

 private:
  struct Word {
    std::vector<uint32_t> ids;
    int64_t count = 0;
  };
  struct Seen {
    int64_t count = 0;
    std::vector<size_t> words;  // in which it stands, or stood; each once in a row
  };
  void count_pairs(size_t index, int64_t sign) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
      Pair pair{word.ids[i], word.ids[i + 1]};
      bool is_new = pair.first == newest_ || pair.second == newest_;
      Seen& seen = pairs_[pair];
      seen.count += sign * word.count;
      bool first_time = newest_ == kNoToken || is_new;
      if (sign > 0 && first_time && (seen.words.empty() || seen.words.back() != index)) seen.words.push_back(index);
      if (sign > 0 && is_new) grown_.insert(pair);
    }
  }
  static void replace(std::vector<uint32_t>& ids, const Pair& pair, uint32_t result) {
    size_t to = 0;
    for (size_t i = 0; i < ids.size(); ++to) {
      bool here = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
      ids[to] = here ? result : ids[i];
      i += here ? 2 : 1;
    }
    ids.resize(to);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Seen, PairHash> pairs_;
  std::priority_queue<Frequent> queue_;
  std::set<Pair> grown_;
  uint32_t newest_ = kNoToken;
};

std::vector<AddedToken> added_of(const std::vector<std::string>& special) {
  std::vector<AddedToken> added;
  for (const std::string& text : special) added.push_back({text, uint32_t(added.size()), true, true});
  return added;
}

}  // namespace

BpeTrainer::BpeTrainer(BpeTraining options)
    : options_(std::move(options)),
      steps_{{std::make_shared<Pattern>(kGpt2Pattern)}},
      cut_at_(added_of(options_.special)) {
  std::set<std::string> names(options_.special.begin(), options_.special.end());
  SG_CHECK(names.size() == options_.special.size() && !names.contains(""),
           "special tokens must differ, and none may be empty");
  int64_t least = 256 + std::ssize(options_.special);
  SG_CHECK(options_.vocab_size >= least && options_.vocab_size <= kMostTokens, "the vocabulary is to have ",
           options_.vocab_size, " tokens; 256 bytes and ", options_.special.size(), " special ones take ", least,
           ", and ", kMostTokens, " are the most");
}

void BpeTrainer::add(std::string_view text) {
  auto count = [this](std::string_view word) {
    auto found = counts_.find(word);
    if (found == counts_.end()) found = counts_.emplace(word, 0).first;
    ++found->second;
  };
  cut_at_.cut(
      text, true, [&](std::string_view piece) { cut(piece, steps_, count); }, [](uint32_t) {});
}

NewBpe BpeTrainer::train() const {
  NewBpe bpe{.tokens = {}, .merges = {}, .special = options_.special};
  for (int byte = 0; byte < 256; ++byte) bpe.tokens.emplace_back(1, char(byte));
  Words words;
  for (const auto& [word, count] : std::map<std::string_view, int64_t>(counts_.begin(), counts_.end()))
    words.add(word, count);
  words.begin();
  size_t learned = size_t(options_.vocab_size) - options_.special.size();
  while (bpe.tokens.size() < learned) {
    std::optional<Pair> best = words.best();
    if (!best) break;
    auto id = uint32_t(bpe.tokens.size());
    bpe.tokens.push_back(bpe.tokens[best->first] + bpe.tokens[best->second]);
    bpe.merges.push_back({best->first, best->second, id});
    words.merge(*best, id);
  }
  return bpe;
}

}  // namespace shardgrad::text
