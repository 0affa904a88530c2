#pragma once
// How a run begins: what is refused before anything is made, what a sample takes, and going on from a checkpoint.

#include <functional>
#include <optional>
#include <string>

#include <shardgrad/fsdp/plan.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/learning_rate.h>
#include <shardgrad/train/meter.h>

namespace shardgrad::train {

/// Refuses, on every rank, what would only fail later: ranks that differ in program, settings or data, a schedule that
/// is longer than the run, weights to begin with that are not there or of another model. A collective. `fingerprint`:
/// of the training samples. Returns where the weights are that the run begins with, empty for none.
std::string check_start(const Config& config, dist::ProcessGroup& world, const data::Splits& data, uint64_t fingerprint,
                        int64_t total_steps);

/// Throws Error(input) where the configuration names another number of ranks than the job has, which runs `command`.
void check_ranks(const Config& config, const dist::ProcessGroup& world, const char* command);

/// Keeps the data's tokenizer, if it has one, in the run's folder, when this job has its lock. A collective.
void keep_tokenizer(const data::Splits& data, dist::ProcessGroup& world, const std::string& run);

/// Evaluates config.sanity_steps batches of the test samples as every evaluation does, so that what fails there is
/// found before training has cost anything. Training sees nothing of it: it begins with the same random numbers,
/// samples, statistics and gathers as without. A collective. Throws what the evaluation throws.
void try_evaluation(const Config& config, Task& task, fsdp::Sharded& sharded, const data::Splits& data);

/// What training on one sample takes, on every rank as rank 0's plan says. A collective.
Work work_of(const Config& config, const data::Splits& data, Task& task, const fsdp::Plan& predicted,
             dist::ProcessGroup& world);

struct Fingerprints {
  uint64_t training, test;  ///< of the samples
};

/// Fills the state from the last checkpoint in the run's folder, and says which; nothing when there is none. `say` gets
/// lines for rank 0. A collective. Throws Error(input) for a checkpoint of other training data, or beyond the run's
/// last step. Where it is tested on other data, what was best is forgotten.
std::optional<Reached> resume(const Config& config, const std::string& run, TrainingState state, Fingerprints data,
                              const LearningRate& rate, const std::function<void(const std::string& line)>& say);

}  // namespace shardgrad::train
