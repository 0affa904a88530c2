#include <shardgrad/core/ledger.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad {

void Ledger::Count::add(int64_t bytes) {
  int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

Ledger::Count& Ledger::count_of(Category::Kind category) {
  for (size_t i = 0; i < kMaxCategories; ++i) {
    Entry& entry = entries_[(category.hash() + i) % kMaxCategories];
    const Category::detail::Declared* held = entry.category.load(std::memory_order_acquire);
    if (!held && entry.category.compare_exchange_strong(held, category.declared_)) return entry.count;
    if (Category::Kind(*held) == category) return entry.count;
  }
  fail("ledger: '", category.name(), "' is one category too many; there may be ", kMaxCategories);
}

const Ledger::Count* Ledger::find(Category::Kind category) const {
  for (size_t i = 0; i < kMaxCategories; ++i) {
    const Entry& entry = entries_[(category.hash() + i) % kMaxCategories];
    const Category::detail::Declared* held = entry.category.load(std::memory_order_acquire);
    if (!held) return nullptr;
    if (Category::Kind(*held) == category) return &entry.count;
  }
  return nullptr;
}

int64_t Ledger::current(Category::Kind category) const {
  const Count* count = find(category);
  return count ? count->current.load(std::memory_order_relaxed) : 0;
}

int64_t Ledger::peak(Category::Kind category) const {
  const Count* count = find(category);
  return count ? count->peak.load(std::memory_order_relaxed) : 0;
}

std::vector<Category::Kind> Ledger::categories() const {
  std::vector<Category::Kind> found;
  for (const Entry& entry : entries_)
    if (auto* held = entry.category.load(std::memory_order_acquire)) found.emplace_back(*held);
  std::ranges::sort(found);
  return found;
}

void Ledger::change(Tag tag, int64_t bytes) {
  total_.add(bytes);
  count_of(tag.category).add(bytes);
  if (tag.unit != 0) {
    std::lock_guard lock(mutex_);
    auto& [current, peak] = units_[{tag.unit, tag.category}];
    current += bytes;
    peak = std::max(peak, current);
  }
  if (observed_.load(std::memory_order_acquire)) [[unlikely]] {
    std::lock_guard lock(observing_);
    if (observer_) observer_(tag, bytes);
  }
}

void Ledger::add(Tag tag, size_t bytes) { change(tag, int64_t(bytes)); }
void Ledger::sub(Tag tag, size_t bytes) { change(tag, -int64_t(bytes)); }

int64_t Ledger::current(Tag tag) const {
  std::lock_guard lock(mutex_);
  auto it = units_.find({tag.unit, tag.category});
  return it == units_.end() ? 0 : it->second.first;
}

int64_t Ledger::peak(Tag tag) const {
  std::lock_guard lock(mutex_);
  auto it = units_.find({tag.unit, tag.category});
  return it == units_.end() ? 0 : it->second.second;
}

void Ledger::reset_peaks() {
  auto reset = [](Count& count) { count.peak.store(count.current.load()); };
  reset(total_);
  for (Entry& entry : entries_) reset(entry.count);
  std::lock_guard lock(mutex_);
  for (auto& [key, value] : units_) value.second = value.first;
}

std::string Ledger::largest_owners(int count) const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<int64_t, std::string>> owners;
  std::map<Category::Kind, int64_t> rest;  // of no unit
  for (Category::Kind category : categories()) rest[category] = current(category);
  for (const auto& [key, bytes] : units_) {
    owners.emplace_back(bytes.first, concat(key.second.name(), " of '", names_[key.first], "'"));
    rest[key.second] -= bytes.first;
  }
  for (auto [category, bytes] : rest) owners.emplace_back(bytes, category.name());
  std::ranges::stable_sort(owners, std::greater(), &std::pair<int64_t, std::string>::first);
  std::string text;
  for (size_t i = 0; i < owners.size() && int(i) < count && owners[i].first > 0; ++i)
    text += concat(i ? ", " : "", owners[i].second, ' ', owners[i].first, " bytes");
  return text;
}

uint16_t Ledger::unit_id(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto it = std::ranges::find(names_, name);
  if (it != names_.end()) return uint16_t(it - names_.begin());
  SG_CHECK(names_.size() < 65535, "ledger: more than 65535 units");
  names_.emplace_back(name);
  return uint16_t(names_.size() - 1);
}

const std::string& Ledger::unit_name(uint16_t id) const {
  std::lock_guard lock(mutex_);
  return names_.at(id);
}

int Ledger::unit_count() const {
  std::lock_guard lock(mutex_);
  return int(names_.size());
}

void Ledger::on_change(std::function<void(Tag, int64_t)> observer) {
  std::lock_guard lock(observing_);
  SG_CHECK(!observer || !observer_, "ledger: it has an observer already; remove that with on_change(nullptr) first");
  observer_ = std::move(observer);
  observed_.store(bool(observer_), std::memory_order_release);
}

}  // namespace shardgrad
