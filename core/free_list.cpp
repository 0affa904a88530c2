#include <shardgrad/core/free_list.h>

#include <algorithm>
#include <iterator>

namespace shardgrad {

void FreeList::give(uintptr_t begin, size_t bytes) {
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin() && std::prev(next)->first + std::prev(next)->second == begin)
    std::prev(next)->second += bytes;
  else
    ranges_[begin] = bytes;
}

std::optional<uintptr_t> FreeList::take(size_t bytes) {
  auto it = std::ranges::find_if(ranges_, [&](const auto& range) { return range.second >= bytes; });
  if (it == ranges_.end()) return std::nullopt;
  uintptr_t begin = it->first;
  take_at(begin, bytes);
  return begin;
}

bool FreeList::take_at(uintptr_t begin, size_t bytes) {
  auto it = ranges_.upper_bound(begin);
  if (it == ranges_.begin()) return false;
  --it;
  auto [first, room] = *it;
  uintptr_t end = first + room;
  if (begin + bytes > end) return false;
  ranges_.erase(it);
  if (begin > first) ranges_[first] = begin - first;
  if (begin + bytes < end) ranges_[begin + bytes] = end - begin - bytes;
  return true;
}

size_t FreeList::bytes_before(uintptr_t end) const {
  auto it = ranges_.lower_bound(end);
  if (it == ranges_.begin()) return 0;
  --it;
  return it->first + it->second == end ? it->second : 0;
}

}  // namespace shardgrad
