#pragma once
// run.json, which makes a folder a checkpoint: how far the run has come, its settings, and what every tensor of the two
// other files holds. The last file to be written.

#include <optional>
#include <string>

#include <shardgrad/optim/grad_scaler.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/evaluation.h>

namespace shardgrad::train {

/// How far a run has come. Order of samples, learning rate and random numbers are functions of the step.
struct Reached {
  int64_t step = 0, samples = 0;
  uint64_t data = 0;  ///< fingerprint of the training samples
  optim::GradScaler::State scaler{};
  std::optional<Best> best{};
  int64_t total_steps = 0;  ///< of the run
  /// Where it was asked to end while the weights were tested: the step's line of metrics.jsonl, without their scores.
  std::string pending{};
  std::string ended{};     ///< why a callback has ended it
  uint64_t test_data = 0;  ///< fingerprint of the samples that it is tested on; 0: not known
};

struct Manifest {
  Reached reached;
  std::string config;  ///< as to_json writes it
  Hashes model, optimizer;
  struct Headers {
    uint64_t model, optimizer;
  };
  std::optional<Headers> headers{};  ///< SafetensorsFile::header_hash() of the two files; none in format 1

  /// What the run has learned, as one number: the same for the same parameters, buffers and optimizer state.
  std::string hash() const;
};

std::string to_json(const Manifest& manifest);
/// For a checkpoint that cannot be read.
inline constexpr const char* kOlderCheckpoint =
    "To go on from an older checkpoint, write its name into the file latest beside it; later ones go when the next one "
    "is saved";

/// Throws Error(input) naming the file when it is missing or damaged (its text has a hash of its own), or written by a
/// newer version of this library.
Manifest read_manifest(const std::string& folder);

/// Has a checkpoint of this step say `reached`, unless it does.
void tell_reached(const std::string& folder, const Reached& reached);

/// Throws Error(input) where a setting that changes the run was another one when `folder` was saved, naming all; those
/// that say where and how it is computed, and for how long, may change.
void check_same_run(const std::string& folder, const Manifest& manifest, const Config& now);

}  // namespace shardgrad::train
