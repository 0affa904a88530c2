#pragma once
// Who owns which byte. Every tensor, workspace and group buffer is entered with a category and a unit, so memory is
// tested and reported by name. What libraries allocate behind our back (MPI, OpenMP, oneDNN) is not counted.
//
// A category is declared where such bytes are owned, in the tree or in a program outside, and is its name:
//
//     namespace shardgrad::Category {
//     inline constexpr Kind lookup_table = named<"lookup_table">;
//     }
//     …
//     TagScope owner(Category::lookup_table);               // tensors made from here on are such bytes

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/core/home.h>

namespace shardgrad {

class Ledger;

namespace Category {
namespace detail {
struct Declared {
  const char* name;
  uint64_t hash;
};
template <size_t N> struct Name {
  char text[N];
  consteval Name(const char (&from)[N]) { std::copy_n(from, N, text); }
};
consteval uint64_t hash_of(std::string_view name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : name) hash = (hash ^ uint64_t(c)) * 0x100000001b3;
  return hash ^ hash >> 32;
}
template <Name name> inline constexpr Declared declared{name.text, hash_of(name.text)};
}  // namespace detail

/// What some bytes are for. In order of names.
class Kind {
 public:
  constexpr explicit Kind(const detail::Declared& declared) : declared_(&declared) {}
  constexpr const char* name() const { return declared_->name; }
  constexpr uint64_t hash() const { return declared_->hash; }
  constexpr bool operator==(const Kind& other) const { return declared_ == other.declared_ || hash() == other.hash(); }
  std::strong_ordering operator<=>(const Kind& other) const { return std::string_view(name()) <=> other.name(); }

 private:
  friend class shardgrad::Ledger;
  const detail::Declared* declared_;
};

inline const char* name_of(Kind category) { return category.name(); }

/// The category of this name, one in the whole program.
template <detail::Name name> inline constexpr Kind named{detail::declared<name>};

inline constexpr Kind activation = named<"activation">;  ///< what operations make
inline constexpr Kind borrowed = named<"borrowed">;      ///< memory that somebody else made and may look at
inline constexpr Kind other = named<"other">;
}  // namespace Category

/// The owner of some bytes. Unit 0 means "no unit".
struct Tag {
  Category::Kind category = Category::other;
  uint16_t unit = 0;
  bool operator==(const Tag&) const = default;
};

/// Current and peak bytes in total, per category, and per (category, unit). Safe to call from several threads.
class Ledger {
 public:
  void add(Tag tag, size_t bytes);
  void sub(Tag tag, size_t bytes);

  int64_t current() const { return total_.current.load(std::memory_order_relaxed); }
  int64_t peak() const { return total_.peak.load(std::memory_order_relaxed); }
  int64_t current(Category::Kind category) const;
  int64_t peak(Category::Kind category) const;
  int64_t current(Tag tag) const;
  int64_t peak(Tag tag) const;
  /// All that bytes were ever entered under, in order of names.
  std::vector<Category::Kind> categories() const;
  /// Starts new peaks at the current values.
  void reset_peaks();

  /// The `count` largest owners now, for messages: "activation 4096 bytes, gathered_parameter of 'layer0' 1024 bytes".
  std::string largest_owners(int count) const;

  /// The id of a unit name, registering it when new.
  uint16_t unit_id(std::string_view name);
  const std::string& unit_name(uint16_t id) const;
  int unit_count() const;
  /// Called after every change (bytes negative for a release); for tests and traces. Null removes it. There is one:
  /// throws Error(input) where another is still there. Once this has returned the one before is not called any more.
  /// It must neither make nor drop tensors nor call this: it is called under a lock.
  void on_change(std::function<void(Tag, int64_t bytes)> observer);
  bool is_observed() const { return observed_.load(std::memory_order_acquire); }

  /// The context whose bytes these are.
  const Ref<Home>& home() const { return home_; }

 private:
  struct Count {
    std::atomic<int64_t> current{0}, peak{0};
    void add(int64_t bytes);
  };
  // An open hash table, which only grows: a category has the first entry that was free from its place on.
  struct Entry {
    std::atomic<const Category::detail::Declared*> category{nullptr};
    Count count;
  };
  static constexpr size_t kMaxCategories = 64;
  void change(Tag tag, int64_t bytes);
  Count& count_of(Category::Kind category);
  const Count* find(Category::Kind category) const;
  Count total_;
  std::array<Entry, kMaxCategories> entries_;
  mutable std::mutex mutex_;
  std::map<std::pair<uint16_t, Category::Kind>, std::pair<int64_t, int64_t>> units_;  // current, peak
  std::vector<std::string> names_{""};
  std::mutex observing_;
  std::function<void(Tag, int64_t)> observer_;
  std::atomic<bool> observed_{false};
  const Ref<Home> home_ = make_ref<Home>();
};

}  // namespace shardgrad
