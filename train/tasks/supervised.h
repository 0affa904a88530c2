#pragma once
// Tasks on samples with an input and a target: outputs = model(inputs), loss(outputs, targets).

#include <string>

#include <shardgrad/train/options.h>
#include <shardgrad/train/task.h>
#include <shardgrad/train/tasks/model.h>

namespace shardgrad::train {

/// A task whose module is a model that was chosen.
class Supervised : public Task {
 public:
  explicit Supervised(Model model) : model_(std::move(model)) {}
  nn::Module& module() override { return model_.module(); }

 protected:
  Model model_;
};

/// One of some classes. Fields: inputs, of any shape, and labels i64 (). The model gives a number per class, (n,
/// classes). Scores: accuracy, loss. Predicts the class and the probability of each.
class Classification : public Supervised {
 public:
  struct Options {
    std::string loss = "cross_entropy";  ///< or "mse", on one-hot targets
    void list(OptionList& options);
  };
  Classification(Options options, Model model) : Supervised(std::move(model)), options_(std::move(options)) {}
  Tensor loss(const data::Batch& batch) override;
  void evaluate(const data::Batch& batch, Sums& sums) override;
  std::vector<Score> scores(const Sums& sums) const override;
  Prediction predict(const Tensor& inputs) override;
  void check(std::span<const data::Field> fields, const data::Batch& batch) override;

 private:
  Tensor loss_of(const Tensor& outputs, const data::Batch& batch) const;
  Options options_;
};

/// Numbers. Fields: inputs and targets of any shape; the model gives outputs of the targets' shape. The loss is the
/// mean squared error. Scores: r2 (1 - squared error / variance of the targets, the mean over their columns), rmse.
/// Predicts the outputs.
class Regression : public Supervised {
 public:
  using Supervised::Supervised;
  Tensor loss(const data::Batch& batch) override;
  void evaluate(const data::Batch& batch, Sums& sums) override;
  std::vector<Score> scores(const Sums& sums) const override;
  Prediction predict(const Tensor& inputs) override;
  void check(std::span<const data::Field> fields, const data::Batch& batch) override;
};

/// The model's outputs of two samples; or throws Error(input) with what keeps it from taking the data's inputs.
Tensor try_model(const Model& model, const data::Batch& batch);
/// Logits that cross_entropy gives an f32 loss for.
Tensor at_most_single(const Tensor& logits);

}  // namespace shardgrad::train
