#pragma once
// A Trainer in Lightning's words: the run of a FitModule with options in the place of a configuration file. It is the
// same loop (trainer.h) with the same checkpoints, plan and files in the run's folder.
//
//     train::Trainer trainer({.strategy = "fsdp", .devices = 4, .precision = "bf16-mixed", .max_epochs = 5});
//     train::Result result = trainer.fit([] { return nn::make<Net>(); }, [] { return my_data(); });
//     train::Evaluation score = trainer.test([] { return nn::make<Net>(); }, [] { return my_test_set(); });
//
// Ranks are threads of this process, `devices` of them. Where a launcher starts the ranks, the trainer is given their
// group, inside dist::run_job: train::Trainer trainer(options, job.world()).

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include <shardgrad/dist/watch/watch_options.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/fit_module.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/trainer.h>

namespace shardgrad::train {

/// What is unset is as `config` says.
struct TrainerOptions {
  /// A name (fsdp::parse_strategy knows Lightning's) or all options of a sharding.
  std::optional<std::variant<std::string, fsdp::Config>> strategy{};
  /// Ranks; unset: one, or those of the group.
  std::optional<int> devices{};
  /// That many ranks on GPUs: devices and accelerator in one, in the place of both.
  std::optional<int> gpus{};
  /// "cpu", "gpu", "cuda" or "auto"; of a group: what its ranks compute on. The name of a strategy is taken for one.
  std::optional<std::string> accelerator{};
  /// "32-true", "bf16-mixed" or "16-mixed" (or "32", "bf16", "16"): what matrix products compute in. Parameters are in
  /// f32, and losses are scaled where they must be.
  std::optional<std::string> precision{};
  std::optional<int64_t> max_epochs{}, max_steps{};  ///< one of them
  std::optional<int64_t> val_check_interval{};       ///< steps; unset: an epoch
  std::optional<int64_t> num_sanity_val_steps{};     ///< batches that are validated before training; unset: 2
  std::optional<int64_t> log_every_n_steps{};
  /// Parts of a rank's samples of a batch that go through the model one after the other.
  std::optional<int64_t> accumulate_grad_batches{};
  /// BatchNorms normalise by the samples of all ranks; in Lightning's words, too, unset is false.
  std::optional<bool> sync_batchnorm{};
  std::optional<double> gradient_clip_val{};  ///< of the norm of all gradients together
  std::optional<std::string> default_root_dir{};
  /// Types of modules whose inside backward computes again, such as "Block".
  std::vector<std::string> activation_checkpointing{};
  std::vector<Registry::MakeCallback> callbacks{};
  std::ostream* out = nullptr;  ///< where rank 0 tells of the run; null: standard output
  /// Every other key: batch (samples of all ranks together), seed, name, resume, save_every, early_stop, …
  Config config{};
};

/// Rows of all samples, in their order.
struct Predictions {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;
};

class Trainer {
 public:
  /// Called on every rank, and for the plan of the run: each makes its own.
  using MakeModule = std::function<nn::Child<FitModule>()>;
  using OpenData = std::function<data::Splits()>;
  using OpenSamples = std::function<std::shared_ptr<const data::Dataset>()>;

  /// Throws Error(input) naming the option, or the key of `config`, for a value that is not possible.
  explicit Trainer(TrainerOptions options = {});
  /// Every rank of `world` makes one and calls the same. The seed is that of the ranks' contexts.
  Trainer(TrainerOptions options, dist::ProcessGroup& world);
  Trainer(const Trainer&) = delete;

  /// Trains on `data`'s training samples, and validates on its test samples. Meanwhile SIGINT (Ctrl-C), SIGTERM, SIGHUP
  /// and SIGUSR1 ask it to save and end, as the result's `stopped` says; a second Ctrl-C or SIGTERM makes it throw, and
  /// ends the process where its code does not return within seconds.
  Result fit(const MakeModule& make, const OpenData& data);
  /// Means over all samples of what validation_step (test_step) gives. `ckpt_path`: a run's folder, one of its
  /// checkpoints, or a .safetensors file; empty: the last weights that fit saved.
  Evaluation validate(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path = "");
  Evaluation test(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path = "");
  /// What predict_step gives, as f32; the same on every rank, which has memory for all of it.
  Predictions predict(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path = "");

  const TrainerOptions& options() const { return options_; }
  /// What the options come to.
  const Config& config() const { return options_.config; }

 private:
  using Stage = FitModule::Stage;
  template <class T>
  T on_every_rank(const std::function<T(dist::ProcessGroup&)>& body, const dist::WatchOptions& watch = {}) const;
  Config job(const MakeModule& make, const OpenData& data, Stage stage) const;
  std::string weights(const std::string& ckpt_path) const;
  Evaluation evaluate_stage(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path,
                            Stage stage);

  TrainerOptions options_;
  dist::ProcessGroup* world_ = nullptr;
  Device device_ = kCpu;
  std::string folder_;  // of the last run
};

}  // namespace shardgrad::train
