#include <shardgrad/core/storage.h>

#include <algorithm>

#include <shardgrad/core/context.h>

namespace shardgrad {

Stream& current_stream(Device device) {
  Stream* running = running_stream();
  return running ? *running : context().backend(device).compute();
}

static thread_local uint64_t storages_made = 0;

uint64_t Storage::next_serial() { return storages_made; }

Storage::Storage(size_t bytes, Ref<Allocator> memory, Tag tag)
    : bytes_(bytes),
      memory_(std::move(memory)),
      ledger_(context().shared_ledger()),
      serial_(storages_made++),
      tag_(tag) {}

Ref<Storage> Storage::make(size_t bytes, Ref<Allocator> memory, Tag tag, bool released) {
  Ref<Storage> storage(new Storage(bytes, std::move(memory), tag));
  if (!released) storage->materialize(current_stream(storage->device()));
  return storage;
}

Ref<Storage> Storage::window(Ref<Storage> base) {
  MemoryBlock whole = base->block_;
  return window(std::move(base), whole);
}

Ref<Storage> Storage::window(Ref<Storage> base, MemoryBlock whole) {
  Ref<Storage> storage(new Storage(whole.bytes, base->memory_, base->tag_));
  storage->base_ = std::move(base);
  storage->seen_ = whole;
  storage->materialize(current_stream(storage->device()));
  return storage;
}

Storage::~Storage() {
  if (!resident_ || base_) return;
  ledger_->sub(tag_, bytes_);
  if (bytes_ == 0) return;
  // A storage may outlive its context (a tensor kept past the end of a run): then no stream is left to order with.
  if (Context::current())
    memory_->free(block_, current_stream(device()));
  else
    memory_->discard(block_);
}

MemoryBlock Storage::allocate(Stream& stream) try {
  return memory_->allocate(bytes_, stream);
} catch (const OutOfMemory& none) {
  const std::string& unit = ledger_->unit_name(tag_.unit);
  throw OutOfMemory(concat(name_of(tag_.category), unit.empty() ? "" : " of '" + unit + "'", " on rank ",
                           context().rank(), ": ", none.what()));
}

void Storage::materialize(Stream& stream) {
  SG_ASSERT(!resident_, "materialize of a resident storage");
  if (base_)
    block_ = seen_;
  else if (bytes_ > 0)
    block_ = allocate(stream);
  resident_ = true;
  if (!base_) ledger_->add(tag_, bytes_);
}

void Storage::release(Stream& stream) {
  SG_ASSERT(resident_, "release of a released storage");
  SG_CHECK(leases_ == 0, "this memory cannot be released: it is leased to ", *holder_,
           "; end the lease (drop the exported tensor) first");
  if (!base_) {
    ledger_->sub(tag_, bytes_);
    if (bytes_ > 0) memory_->free(block_, stream);
  }
  block_ = {};
  resident_ = arriving_ = false;
}

uint64_t Storage::version(size_t offset) const {
  auto after = std::ranges::upper_bound(values_, offset, {}, &Value::begin);
  return version_ + (after == values_.begin() ? 0 : std::prev(after)->version);
}

void Storage::bump_version(size_t begin, size_t end) {
  auto first = std::ranges::upper_bound(values_, begin, {}, &Value::begin);
  if ((begin == 0 && end >= bytes_) || first == values_.begin()) {
    ++version_;
    return;
  }
  for (auto value = std::prev(first); value != values_.end() && value->begin < end; ++value) ++value->version;
}

void Storage::count_writes_apart(const std::vector<size_t>& begins) {
  for (size_t begin : begins) values_.push_back({begin});
}

void Storage::succeed(const Storage& old) {
  version_ = old.version_ + 1;
  for (const Value& value : old.values_) version_ = std::max(version_, old.version_ + value.version + 1);
}

void Storage::lease(std::string holder) {
  ++leases_;
  holder_ = std::make_unique<std::string>(std::move(holder));
}

void Storage::end_lease() {
  SG_ASSERT(leases_ > 0, "end_lease without a lease");
  --leases_;
}

void Storage::throw_released() const {
  fail(note_ ? *note_ : std::string("this tensor's memory has been released; call materialize first"));
}

}  // namespace shardgrad
