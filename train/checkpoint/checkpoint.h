#pragma once
// A training run on disk, from which it goes on with the same bits, on any number of ranks to rounding:
//
//     runs/NAME/step-120/model.safetensors       parameters and buffers under their names
//                        optimizer.safetensors   "layer0.weight.exp_avg", …; "step", with how many each parameter has
//                                                been through, and "lr", its rates, in the order of their names
//                        run.json                step, samples seen, loss scale, configuration, a hash per tensor
//
// Every rank writes the parts of the files that it owns, a piece at a time (fsdp::kPieceBytes), so no rank needs memory
// for more than its shard. A crash at any moment leaves the last checkpoint whole, because each line waits for the one
// above:
//
//     rank 0   makes step-120.tmp-3f09a1b2 with files of their full size
//     all      write their parts, and wait until the disk has them
//     all      tell each other that they have; where one could not, every rank throws and the folder is removed
//     rank 0   writes run.json, gives the folder its name (commit_checkpoint), removes older ones
//
// A checkpoint under way (CheckpointSave) may be written beside training: then its pieces are copied first, and a
// thread writes the copies.

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <shardgrad/core/thread.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/nn/module.h>
#include <shardgrad/train/checkpoint/manifest.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/checkpoint/weights.h>

namespace shardgrad::train {

/// One optimizer, or those that divide a model's parameters among them, as Muon for matrices and AdamW for the rest.
class SavedOptimizers {
 public:
  SavedOptimizers(optim::Optimizer& one) : all_{&one} {}
  /// Throws Error(input), naming it, for a parameter that two of them update.
  SavedOptimizers(std::vector<optim::Optimizer*> all);
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<optim::Optimizer*> all_;
};

/// Whose tensors are saved.
struct TrainingState {
  nn::Module& model;
  fsdp::Sharded& sharded;
  SavedOptimizers optimizers;
  SafetensorsFile::Texts notes{};  ///< for the files' metadata
  /// Buffers that are not saved once they are not finite any more, as finite_buffers gives them. Others may be.
  std::set<std::string> finite_buffers{};
};

/// The names of the saved buffers that are finite now, before a run's first step, and so have to stay: running
/// statistics are among them, a mask of infinities is not.
std::set<std::string> finite_buffers(const fsdp::Sharded& sharded);

/// The tensors of optimizer.safetensors with the parameters' step counts, and with their Optimizer::Rates, which files
/// of before do not have.
inline constexpr const char *kSteps = "step", *kRates = "lr";
/// What a checkpoint's two files hold, and how many bytes that is without their headers.
StateSpecs model_specs(nn::Module& model, fsdp::Sharded& sharded);
StateSpecs optimizer_specs(const SavedOptimizers& optimizers, const fsdp::IsGiven& given = {});
int64_t checkpoint_bytes(TrainingState state);

/// A checkpoint that is being written. Every rank makes one, between steps, and finishes it.
class CheckpointSave {
 public:
  enum class How { now, beside };
  /// A collective. `run` is the run's folder, the same on all ranks, which must all see it. With How::now this rank's
  /// part is on the disk afterwards, or its failure is known; with How::beside it is copied, and a thread writes it.
  /// Throws Error(input) on every rank when the folder cannot be written, the step is below 0 or what `latest` names
  /// already, copies of the model are not the same any more, or a trained parameter, its optimizer state or one of
  /// the state's finite_buffers is not finite.
  CheckpointSave(const std::string& run, const Config& config, const Reached& reached, TrainingState state, How how);
  /// Of one that was not finished: waits for the thread and removes what was written.
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;

  /// This rank's part is written, or that has failed.
  bool written() const { return written_; }
  /// After finish, on rank 0: what the user should know (commit_checkpoint).
  const std::string& note() const { return note_; }
  int64_t step() const { return manifest_.reached.step; }
  /// A collective. Waits for all ranks' parts and tells what of them is not finite, and where; empty: all is. Throws on
  /// every rank when one of them could not write its part; the last checkpoint is then as it was.
  std::string not_finite();
  /// A collective. Waits for all ranks' parts and commits. Returns the checkpoint's hash. Throws as not_finite
  /// and check_keep do, and when something is not finite.
  std::string finish(Keep keep);

 private:
  struct Piece;
  class Writer;
  using Buffers = std::map<std::string, Tensor>;
  using Steps = std::map<std::string, int64_t>;
  void begin(const Config& config, TrainingState state);
  void visit(TrainingState state, const Buffers& buffers, const Steps& steps,
             const std::function<void(Piece)>& call) const;

  // Removed unless it was committed.
  struct Folder {
    std::string path;
    bool is_mine = false;  // rank 0's
    ~Folder();
  };
  std::string run_;
  Folder folder_;
  dist::ProcessGroup& world_;
  Manifest manifest_;
  std::unique_ptr<Writer> writer_;
  std::exception_ptr failure_;  // of this rank's part
  std::string not_finite_;      // the first tensor that is not
  std::string note_;
  std::atomic<bool> given_up_ = false;  // nobody waits for the thread's work any more
  std::atomic<bool> written_ = false;
  Thread thread_;
};

/// A collective: one that is finished at once, and kept in the place of the one before. Returns its hash. Throws as
/// CheckpointSave does, and before anything is written as check_keep does. Buffers that differ by rank are saved as
/// their mean.
std::string save_checkpoint(const std::string& run, const Config& config, const Reached& reached, TrainingState state,
                            Keep keep = {});

/// The folder of the last checkpoint in `run`; nothing when there is none. See last_checkpoint.
std::optional<std::string> latest_checkpoint(const std::string& run);

/// A collective. Fills the state from `folder` and returns what that is. Every element is read and compared with the
/// hashes of run.json first. Throws Error(input), naming file and tensor or listing the keys, when the files are
/// damaged or not of this model, or when settings differ that change the run; those that say where, how and for how
/// long it is computed may. When a file cannot be read halfway on one rank, every rank throws, and the state is filled
/// in part: load again, or end.
Manifest load_checkpoint(const std::string& folder, const Config& config, TrainingState state);

/// A checkpoint that is what was saved. Its model stays open: it can be read also when the folder is gone.
struct Verified {
  std::string folder;
  Manifest manifest;
  std::shared_ptr<FileWeights> model;
};
/// Compares a checkpoint's files with their hashes, in this process alone. Throws Error(input) as load_checkpoint does.
Verified verify_checkpoint(const std::string& folder);
/// The same of the checkpoint that `from` names (UsedCheckpoint), also beside a run that goes on and removes it
/// meanwhile (read_used).
Verified verify_used_checkpoint(const std::string& from);

/// What load_weights has read.
struct LoadedWeights {
  int64_t step;
  SafetensorsFile::Texts metadata;  ///< the model file's
};
/// A collective. The same as load_checkpoint for parameters and buffers only, of any run whose model has their names
/// and shapes; a floating dtype is converted. Throws on every rank where it does on one.
LoadedWeights load_weights(const std::string& folder, nn::Module& model, fsdp::Sharded& sharded);

}  // namespace shardgrad::train
