#include <shardgrad/train/text/bpe.h>

#include <algorithm>
#include <bit>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad::text {
namespace {

constexpr uint64_t kFree = ~uint64_t(0);  // of no pair: kNoToken is merged with nothing

uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t(left) << 32 | right; }

// The upper bits of a product with 2^64 / golden ratio.
size_t place_of(uint64_t pair, size_t places) {
  return size_t((pair ^ pair >> 29) * 0x9E3779B97F4A7C15 >> (64 - std::bit_width(places - 1)));
}

}  // namespace

Bpe::Bpe(Model model) : model_(std::move(model)) {
  size_t places = std::bit_ceil(2 * model_.merges.size() + 2);
  entries_.assign(places, {kFree, {}});
  for (size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const Merge& merge = model_.merges[rank];
    uint64_t pair = pair_of(merge.left, merge.right);
    size_t at = place_of(pair, places);
    while (entries_[at].pair != kFree && entries_[at].pair != pair) at = (at + 1) & (places - 1);
    entries_[at] = {pair, {uint32_t(rank), merge.result}};
  }
}

const Bpe::Ranked* Bpe::find(uint32_t left, uint32_t right) const {
  uint64_t pair = pair_of(left, right);
  for (size_t at = place_of(pair, entries_.size());; at = (at + 1) & (entries_.size() - 1)) {
    if (entries_[at].pair == pair) return &entries_[at].ranked;
    if (entries_[at].pair == kFree) return nullptr;
  }
}

// The best one is the largest, as a heap has it first.
bool Bpe::Encoder::Candidate::operator<(const Candidate& other) const {
  return rank != other.rank ? rank > other.rank : at > other.at;
}

void Bpe::Encoder::add_candidate(int32_t at) {
  if (at < 0 || symbols_[size_t(at)].after < 0) return;
  const Ranked* found = bpe_.find(symbols_[size_t(at)].id, symbols_[size_t(symbols_[size_t(at)].after)].id);
  if (!found) return;
  candidates_.push_back({found->rank, found->result, at});
  std::push_heap(candidates_.begin(), candidates_.end());
}

void Bpe::Encoder::begin(std::string_view word) {
  SG_CHECK(word.size() < size_t(std::numeric_limits<int32_t>::max()), "a word of ", word.size(), " bytes");
  symbols_.clear();
  candidates_.clear();
  for (char byte : word) {
    uint32_t id = bpe_.model_.bytes[uint8_t(byte)];
    SG_CHECK(id != kNoToken, "the tokenizer has no token for the byte ", int(uint8_t(byte)));
    auto at = int32_t(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1});
  }
  symbols_.back().after = -1;
  for (int32_t at = 0; at < int32_t(symbols_.size()); ++at) add_candidate(at);
}

// One that was found before its symbols were merged with others is no pair any more.
void Bpe::Encoder::merge(const Candidate& best) {
  Symbol& left = symbols_[size_t(best.at)];
  if (left.merged || left.after < 0) return;
  Symbol& right = symbols_[size_t(left.after)];
  const Ranked* now = bpe_.find(left.id, right.id);
  if (!now || now->result != best.result) return;
  right.merged = true;
  left.id = best.result;
  left.after = right.after;
  if (left.after >= 0) symbols_[size_t(left.after)].before = best.at;
  add_candidate(left.before);
  add_candidate(best.at);
}

void Bpe::Encoder::merge_all(std::string_view word) {
  begin(word);
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    Candidate best = candidates_.back();
    candidates_.pop_back();
    merge(best);
  }
  for (int32_t at = 0; at >= 0; at = symbols_[size_t(at)].after) ids_.push_back(symbols_[size_t(at)].id);
}

std::span<const uint32_t> Bpe::Encoder::encode(std::string_view word) {
  constexpr size_t kLongestKnown = 64, kMostKnown = 1 << 17;  // bytes, words
  auto known = known_.find(word);
  if (known != known_.end()) return std::span(ids_of_known_).subspan(known->second.begin, known->second.count);
  ids_.clear();
  auto whole = bpe_.model_.whole_words.find(word);
  if (whole != bpe_.model_.whole_words.end())
    ids_.push_back(whole->second);
  else
    merge_all(word);
  if (word.size() <= kLongestKnown && known_.size() < kMostKnown) {
    known_.emplace(word, Place{ids_of_known_.size(), ids_.size()});
    ids_of_known_.insert(ids_of_known_.end(), ids_.begin(), ids_.end());
  }
  return ids_;
}

}  // namespace shardgrad::text
