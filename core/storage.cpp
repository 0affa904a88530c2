#include <shardgrad/core/storage.h>

#include <algorithm>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

static Stream& stream_now(Context& context, Device device) {
  Stream* running = running_stream();
  return running && &running->context() == &context ? *running : context.backend(device).compute();
}

Stream& current_stream(Device device) {
  Stream* running = running_stream();
  return running ? *running : context().backend(device).compute();
}

static std::atomic<uint64_t> epochs_begun{0};

uint64_t Storage::begin_epoch() { return epochs_begun.fetch_add(1, std::memory_order_relaxed) + 1; }

Storage::Storage(Context& context, size_t bytes, Ref<Allocator> memory, Tag tag)
    : unit_(tag.unit),
      category_(tag.category),
      bytes_(bytes),
      memory_(std::move(memory)),
      ledger_(context.shared_ledger()),
      epoch_(epochs_begun.load(std::memory_order_relaxed)) {}

Ref<Storage> Storage::make(size_t bytes, Ref<Allocator> memory, Tag tag, bool released) {
  Context& ctx = context();
  Ref<Storage> storage(new Storage(ctx, bytes, std::move(memory), tag));
  if (!released) storage->materialize(stream_now(ctx, storage->device()));
  return storage;
}

Ref<Storage> Storage::window(Ref<Storage> base) {
  MemoryBlock whole = base->block_;
  return window(std::move(base), whole);
}

Ref<Storage> Storage::window(Ref<Storage> base, MemoryBlock whole) {
  Ref<Storage> storage(new Storage(context(), whole.bytes, base->memory_, base->tag()));
  storage->rare().base = std::move(base);
  storage->rare().seen = whole;
  storage->materialize(current_stream(storage->device()));
  return storage;
}

Storage::~Storage() {
  if (!resident_ || is_window()) return;
  ledger_->sub(tag(), bytes_);
  if (bytes_ == 0) return;
  Home& home = *ledger_->home();
  if (Home::Visit visit(home); visit) {
    Context& context = *home.context();
    std::optional<ContextScope> scope;  // a thread without one drops it, as Python's garbage collector may in any
    if (Context::current() != &context) scope.emplace(context);
    memory_->free(block_, stream_now(context, device()));
  } else {
    home.when_gone([memory = memory_, block = block_] { memory->discard(block); });
  }
}

static std::string described(Category::Kind category, const std::string& unit) {
  return concat(category.name(), unit.empty() ? "" : " of '" + unit + "'");
}

MemoryBlock Storage::allocate(Stream& stream) try {
  return memory_->allocate(bytes_, stream);
} catch (const OutOfMemory& none) {
  throw OutOfMemory(
      concat(described(category_, ledger_->unit_name(unit_)), " on rank ", context().rank(), ": ", none.what()));
}

void Storage::materialize(Stream& stream) {
  SG_CHECK(!resident_, "materialize: this memory (", described(category_, ledger_->unit_name(unit_)),
           ") is there already; was a release forgotten?");
  bool window = is_window();
  if (window)
    block_ = rare_->seen;
  else if (bytes_ > 0)
    block_ = allocate(stream);
  resident_ = true;
  if (!window) ledger_->add(tag(), bytes_);
}

void Storage::release(Stream& stream) {
  SG_ASSERT(resident_, "release of a released storage");
  SG_CHECK(!holder(), "this memory cannot be released: it is leased to ", *holder(),
           "; end the lease (drop the exported tensor) first");
  if (!is_window()) {
    ledger_->sub(tag(), bytes_);
    if (bytes_ > 0) memory_->free(block_, stream);
  }
  block_ = {};
  resident_ = arriving_ = false;
}

uint64_t Storage::version_at(size_t offset) const {
  const std::vector<Value>& values = rare_->values;
  auto after = std::ranges::upper_bound(values, offset, {}, &Value::begin);
  return version_ + (after == values.begin() ? 0 : std::prev(after)->version);
}

void Storage::bump_version(size_t begin, size_t end) {
  if (Capture* capture = Capture::current()) [[unlikely]]
    capture->note_write(Ref<Storage>(this), begin, end);
  if (!rare_ || (begin == 0 && end >= bytes_)) {
    ++version_;
    return;
  }
  std::vector<Value>& values = rare_->values;
  auto first = std::ranges::upper_bound(values, begin, {}, &Value::begin);
  if (first == values.begin()) {
    ++version_;
    return;
  }
  for (auto value = std::prev(first); value != values.end() && value->begin < end; ++value) ++value->version;
}

void Storage::count_writes_apart(const std::vector<size_t>& begins) {
  for (size_t begin : begins) rare().values.push_back({begin});
}

void Storage::succeed(const Storage& old) {
  version_ = old.version_ + 1;
  if (!old.rare_) return;
  for (const Value& value : old.rare_->values) version_ = std::max(version_, old.version_ + value.version + 1);
}

void Storage::lease(std::string holder) {
  ++rare().leases, ++rare().leased;
  rare().holder = std::move(holder);
}

void Storage::end_lease() {
  SG_ASSERT(rare_ && rare_->leases > 0, "end_lease without a lease");
  --rare_->leases;
}

void Storage::throw_released() const {
  if (note()) fail(*note());
  fail("this tensor's memory (", described(category_, ledger_->unit_name(unit_)),
       ") has been released; materialize it, and write its values again, before it is read");
}

}  // namespace shardgrad
