#include <shardgrad/train/rehearsal.h>

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {

int64_t largest_batch(const Config& config, int64_t samples) {
  return samples > 0 ? std::min(config.batch, samples) : config.batch;
}

// A rank has as many samples in grains.
data::Batch batch_of(const std::vector<data::Field>& fields, int64_t count, int64_t grains, int ranks) {
  TagScope owner(Category::data);
  int64_t rows = data::part_of(count, 0, ranks).end;
  data::Batch batch{.global_count = count, .count = rows, .grains = data::grains_of(count, grains, 0, ranks)};
  for (const data::Field& field : fields) batch.fields.push_back(zeros(field.rows(rows), field.dtype));
  return batch;
}

Rehearsal::Rehearsal(const Config& config, const data::Outline& data, dist::ProcessGroup& world)
    : config_(config),
      data_(data),
      world_(world),
      task_(make_task(config, data.fields)),
      scaler_(make_scaler(config, world)) {
  check_grains(config, task_->module());
  sharded_ = make_sharded(config, *task_, world);
  optimizers_ = make_optimizers(config, *task_);
}

data::Batch Rehearsal::part(int64_t samples) const {
  return batch_of(data_.fields, largest_batch(config_, samples), config_.grains, world_.size());
}

void Rehearsal::watch() {
  if (!scaler_.enabled()) watch_.emplace(*sharded_);
}

void Rehearsal::read_looks() {
  if (watch_) watch_->found();
}

bool Rehearsal::step(const data::Batch& batch) {
  FiniteWatch* watch = watch_ ? &*watch_ : nullptr;
  return train_step({config_, *task_, *sharded_, optimizers_.all(), scaler_, watch}, batch, false).skipped;
}

}  // namespace shardgrad::train
