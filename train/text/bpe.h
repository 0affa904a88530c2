#pragma once
// Byte pair encoding: the bytes of a word are tokens, of which neighbours are merged, the pair that was learned first
// before all others and the leftmost first among equal ones, until no pair is known.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace shardgrad::text {

inline constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

/// Two tokens that become one. Their order is that in which they were learned.
struct Merge {
  uint32_t left, right, result;
};

/// For maps whose keys are looked up by a view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T> using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

class Bpe {
 public:
  struct Model {
    std::array<uint32_t, 256> bytes{};  ///< the token of each byte; kNoToken: none
    std::vector<Merge> merges{};
    TextMap<uint32_t> whole_words{};  ///< words that are a token without any merge
  };
  /// Of the merges of one pair the last one counts.
  explicit Bpe(Model model);

  /// Encodes words, each of which it may see often. Not for several threads at once.
  class Encoder {
   public:
    explicit Encoder(const Bpe& bpe) : bpe_(bpe) {}
    /// The ids, until the next call. Throws Error(input) for a byte that has no token.
    std::span<const uint32_t> encode(std::string_view word);

   private:
    struct Symbol {
      uint32_t id;
      int32_t before, after;  // the neighbours that are left; -1: none
      bool merged = false;    // into the one before it
    };
    struct Candidate {
      uint32_t rank, result;
      int32_t at;
      bool operator<(const Candidate& other) const;
    };
    void merge_all(std::string_view word);
    void begin(std::string_view word);
    void add_candidate(int32_t at);
    void merge(const Candidate& best);

    const Bpe& bpe_;
    struct Place {
      size_t begin, count;
    };
    TextMap<Place> known_;
    std::vector<uint32_t> ids_of_known_, ids_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> candidates_;  // a heap
  };

 private:
  struct Ranked {
    uint32_t rank, result;
  };
  const Ranked* find(uint32_t left, uint32_t right) const;

  // A hash table of pairs: each lies at its place or after it, before the next that is free.
  struct Entry {
    uint64_t pair;
    Ranked ranked;
  };
  Model model_;
  std::vector<Entry> entries_;
};

}  // namespace shardgrad::text
