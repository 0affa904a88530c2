#include <shardgrad/train/notes.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/kept_tokenizer.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr DType kInputs[] = {DType::f32, DType::f64, DType::i64, DType::i32, DType::u8, DType::bf16, DType::f16};

data::Standardisation transform_of(const Json& note) {
  data::Standardisation transform{note.at("mean"), note.at("scale")};
  SG_CHECK(transform.mean.size() == transform.scale.size(), "mean and scale have different lengths");
  return transform;
}

DType dtype_of(const std::string& name) {
  auto found = std::ranges::find_if(kInputs, [&](DType dtype) { return name == name_of(dtype); });
  SG_CHECK(found != std::end(kInputs), "dtype '", name, "' is none");
  return *found;
}

Notes understand_notes(const Json& inputs, const Json& targets) {
  std::vector<int64_t> dims = inputs.at("shape");
  Notes notes{{Shape(dims), dtype_of(inputs.at("dtype"))}, transform_of(inputs), transform_of(targets), {}};
  notes.class_names = targets.at("classes");
  size_t columns = notes.input_transform.mean.size();
  SG_CHECK(columns <= 1 || int64_t(columns) == notes.inputs.shape.numel(), "there are ", columns,
           " means for inputs of shape ", notes.inputs.shape);
  return notes;
}

}  // namespace

SafetensorsFile::Texts notes_of(const data::Splits& data) {
  data::Field field = data.fields().at(0);
  const data::Standardisation& transform = data.train->input_transform();
  std::vector<int64_t> dims(field.shape.begin(), field.shape.end());
  Json inputs{{"dtype", name_of(field.dtype)}, {"shape", dims}, {"mean", transform.mean}, {"scale", transform.scale}};
  Json targets{{"mean", data.target.mean}, {"scale", data.target.scale}, {"classes", data.class_names}};
  constexpr auto kReplace = Json::error_handler_t::replace;  // a label may be no UTF-8
  SafetensorsFile::Texts notes{{"inputs", inputs.dump()}, {"targets", targets.dump(-1, ' ', false, kReplace)}};
  if (data.tokenizer) notes["tokenizer"] = mark_of(*data.tokenizer);
  return notes;
}

Notes read_notes(const std::string& run, const SafetensorsFile::Texts& metadata) {
  auto text = [&](const char* key) {
    auto found = metadata.find(key);
    SG_CHECK(found != metadata.end(), "the model file of '", run, "' says nothing of its ", key,
             "; it was not saved by `shardgrad train`");
    return Json::parse(found->second);
  };
  try {
    return understand_notes(text("inputs"), text("targets"));
  } catch (const Json::exception& error) {
    fail("the model file of '", run, "': what its metadata says of inputs and targets cannot be read: ", error.what());
  }
}

}  // namespace shardgrad::train
