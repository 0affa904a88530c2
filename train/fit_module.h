#pragma once
// A model with what a step of training and of evaluation does with it, in Lightning's words (fit.h trains it):
//
//     struct Net : train::FitModule {
//       nn::Child<nn::Linear> up = child<nn::Linear>("up", 2, 16), out = child<nn::Linear>("out", 16, 1);
//       train::StepOutput training_step(const data::Batch& batch, int64_t) override {
//         return mse_loss(out(tanh(up(batch.fields[0]))), batch.fields[1], double(batch.global_count));
//       }
//       train::Optimizers configure_optimizers(std::vector<NamedParameter> parameters) override {
//         return {std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 1e-3}),
//                 [](int64_t steps) { return optim::cosine(steps); }};
//       }
//     };
//
// A rank sees its own rows of a batch, and may see none. What steps give and log is this rank's part: parts of all
// ranks add up to the batch's, so a mean is divided by `batch.global_count`, never by the number of own rows.

#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <shardgrad/nn/module.h>
#include <shardgrad/train/task.h>

namespace shardgrad::train {

struct TrainerOptions;

/// What a step gives: tensors by name, one of them "loss".
struct StepOutput {
  StepOutput(Tensor loss) : values{{"loss", std::move(loss)}} {}
  StepOutput(std::map<std::string, Tensor> values) : values(std::move(values)) {}
  /// Throws Error(input) naming `step` and what there is when there is none.
  const Tensor& loss(const char* step) const;

  std::map<std::string, Tensor> values;
};
inline auto tensors_of(StepOutput& output) { return std::tie(output.values); }

/// One number of an evaluation.
struct Monitor {
  std::string name;  ///< what validation_step gives or logs
  bool higher_is_better = false;
};

/// What a module sees of its trainer, from configure_sharded_model on.
class TrainerView {
 public:
  TrainerView(const TrainerOptions& options, nn::Module& model) : options_(&options), model_(&model) {}
  const TrainerOptions& options() const { return *options_; }
  /// The module itself: it is sharded in place.
  nn::Module& model() const { return *model_; }
  int rank() const;
  int world_size() const;
  /// Steps that are done.
  int64_t global_step() const;

 private:
  const TrainerOptions* options_;
  nn::Module* model_;
};

class FitModule : public nn::Module {
 public:
  /// This rank's part of the loss of a batch: one f32 number. Recorded; in training mode. `i` counts the batches of an
  /// epoch. Other tensors of a map are for on_train_batch_end.
  virtual StepOutput training_step(const data::Batch& batch, int64_t i) = 0;
  /// With what training_step gave, without a graph. Not called for the plan of a run, whose tensors have no values.
  /// A step with one is not captured (key `graph`).
  virtual void on_train_batch_end(const StepOutput& output, const data::Batch& batch, int64_t i);
  /// This rank's part of each of monitors(), as tensors of one number, or logged. Not recorded; in evaluation mode. By
  /// default the loss of training_step.
  virtual StepOutput validation_step(const data::Batch& batch, int64_t i);
  /// By default as validation_step.
  virtual StepOutput test_step(const data::Batch& batch, int64_t i);
  /// What the model says of this rank's rows: (rows, …). By default refused.
  virtual Tensor predict_step(const data::Batch& batch, int64_t i);
  /// What an evaluation tells: means over all samples. The first one decides which weights are the best.
  virtual std::vector<Monitor> monitors() const { return {{"loss"}}; }
  /// The optimizer over the parameters, which are sharded by now, and the schedule of its learning rate. A parameter
  /// that is left out is refused.
  virtual Optimizers configure_optimizers(std::vector<NamedParameter> parameters) = 0;
  /// Called once, before the parameters have memory and are sharded, in a scope of fsdp::EnableWrap: where large models
  /// make their layers, and fsdp::wrap those that are units.
  virtual void configure_sharded_model() {}

  /// Adds this rank's part of one of monitors(), inside validation_step and test_step.
  void log(const std::string& name, double part);
  /// Throws Error(input) before there is one.
  const TrainerView& trainer() const;

  // --- what the trainer needs --------------------------------------------------------------------------------------
  enum class Stage : uint8_t { train, validate, test, predict };
  /// The step of a stage.
  StepOutput forward(Stage stage, const data::Batch& batch, int64_t i);
  void attach(TrainerView trainer) { trainer_ = trainer; }
  /// Called by nn::make, which knows the type.
  template <class M> static void made_as(M& module) {
    constexpr bool is_ours = requires {
      requires std::is_same_v<decltype(&M::on_train_batch_end), decltype(&FitModule::on_train_batch_end)>;
    };
    static_cast<FitModule&>(module).has_batch_end_ = !is_ours;
  }
  /// Whether on_train_batch_end is the module's own; of a module that nn::make has not made, whether FitModule's was
  /// never called.
  bool ends_batches() const { return has_batch_end_.value_or(!saw_ours_); }
  /// What was logged since the last call.
  std::map<std::string, double> take_logged() { return std::exchange(logged_, {}); }

 private:
  std::optional<TrainerView> trainer_;
  std::map<std::string, double> logged_;
  bool logs_ = false;  // inside a step that may log
  std::optional<bool> has_batch_end_;
  bool saw_ours_ = false;  // FitModule's on_train_batch_end was called
};

}  // namespace shardgrad::train
