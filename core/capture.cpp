#include <shardgrad/core/capture.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/capture_memory.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

static constexpr int64_t kNumbers = 16384;  // of a step, at most
static constexpr size_t kEach = 8;          // bytes of a number

void refuse_in_capture(const std::string& what, const std::string& remedy) {
  throw CaptureRefused(concat("a step that is being captured (StepGraph): ", what, " cannot be part of it; ", remedy));
}

static std::vector<void (*)(Capture&)>& hooks_at_begin() {
  static std::vector<void (*)(Capture&)> hooks;
  return hooks;
}

Capture::AtBegin::AtBegin(void (*hook)(Capture&)) { hooks_at_begin().push_back(hook); }

// --- events ----------------------------------------------------------------------------------------------------------

struct Capture::Replayed {
  std::mutex mutex;
  bool open = true;  // it is being recorded
  Event last;        // the end of the last replay
  Event now() {
    std::lock_guard lock(mutex);
    return last;
  }
  bool is_open() {
    std::lock_guard lock(mutex);
    return open;
  }
};

bool Capture::RecordedEvent::done() const { return !of_->is_open() && of_->now().done(); }

bool Capture::RecordedEvent::failed() const {
  Event last = of_->now();
  return last.state() && last.state()->failed();
}

void Capture::RecordedEvent::host_wait() const {
  if (of_->is_open())
    refuse_in_capture("a wait of the host for what it computes",
                      "item(), to_vector(), a print, a synchronize() and whatever else reads a value go outside");
  of_->now().host_wait();
}

Event Capture::RecordedEvent::stands_for() const { return of_->is_open() ? Event() : of_->now(); }

// --- recording -------------------------------------------------------------------------------------------------------

Capture::Capture(Backend& backend, Ref<CaptureMemory> memory)
    : context_(context()),
      backend_(backend),
      device_(backend.device()),
      memory_(std::move(memory)),
      replayed_(std::make_shared<Replayed>()) {}

Capture::~Capture() = default;

Stream& Capture::compute() const { return backend_.compute(); }

std::vector<Stream*> Capture::streams() const {
  std::vector<Stream*> living;
  for (const Recorded& each : streams_)
    if (!each.life.expired()) living.push_back(each.stream);
  return living;
}

void Capture::check_streams() const {
  for (const Recorded& each : streams_)
    SG_CHECK(!each.life.expired(), "StepGraph: stream ", each.name, ", which the captured step uses, is gone; keep it ",
             "as long as the step is called");
}

void Capture::begin() {
  SG_CHECK(!current(), "this thread captures a step already; a step cannot capture another one");
  {
    TagScope owner(Category::step_graph);
    block_ = empty({kNumbers}, {DType::i64, device_});
  }
  compute().synchronize();
  epoch_ = Storage::begin_epoch();
  pool_ = memory_->open();
  streams_ = {{&compute(), compute().life(), compute().name()}};
  try {
    begin_on(compute());
  } catch (...) {
    memory_->close(*pool_, compute());
    throw;
  }
  open_ = true;
  detail::capture = this;
  for (auto* hook : hooks_at_begin()) hook(*this);
}

void Capture::stop() noexcept {
  detail::capture = nullptr;
  open_ = false;
  at_end_.clear();
  undo_.clear();
  met_.clear();
  made_.clear();
  std::lock_guard lock(replayed_->mutex);
  replayed_->open = false;
}

void Capture::end() {
  for (const auto& look : at_end_) look();
  check_streams();
  if (size_t bytes = memory_->dropped(*pool_))
    refuse_in_capture(concat("a tensor of before it, of ", bytes,
                             " bytes, which it uses and then drops, and a replay would find as ", "it was,"),
                      "copy_into() one that stays, and let forward and backward be in one StepGraph");
  for (size_t i = 1; i < streams_.size(); ++i) wait(compute(), record(*streams_[i].stream));
  finish();
  stop();
  memory_->close(*pool_, compute());
}

// Each is of somebody else.
void Capture::undo() noexcept {
  detail::capture = nullptr;
  for (; !undo_.empty(); undo_.pop_back()) try {
      undo_.back()();
    } catch (...) {  // NOLINT: the cause of the refusal is the one to tell
    }
}

void Capture::give_up() noexcept {
  if (!open_) return;
  forget();
  undo();
  stop();
  memory_->close(*pool_, compute());
}

void Capture::let_go() noexcept {
  if (std::exchange(gone_, true) || !pool_) return;
  ContextScope scope(context_);
  give_up();
  try {
    replayed_->now().host_wait();
  } catch (...) {  // NOLINT: told by who waits for the device next
  }
  memory_->end(*pool_, compute());
  by_key_.clear();
  for (auto* all : {&checks_, &before_, &after_}) all->clear();
  on_their_way_.clear();
  kept_alive_.clear();
  block_ = {};
}

bool Capture::has(const Stream& stream) const { return std::ranges::count(streams_, &stream, &Recorded::stream) > 0; }

bool Capture::has_allocated(const Storage& storage) const {
  return storage.bytes() == 0 || (storage.resident() && memory_->has(*pool_, storage.data()));
}

bool Capture::uses(const Storage& storage) const {
  return storage.resident() && memory_->uses(*pool_, {storage.data(), storage.bytes()});
}

void Capture::note(const Stream& stream, const char* label, std::span<const Access> accesses) {
  if (!has(stream))
    refuse_in_capture(concat("'", label, "' on stream ", stream.name(), ", which waits for nothing of the step,"),
                      "let that stream wait for an event of the step first, or do this outside");
  memory_->note(*pool_, accesses);
}

// What the step makes itself is written anew by each replay, and who keeps it knows.
void Capture::note_write(Ref<Storage> storage, size_t begin, size_t end) {
  if (storage->epoch() >= epoch_) return;
  after_replay([storage = std::move(storage), begin, end] { storage->bump_version(begin, end); });
}

void Capture::add(Stream& stream, const char* label, std::function<void()>, std::span<const Access>) {
  refuse_in_capture(concat("'", label, "' on stream ", stream.name(), " of the host"), "do it outside");
}

bool Capture::wait(Stream& stream, const Event& event) {
  const auto* mine = dynamic_cast<const RecordedEvent*>(event.state());
  if (mine && mine->of() == replayed_.get()) {
    if (!has(stream)) {
      join(stream);
      streams_.push_back({&stream, stream.life(), stream.name()});
    }
    wait_for(stream, *mine);
    return true;
  }
  if (!has(stream)) return false;
  refuse_in_capture(concat("a wait of stream ", stream.name(), " for work that is none of the step's"),
                    "wait before each step");
}

Tensor Capture::numbers(const void* now, int64_t count, DType dtype, std::function<void(std::byte*)> write) {
  SG_ASSERT(size_of(dtype) == kEach, "numbers of a captured step have 8 bytes, not those of ", dtype);
  size_t at = values_.size(), bytes = size_t(count) * kEach;
  if (at + bytes > kNumbers * kEach)
    refuse_in_capture(concat("more than ", kNumbers, " numbers that change from step to step"),
                      "capture fewer updates or draws of dropout");
  values_.resize(at + bytes);
  std::memcpy(values_.data() + at, now, bytes);
  before_replay([this, at, write = std::move(write)] { write(values_.data() + at); });
  return Tensor(block_.storage(), at, {count}, dtype);
}

Tensor Capture::numbers_of(uint64_t key, const void* now, int64_t count, DType dtype,
                           std::function<void(std::byte*)> write) {
  auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    size_t at = found->second.offset();
    if (write) before_replay([this, at, write = std::move(write)] { write(values_.data() + at); });
    return found->second;
  }
  if (!write)
    refuse_in_capture("a draw in a recomputed region that its first run did not make", "do not capture the step");
  return by_key_.emplace(key, numbers(now, count, dtype, std::move(write))).first->second;
}

// --- replays ---------------------------------------------------------------------------------------------------------

// Those of the step before may be on their way still: each lot has host memory of its own until it is there.
void Capture::send_numbers() {
  if (values_.empty() || values_ == sent_) return;
  auto free = std::ranges::find_if(on_their_way_, [](const auto& lot) { return lot.first.done(); });
  if (free == on_their_way_.end()) {
    TagScope owner(Category::step_graph);
    on_their_way_.push_back({Event(), empty_on_host({int64_t(values_.size() / kEach)}, DType::i64, device_)});
    free = std::prev(on_their_way_.end());
  }
  free->first.host_wait();
  auto* from = free->second.data<int64_t>();
  std::memcpy(from, values_.data(), values_.size());
  backend_.copy(compute(), block_.out().data, from, values_.size());
  free->first = compute().record();
  sent_ = values_;
}

void Capture::check_still() const {
  try {
    check_streams();
    for (const auto& check : checks_) check();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    throw CaptureRefused(error.what());
  }
}

void Capture::replay() {
  if (!fresh_) {
    check_still();
    for (const auto& work : before_) work();
  }
  send_numbers();
  for (size_t i = 1; i < streams_.size(); ++i) compute().wait(streams_[i].stream->record());
  run();
  Event last = compute().record();
  for (size_t i = 1; i < streams_.size(); ++i) streams_[i].stream->wait(last);
  {
    std::lock_guard lock(replayed_->mutex);
    replayed_->last = last;
  }
  if (!std::exchange(fresh_, false))
    for (const auto& work : after_) work();
}

}  // namespace shardgrad
