#pragma once

#include <string>

#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// The model of a run's last checkpoint, or of the one that `from` names (used_checkpoint), as a Hugging Face folder
/// `to` (hf::export_folder), with the tokenizer that the run keeps, or all files of that of the Hugging Face folder
/// that it began with, where it is the same; where texts begin and end says its config.json, too. Of one process.
/// Throws Error(input) as export_folder does, when nothing is saved or its files are damaged, and for a model that such
/// a folder cannot hold. Returns the checkpoint's step.
int64_t export_run(const Config& config, const std::string& from, const std::string& to);

}  // namespace shardgrad::train
