#pragma once
// The folder of a run and its checkpoints:
//
//     runs/NAME/step-120/            a checkpoint: whole, for it got this name last
//               step-100/            the one before it
//               step-140.tmp-3f09…/  one that is being written, by the save of that number
//               latest               the name of the folder to go on from: "step-120"
//               best                 with keep_best: the name of the one with the best score
//               model.safetensors    a link to that of `latest`
//
// One rank calls these. Only folders that hold a checkpoint's files and nothing else are ever removed: what somebody
// put beside or into them stays.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

inline constexpr const char *kModelFile = "model.safetensors", *kOptimizerFile = "optimizer.safetensors",
                            *kManifestFile = "run.json";

/// "step-120"
std::string step_folder(int64_t step);

/// Where a run goes on.
struct Last {
  std::optional<std::string> folder;  ///< none: nothing has been saved
  std::string note;                   ///< what the user should know of it, empty if all is well
};
/// What `latest` names. Where that is missing or names nothing: the newest checkpoint whose files are there, and a note
/// that says so. Throws Error(input) when `latest` is no name of a checkpoint, or there is one but none is whole.
Last last_checkpoint(const std::string& run);

/// What of a run is used: of its folder RUN the last checkpoint, of RUN/step-N that one, of RUN/best and RUN/latest the
/// one that the file names.
///
/// The folder of the one that is named, or `folder` where it names none. Throws Error(input) where it is not there.
std::string named_checkpoint(const std::string& folder);
/// The folder of the run that this is the folder of, or of whose checkpoints it is one.
std::string run_of(const std::string& folder);
/// The checkpoint of a run's folder or of one that is named. Throws Error(input) as last_checkpoint, and where nothing
/// is saved.
Last used_checkpoint(const std::string& folder);
/// used_checkpoint's folder, again and again. What the user should know goes to standard error, once.
class UsedCheckpoint {
 public:
  explicit UsedCheckpoint(std::string folder) : from_(std::move(folder)) {}
  std::string named();

 private:
  std::string from_, said_;
};
/// read(named()), where `named` says which checkpoint is used. A run that goes on may remove that one before it is
/// opened: when reading it fails and another one is named by then, reads that one. Of several ranks `named` says the
/// same to all, and `read` fails on all of them or on none (dist::together).
template <class Named, class Read> auto read_used(const Named& named, const Read& read) {
  for (auto used = named();;) {
    try {
      return read(used);
    } catch (...) {
      auto now = named();
      if (now == used) throw;
      used = std::move(now);
    }
  }
}

/// Throws Error(input) when a checkpoint of that step is the last one, or its name is taken by something else.
void check_free(const std::string& run, int64_t step);
/// The same for all steps after `step`, before a run begins to come to them.
void check_free_after(const std::string& run, int64_t step);

/// What stays when a checkpoint is committed.
struct Keep {
  int64_t count = 1;     ///< the newest ones, with the one that is committed
  bool is_best = false;  ///< this one is the best until now
};
/// Throws Error(input) when not even the one that is committed would stay.
void check_keep(Keep keep);
/// Gives the folder `unfinished`, whose files are on the disk, the name step-`step`, lets `latest` (and `best`) name
/// it, and removes checkpoints that are not to be kept, also later ones, from which the run did not go on, and what
/// saves that were killed have left. A `best` that named one of this step goes with that, unless this is the best, too.
/// Returns what the user should know, empty if nothing: a best or later ones that were removed, old ones that could not
/// be. Throws as check_keep does.
std::string commit_checkpoint(const std::string& run, const std::string& unfinished, int64_t step, Keep keep);

/// Lets the run's link name the model in `folder`, "step-120", as commit_checkpoint does, and as is left to do where a
/// job was killed within it. Returns what the user should know: that a file of somebody's is in its place.
std::string link_model(const std::string& run, const std::string& folder);

/// For a run that goes on and keeps the best one, which it may not have done before: lets `best` name the checkpoint of
/// step `step`, after which `score` was found, the best so far. Returns what the user should know: that it did, or
/// cannot, for that one is gone; empty when it was named already.
std::string find_best(const std::string& run, int64_t step, double score);

/// A file of this name and a number tells a starting job whether all ranks see the folder.
inline constexpr const char* kSeen = ".seen-";

/// Removes what saves and starts that were killed have left, as far as that is possible.
void remove_unfinished(const std::string& run);

/// Throws Error(input) unless the folder can be written and its disk has room for `count` checkpoints of `bytes` bytes,
/// with those that are there.
void check_room(const std::string& run, int64_t bytes, int64_t count = 1);

}  // namespace shardgrad::train
