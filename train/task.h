#pragma once
// What is trained: a module, the loss of a batch, and the scores of an evaluation. The trainer and the plan know of a
// run's subject only what stands here, so both run the same step:
//
//     class Denoise : public train::Task {
//      public:
//       nn::Module& module() override { return *net_; }
//       Tensor loss(const data::Batch& batch) override {
//         Tensor noisy = batch.fields[0], clean = batch.fields[1];
//         return mse_loss(net_(noisy), clean, double(batch.global_count * clean.size(1)));
//       }
//      private:
//       nn::Child<Net> net_ = nn::make<Net>();
//     };
//
// A rank sees its own rows of a batch, and may see none. Losses and sums of the ranks add up to those of the batch, so
// a mean is divided by `global_count`, never by the number of own rows.

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/nn/module.h>
#include <shardgrad/optim/optimizer.h>
#include <shardgrad/optim/schedule.h>
#include <shardgrad/train/data/data_loader.h>

namespace shardgrad::train {

/// Named sums over samples, which ranks add up. One that nothing was added to is 0.
class Sums {
 public:
  void add(const std::string& name, double value) { values_[name] += value; }
  double operator[](const std::string& name) const {
    auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }
  std::map<std::string, double>& values() { return values_; }

 private:
  std::map<std::string, double> values_;
};

/// What a model says of samples: a column for each number, a row for each sample.
struct Prediction {
  std::vector<std::string> columns;
  Tensor values;  ///< f32 (samples, columns)
};

/// One number of an evaluation.
struct Score {
  std::string name;  ///< "accuracy": one word, without "="
  double value;      ///< not a number when there was no sample
  bool higher_is_better = true;
};

/// What updates a task's parameters.
struct Optimizers {
  std::unique_ptr<optim::Optimizer> optimizer;
  /// The factor of its learning rate at each step of a run of `steps`; empty: always 1.
  std::function<optim::Schedule(int64_t steps)> schedule{};
  /// Of parameters that the first one does not update, as AdamW beside Muon; has its learning rate. Empty: there are
  /// none.
  std::unique_ptr<optim::Optimizer> beside{};
  std::vector<optim::Optimizer*> all() const;
};

class Task {
 public:
  virtual ~Task() = default;
  /// What is sharded, trained and saved.
  virtual nn::Module& module() = 0;
  /// Told once, before it works, what samples look like. By default forgotten.
  virtual void prepare(std::span<const data::Field> fields);
  /// This rank's part of a batch's loss: one f32 element. Recorded; called in training mode.
  virtual Tensor loss(const data::Batch& batch) = 0;
  /// Over all that are trained of `parameters`, which are the module's, sharded by now. By default none: the keys
  /// optimizer and schedule say it. A task that makes one is registered with WholeTask::own_optimizer.
  virtual Optimizers configure_optimizers(std::vector<NamedParameter> parameters);
  /// Adds what the model makes of this rank's part of a batch. Not recorded; called in evaluation mode, and for a plan
  /// where tensors have no values and read as zeros. By default the sum of losses as "loss", and the samples as
  /// "count".
  virtual void evaluate(const data::Batch& batch, Sums& sums);
  /// The scores that the sums over all test samples give. The first one decides which weights are the best. The same
  /// names whatever the sums are. By default "loss".
  virtual std::vector<Score> scores(const Sums& sums) const;
  /// What it says of inputs (samples, …). Not recorded; called in evaluation mode. By default refused.
  virtual Prediction predict(const Tensor& inputs);
  /// For progress lines, which count tokens where there are some. By default 0.
  virtual double tokens_per_sample();
  /// Throws Error(input) when it cannot work on samples with these fields; `batch` has two such. On device meta.
  virtual void check(std::span<const data::Field> fields, const data::Batch& batch);
};

}  // namespace shardgrad::train
