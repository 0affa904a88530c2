#pragma once

#include <optional>
#include <string>

#include <shardgrad/train/config.h>
#include <shardgrad/train/hf/export.h>

namespace shardgrad::train {

struct ExportedRun {
  int64_t step;  ///< of the checkpoint
  hf::ExportedDtypes dtypes;
};

/// The model of a run's last checkpoint, or of the one that `from` names (used_checkpoint), as a Hugging Face folder
/// `to` (hf::export_folder), with the tokenizer that the run keeps, or all files of that of the Hugging Face folder
/// that it began with, where it is the same; where texts begin and end says its config.json, too. Of one process.
/// Tensors are of `dtype`; without, of the dtypes of the folder that the run began with, where they lose nothing, or as
/// the run has them. Throws Error(input) as export_folder does, when nothing is saved or its files are damaged, and for
/// a model that such a folder cannot hold.
ExportedRun export_run(const Config& config, const std::string& from, const std::string& to,
                       std::optional<DType> dtype = {});

}  // namespace shardgrad::train
