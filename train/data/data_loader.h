#pragma once
// Which samples a rank sees in which step. The order of an epoch is a pure function of (seed, epoch, position); `batch`
// counts the samples of all ranks together, and each global batch is cut into one contiguous part per rank, so any
// number of ranks trains the same run. Nothing is dropped and nothing is repeated: the last batch of an epoch may be
// smaller, and a rank's part of it may be empty.
//
// While one batch of 64 KiB or more is used, the next one of its epoch is read by another thread, into memory that
// get() has taken: so there are two batches, this one and the next, whichever thread is faster. To wake a thread for
// less takes longer than to read. Batches for a device that works beside the host are copied there on a stream of their
// own, for which compute waits, and the host does not: a batch travels while the step before it computes.
//
//     data::DataLoader loader(dataset, {.batch = 256, .seed = 1, .rank = group.rank(), .world_size = group.size()});
//     for (data::Batch batch : loader.epoch(e))
//       loss = mse_loss(model(batch.fields[0]), batch.fields[1], double(batch.global_count * classes));

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/data/read_ahead.h>

namespace shardgrad::data {

/// The positions [begin, end) of rank's part of `count` things. Parts differ by at most one, and the lower ranks have
/// the larger ones: rank 0 has the most, which is the rank that a plan is of.
struct Part {
  int64_t begin, end;
  constexpr int64_t size() const { return end - begin; }
};
constexpr Part part_of(int64_t count, int rank, int world_size) {
  int64_t each = count / world_size, more = count % world_size;
  return {each * rank + std::min<int64_t>(rank, more), each * (rank + 1) + std::min<int64_t>(rank + 1, more)};
}

/// The grains of a rank, where `count` things are cut into so many: number rank, world_size + rank, … up. Rank 0 has
/// the most.
std::vector<Part> grains_of(int64_t count, int64_t grains, int rank, int world_size);

/// One rank's part of a global batch. It has a place there as a whole, unless it is of grains.
struct Batch {
  std::vector<Tensor> fields;     ///< this rank's rows of each field
  int64_t step = 0;               ///< within the epoch
  int64_t global_count = 0;       ///< samples of all ranks together
  int64_t first = 0;              ///< place of this rank's first sample within the global batch
  int64_t count = 0;              ///< samples of this rank; may be 0
  int64_t global_ignored = 0;     ///< labels of all ranks together that are kIgnored
  std::vector<Part> grains = {};  ///< whose rows these are, one after the other: their places within the global batch

  /// The part number `part` of `parts` of this rank's rows, or the grain of that number. Counts of the global batch
  /// stay.
  Batch micro_batch(int64_t part, int64_t parts) const;
};

/// The order of an epoch: a permutation of [0, count), a pure function of (seed, epoch).
std::vector<int64_t> sample_order(int64_t count, uint64_t seed, int64_t epoch);

class DataLoader {
 public:
  struct Options {
    int64_t batch = 256;  ///< samples per step, all ranks together
    bool shuffle = true;  ///< false: in the data set's order, for evaluation
    uint64_t seed = 0;
    int rank = 0;
    int world_size = 1;
    int64_t grains = 0;    ///< parts of a batch, of which a rank has those that grains_of says; 0: a rank has one part
    Device device = kCpu;  ///< where the batches are put
  };
  class Epoch;

  /// Throws Error(input) for an empty data set, a batch below 1, or an impossible rank. Goes before its Context, where
  /// batches are for a device.
  DataLoader(std::shared_ptr<const Dataset> dataset, Options options);
  DataLoader(DataLoader&&) = default;

  /// Steps per epoch.
  int64_t batches() const { return (dataset_->size() - 1) / options_.batch + 1; }
  /// This rank's part of step `step` of `epoch`; a pure function of its arguments. Throws what the data set throws.
  Batch get(int64_t epoch, int64_t step);
  /// All batches of an epoch, for a range-based for.
  Epoch epoch(int64_t epoch) &;
  Epoch epoch(int64_t epoch) && = delete;  // it reads from the loader
  const Dataset& dataset() const { return *dataset_; }
  const Options& options() const { return options_; }

 private:
  struct Ahead {
    int64_t epoch;  // of the order
    Batch batch;
  };
  Batch room_for(int64_t step) const;
  std::vector<int64_t> indices_of(const Batch& batch) const;
  void put_in_order(int64_t epoch);
  void begin_to_read(int64_t epoch, int64_t step);
  void upload(std::vector<Tensor>& fields);

  std::shared_ptr<const Dataset> dataset_;
  Options options_;
  std::vector<int64_t> order_;  // of epoch ordered_
  int64_t ordered_ = -1;
  std::unique_ptr<Stream> uploads_;        // from the first batch for a device on
  std::vector<Tensor> uploaded_;           // the last batch
  std::optional<Ahead> ahead_;             // being read, or there
  std::unique_ptr<ReadAhead> read_ahead_;  // from the first use on; goes first, for it reads and writes what is above
};

/// The batches of one epoch.
class DataLoader::Epoch {
 public:
  class Iterator {
   public:
    Batch operator*() const { return loader_->get(epoch_, step_); }
    Iterator& operator++() {
      ++step_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return step_ == other.step_; }

   private:
    friend class Epoch;
    Iterator(DataLoader* loader, int64_t epoch, int64_t step) : loader_(loader), epoch_(epoch), step_(step) {}
    DataLoader* loader_;
    int64_t epoch_, step_;
  };
  Iterator begin() const { return {loader_, epoch_, 0}; }
  Iterator end() const { return {loader_, epoch_, loader_->batches()}; }

 private:
  friend class DataLoader;
  Epoch(DataLoader* loader, int64_t epoch) : loader_(loader), epoch_(epoch) {}
  DataLoader* loader_;
  int64_t epoch_;
};

inline DataLoader::Epoch DataLoader::epoch(int64_t epoch) & { return {this, epoch}; }

}  // namespace shardgrad::data
