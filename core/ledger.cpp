#include <shardgrad/core/ledger.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad {

const char* name_of(Category category) {
  constexpr const char* names[kCategoryCount] = {"parameter_shard",
                                                 "gathered_parameter",
                                                 "gradient_shard",
                                                 "full_gradient",
                                                 "optimizer_state",
                                                 "activation",
                                                 "activation_gradient",
                                                 "communication",
                                                 "workspace",
                                                 "pinned_host",
                                                 "data",
                                                 "other"};
  return names[int(category)];
}

void Ledger::Count::add(int64_t bytes) {
  int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void Ledger::change(Tag tag, int64_t bytes) {
  total_.add(bytes);
  categories_[size_t(tag.category)].add(bytes);
  if (tag.unit != 0) {
    std::lock_guard lock(mutex_);
    auto& [current, peak] = units_[{uint8_t(tag.category), tag.unit}];
    current += bytes;
    peak = std::max(peak, current);
  }
  if (observed_.load(std::memory_order_acquire)) [[unlikely]]
    observer_(tag, bytes);
}

void Ledger::add(Tag tag, size_t bytes) { change(tag, int64_t(bytes)); }
void Ledger::sub(Tag tag, size_t bytes) { change(tag, -int64_t(bytes)); }

int64_t Ledger::current(Tag tag) const {
  std::lock_guard lock(mutex_);
  auto it = units_.find({uint8_t(tag.category), tag.unit});
  return it == units_.end() ? 0 : it->second.first;
}

int64_t Ledger::peak(Tag tag) const {
  std::lock_guard lock(mutex_);
  auto it = units_.find({uint8_t(tag.category), tag.unit});
  return it == units_.end() ? 0 : it->second.second;
}

void Ledger::reset_peaks() {
  auto reset = [](Count& count) { count.peak.store(count.current.load()); };
  reset(total_);
  std::ranges::for_each(categories_, reset);
  std::lock_guard lock(mutex_);
  for (auto& [key, value] : units_) value.second = value.first;
}

std::string Ledger::largest_owners(int count) const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<int64_t, std::string>> owners;
  std::array<int64_t, kCategoryCount> rest{};  // of no unit
  for (int c = 0; c < kCategoryCount; ++c) rest[size_t(c)] = current(Category(c));
  for (const auto& [key, bytes] : units_) {
    owners.emplace_back(bytes.first, concat(name_of(Category(key.first)), " of '", names_[key.second], "'"));
    rest[key.first] -= bytes.first;
  }
  for (int c = 0; c < kCategoryCount; ++c) owners.emplace_back(rest[size_t(c)], name_of(Category(c)));
  std::ranges::sort(owners, std::greater(), &std::pair<int64_t, std::string>::first);
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
  observed_.store(false, std::memory_order_release);
  observer_ = std::move(observer);
  observed_.store(bool(observer_), std::memory_order_release);
}

}  // namespace shardgrad
