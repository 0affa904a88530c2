#pragma once
// A FitModule as a task.

#include <shardgrad/train/fit_module.h>

namespace shardgrad::train {

class FitTask : public Task {
 public:
  using Stage = FitModule::Stage;
  /// Which of the module's steps evaluate calls: validate or test.
  FitTask(nn::Child<FitModule> module, const TrainerOptions& options, Stage stage);
  nn::Module& module() override { return *module_; }
  Tensor loss(const data::Batch& batch) override;
  Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override;
  void evaluate(const data::Batch& batch, Sums& sums) override;
  std::vector<Score> scores(const Sums& sums) const override;
  /// Of this rank's rows: (rows, …).
  Tensor predict_rows(const data::Batch& batch);

 private:
  nn::Child<FitModule> module_;
  Stage stage_;
};

}  // namespace shardgrad::train
