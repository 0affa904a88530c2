#pragma once
// What a model's file says of the data that it was trained on, so that other data, and other programs, can be given to
// the model as it knows them:
//
//     "inputs"   {"dtype": "f32", "shape": [784], "mean": [72.93], "scale": [90.015]}     x' = (x - mean) / scale
//     "targets"  {"mean": [], "scale": [], "classes": ["cat", "dog"]}
//     "tokenizer"  "50257 ids, 1f0c…"                        of texts; the run's folder has it (kept_tokenizer.h)

#include <string>
#include <vector>

#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/data/dataset.h>

namespace shardgrad::train {

struct Notes {
  data::Field inputs;
  data::Standardisation input_transform, target_transform;
  std::vector<std::string> class_names;
};

SafetensorsFile::Texts notes_of(const data::Splits& data);
/// Of the run `run`, whose model file has this metadata. Throws Error(input) for a file without them, or with others
/// than notes_of gives.
Notes read_notes(const std::string& run, const SafetensorsFile::Texts& metadata);

}  // namespace shardgrad::train
