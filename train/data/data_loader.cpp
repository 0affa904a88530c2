#include <shardgrad/train/data/data_loader.h>

#include <numeric>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/core/storage.h>

namespace shardgrad::data {

static std::vector<int64_t> given_order(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int64_t> sample_order(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order = given_order(count);
  uint64_t stream = stream_of("sample order") + uint64_t(epoch);
  for (uint64_t i = uint64_t(count); i > 1; --i) {  // Fisher and Yates
    auto bits = philox(seed, stream, i);
    uint64_t pick = (uint64_t(bits[0]) << 32 | bits[1]) % i;
    std::swap(order[i - 1], order[pick]);
  }
  return order;
}

std::vector<Part> grains_of(int64_t count, int64_t grains, int rank, int world_size) {
  std::vector<Part> mine;
  for (int64_t grain = rank; grain < grains; grain += world_size)
    mine.push_back(part_of(count, int(grain), int(grains)));
  return mine;
}

Batch Batch::micro_batch(int64_t part, int64_t parts) const {
  SG_ASSERT(grains.empty() || parts == std::ssize(grains), "a batch of ", grains.size(), " grains is not cut into ",
            parts);
  if (parts == 1) return *this;
  int64_t begin = count * part / parts, end = count * (part + 1) / parts, place = first + begin;
  if (!grains.empty()) {
    begin = 0, place = grains[size_t(part)].begin;
    for (int64_t i = 0; i < part; ++i) begin += grains[size_t(i)].size();
    end = begin + grains[size_t(part)].size();
  }
  Batch piece{{}, step, global_count, place, end - begin, global_ignored};
  for (const Tensor& field : fields) piece.fields.push_back(field.rows(begin, end));
  return piece;
}

static size_t size_in_bytes(const Batch& batch) {
  size_t bytes = 0;
  for (const Tensor& field : batch.fields) bytes += field.bytes();
  return bytes;
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, Options options)
    : dataset_(std::move(dataset)), options_(options) {
  SG_CHECK(dataset_ && dataset_->size() > 0, "DataLoader: the data set is empty");
  SG_CHECK(options_.batch >= 1, "DataLoader: batch is ", options_.batch, "; it must be at least 1");
  SG_CHECK(options_.world_size >= 1 && options_.rank >= 0 && options_.rank < options_.world_size, "DataLoader: rank ",
           options_.rank, " of ", options_.world_size, " is not possible");
  SG_CHECK(options_.grains >= 0 && options_.grains % options_.world_size == 0, "DataLoader: ", options_.world_size,
           " ranks cannot share ", options_.grains, " grains");
}

// No batch is being read meanwhile: reading uses the order.
void DataLoader::put_in_order(int64_t epoch) {
  if (ordered_ == epoch) return;
  order_ = options_.shuffle ? sample_order(dataset_->size(), options_.seed, epoch) : given_order(dataset_->size());
  ordered_ = epoch;
}

Batch DataLoader::room_for(int64_t step) const {
  Device device = options_.device == kMeta ? kCpu : options_.device;
  int64_t global_count = std::min(options_.batch, dataset_->size() - step * options_.batch);
  Part part = part_of(global_count, options_.rank, options_.world_size);
  if (options_.grains == 0)
    return {dataset_->room_for(part.size(), device), step, global_count, part.begin, part.size()};
  std::vector<Part> grains = grains_of(global_count, options_.grains, options_.rank, options_.world_size);
  int64_t rows = 0;
  for (Part grain : grains) rows += grain.size();
  return {dataset_->room_for(rows, device), step, global_count, grains[0].begin, rows, 0, std::move(grains)};
}

std::vector<int64_t> DataLoader::indices_of(const Batch& batch) const {
  std::vector<Part> parts = batch.grains;
  if (parts.empty()) parts.push_back({batch.first, batch.first + batch.count});
  std::vector<int64_t> indices;
  indices.reserve(size_t(batch.count));
  auto begin = order_.begin() + batch.step * options_.batch;
  for (Part part : parts) indices.insert(indices.end(), begin + part.begin, begin + part.end);
  return indices;
}

void DataLoader::begin_to_read(int64_t epoch, int64_t step) {
  if (!read_ahead_) read_ahead_ = std::make_unique<ReadAhead>();
  Ahead next{epoch, room_for(step)};
  read_ahead_->begin([dataset = dataset_.get(), indices = indices_of(next.batch),
                      places = places_of(next.batch.fields)] { dataset->read(indices, places); });
  ahead_ = std::move(next);
}

// One event for all fields: compute waits for it, and what they were read into is free again after it. The batch before
// keeps its memory until then: that comes free when compute is through with it, for which this one would have to wait.
void DataLoader::upload(std::vector<Tensor>& fields) {
  TagScope tag(Category::data);
  Backend& device = context().backend(options_.device);
  if (!uploads_) uploads_ = device.make_stream(concat(options_.device, "/uploads of batches"));
  std::vector<Tensor> there;
  for (const Tensor& field : fields) {
    Ref<Storage> memory = Storage::make(field.bytes(), device.memory(), context().tag(), true);
    memory->materialize(*uploads_);
    there.emplace_back(std::move(memory), 0, field.shape(), field.dtype());
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (fields[i].numel() > 0) device.copy(*uploads_, there[i].out().data, fields[i].in().data, fields[i].bytes());
  device.compute().wait(uploads_->record());
  for (const Tensor& field : fields) field.storage()->release(*uploads_);
  uploaded_ = there;
  fields = std::move(there);
}

Batch DataLoader::get(int64_t epoch, int64_t step) {
  SG_CHECK(epoch >= 0 && step >= 0 && step < batches(), "DataLoader: step ", step, " of epoch ", epoch,
           " does not exist; an epoch has ", batches());
  if (!options_.shuffle) epoch = 0;  // all are alike
  std::exception_ptr failure = ahead_ ? read_ahead_->wait() : nullptr;
  std::optional<Ahead> ahead = std::exchange(ahead_, {});
  if (!ahead || ahead->epoch != epoch || ahead->batch.step != step) {
    put_in_order(epoch);
    ahead = {epoch, room_for(step)};
    dataset_->read(indices_of(ahead->batch), places_of(ahead->batch.fields));
  } else if (failure) {
    std::rethrow_exception(failure);
  }
  Batch batch = std::move(ahead->batch);
  batch.global_ignored =
      dataset_->ignored_labels(std::span(order_).subspan(size_t(step * options_.batch), size_t(batch.global_count)));
  constexpr size_t kWorthAThread = 64 << 10;
  if (step + 1 < batches() && size_in_bytes(batch) >= kWorthAThread) begin_to_read(epoch, step + 1);
  if (options_.device != kCpu) upload(batch.fields);
  if (step + 1 == batches()) uploaded_.clear();  // what comes next waits for the end of an epoch anyway
  return batch;
}

}  // namespace shardgrad::data
