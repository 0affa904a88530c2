#include <shardgrad/autograd/progress.h>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/rng.h>

namespace shardgrad {
namespace {

// What a step that is captured found, and whether it has set a place of its own since.
struct Found {
  uint64_t step = 0;
  int64_t first_sample = -1;
  bool is_set = false;
};

void check_step(const Found& found, const Progress& now) {
  if (now.step != found.step)
    refuse_in_capture(concat("another step of sg::progress(), ", now.step, " after ", found.step, ","),
                      "set it before the step; first_sample may be set in it");
}

// Whoever has kept the place's address may set it without asking for it again.
void note_found(Capture& capture) {
  Progress& now = context().slot<Progress>();
  Found& found = context().slot<Found>();
  found = {now.step, now.first_sample};
  capture.at_end([&found, &now] { check_step(found, now); });
  capture.on_give_up([&now, before = now] { now = before; });
}
const Capture::AtBegin at_begin(note_found);

}  // namespace

// Those of the context, which a step that is captured sets in each replay, too.
static bool is_captured(const Draws& draws) {
  return Capture::current() && &draws == &context().slot<Progress>().draws;
}

Draws& Draws::operator=(const Draws& other) {
  set(other.counts());
  if (!is_captured(*this)) return *this;
  Progress& now = context().slot<Progress>();
  Found& found = context().slot<Found>();
  check_step(found, now);
  found.is_set = true;
  Capture::current()->before_replay([&now, first = now.first_sample, counts = other.counts()] {
    now.first_sample = first;
    now.draws.set(counts);
  });
  return *this;
}

void Draws::clear() {
  set({});
  if (is_captured(*this)) Capture::current()->before_replay([this] { set({}); });
}

void Draws::set(std::unordered_map<uint64_t, uint64_t> counts) {
  std::lock_guard lock(mutex_);
  counts_.swap(counts);
}

uint64_t Draws::next(uint64_t stream) {
  std::lock_guard lock(mutex_);
  return counts_[stream]++;
}

std::unordered_map<uint64_t, uint64_t> Draws::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

Progress& progress() {
  if (Progress* own = detail::own_progress.of(context())) return *own;
  return context().slot<Progress>();
}

void detail::check_captured_draw() {
  Capture& capture = *Capture::current();
  Progress& now = progress();
  const Found& found = context().slot<Found>();
  check_step(found, now);
  if (found.is_set || now.first_sample != found.first_sample) return;
  capture.check_replay([&now, first = now.first_sample] {
    SG_CHECK(now.first_sample == first, "a captured step (StepGraph) drew its masks of dropout for first_sample ",
             first, ", which sg::progress() says is ", now.first_sample,
             " now; call plain(), or make a StepGraph for each");
  });
}

uint64_t Progress::next_stream(uint64_t stream) {
  std::array<uint32_t, 4> mixed = philox(stream, step, draws.next(stream));
  return uint64_t(mixed[0]) << 32 | mixed[1];
}

}  // namespace shardgrad
