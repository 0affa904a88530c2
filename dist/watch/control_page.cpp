#include <shardgrad/dist/watch/control_page.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <sstream>
#include <string_view>

#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/os/report.h>

namespace shardgrad::dist {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

static uint64_t chained(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 32;
}

// Every call asks for it: four chains, which a processor follows side by side.
uint64_t Place::fingerprint() const {
  constexpr size_t kChains = 4;
  static_assert(sizeof(Place) % 8 == 0);
  uint64_t chains[kChains] = {0x9e3779b97f4a7c15u, 1, 2, 3}, hash = 0;
#pragma GCC unroll 32
  for (size_t i = 0; i < sizeof(Place) / 8; ++i) chains[i % kChains] = chained(chains[i % kChains], word_of(*this, i));
  for (uint64_t chain : chains) hash = chained(hash, chain);
  return hash;
}

std::string describe(const Place& place) {
  std::ostringstream out;
  out << place.op << " #" << place.sequence;
  if (place.unit[0]) out << " of unit '" << place.unit << "'";
  if (place.phase[0]) out << " in " << place.phase;
  if (place.has_elements) out << " (" << place.elements << " " << place.dtype;
  if (place.has_elements && place.root >= 0) out << ", root " << place.root;
  if (place.has_elements && place.detail[0]) out << ", " << place.detail;
  if (place.has_elements) out << ")";
  return std::move(out).str();
}

// Cut between characters, and it shows.
static std::string beginning_of(const std::string& text) {
  constexpr std::string_view kCut = " …";
  size_t end = Header::kTextBytes - 1 - kCut.size();
  while (end > 0 && (uint8_t(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end).append(kCut);
}

bool ControlPage::claim_cause(int rank, int code, const std::string& text) const {
  Header& h = header();
  uint32_t nobody = 0;
  if (!h.claim.compare_exchange_strong(nobody, 1)) return false;
  h.rank.store(rank, std::memory_order_relaxed);
  h.code.store(code, std::memory_order_relaxed);
  std::string fits = text.size() < Header::kTextBytes ? text : beginning_of(text);
  std::memcpy(h.text, fits.c_str(), fits.size() + 1);
  h.claim.store(2, std::memory_order_release);
  return true;
}

void announce(const ControlPage& page, const std::string& path) {
  uint32_t nobody = 0;
  if (!page.header().printed.compare_exchange_strong(nobody, 1)) return;
  std::string line = "shardgrad: " + page.cause();
  if (!path.empty() && report_cause(path, page.header().code.load(), line)) return;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one piece: other ranks may write, too
}

ControlPage make_private_page(int ranks) {
  size_t room = ControlPage::page_bytes(ranks) + alignof(Row);
  std::shared_ptr<void> memory(std::calloc(room, 1),
                               std::free);  // the system's own zeroes: rows nobody writes cost none
  void* page = memory.get();
  if (!page || !std::align(alignof(Row), room - alignof(Row), page, room)) throw std::bad_alloc();
  return ControlPage(std::shared_ptr<void>(std::move(memory), page), ranks);
}

ControlPage make_shared_page(Bootstrap& bootstrap, std::string& reason) {
  int ranks = bootstrap.size();
  bool is_seen = ranks > 1 || bootstrap.name() == "forked";  // whose launcher reads it
  auto memory = is_seen ? bootstrap.control_memory(ControlPage::page_bytes(ranks), reason) : nullptr;
  return memory ? ControlPage(std::move(memory), ranks) : make_private_page(ranks);
}

}  // namespace shardgrad::dist
