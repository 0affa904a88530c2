#include <shardgrad/train/hf/export.h>

#include <algorithm>
#include <filesystem>

#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/checkpoint/finite.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/held_signals.h>
#include <shardgrad/train/hf/layout.h>
#include <shardgrad/train/hf/tensor_files.h>
#include <shardgrad/train/hf/transpose.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/weights.h>

namespace shardgrad::train::hf {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json",  "special_tokens_map.json", "vocab.json",
    "merges.txt",     "generation_config.json", "chat_template.jinja"};

// A folder that gets its name when it is whole.
class Unfinished {
 public:
  explicit Unfinished(const std::string& to) : to_(fs::path(to + "/").parent_path()), path_(to_.string() + ".tmp") {
    std::error_code error;
    bool taken = fs::exists(to_, error) && !(fs::is_directory(to_, error) && fs::is_empty(to_, error));
    SG_CHECK(!taken, "'", to_.string(), "' is there already and not empty; name another folder, or remove it");
    if (!to_.parent_path().empty()) fs::create_directories(to_.parent_path(), error);
    bool made = !error && fs::create_directory(path_, error);
    SG_CHECK(!error, "cannot make the folder '", path_.string(), "': ", error.message());
    SG_CHECK(made, "'", path_.string(), "' is there already, where '", to_.string(),
             "' is made until it is whole; remove it, or name another folder");
  }
  ~Unfinished() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  std::string operator/(const char* name) const { return path_ / name; }
  void finish() {
    std::error_code error;
    fs::rename(path_, to_, error);
    SG_CHECK(!error, "cannot make the folder '", to_.string(), "': ", error.message());
    path_.clear();
  }

 private:
  fs::path to_, path_;
};

int64_t piece_of(DType dtype) { return fsdp::kPieceBytes / int64_t(size_of(dtype)); }

// Elements of the parameter from `begin` on as one part of it.
void write_part(const SafetensorsFile& from, const std::string& name, int64_t begin, const Part& part,
                SafetensorsFile& to, const HeldSignals& signals) {
  DType dtype = from.tensors().at(name).spec.dtype;
  int64_t count = part.shape.numel(), most = piece_of(dtype);
  Tensor whole;
  if (part.transposed) {
    Tensor flat = empty({count}, {dtype, kCpu});
    from.read(name, begin, flat);
    whole = flat.alias(part.own_shape());
  }
  for (int64_t first = 0; first < count; first += most) {
    signals.check();
    Tensor piece = empty({std::min(most, count - first)}, {dtype, kCpu});
    part.transposed ? read_transposed(whole, first, piece) : from.read(name, begin + first, piece);
    SG_CHECK(!first_not_finite(piece), "'", from.path(), "': tensor '", name, "' holds numbers that are not finite; ",
             "there is nothing to export: take a run that was saved before its training failed");
    to.write(part.name, first, piece);
  }
}

void write_tensors(const SafetensorsFile& from, const Layout& layout, const std::string& path,
                   const HeldSignals& signals) {
  StateSpecs specs;
  for (const auto& [name, parts] : layout)
    for (const Part& part : parts) specs[part.name] = {part.shape, from.tensors().at(name).spec.dtype};
  SafetensorsFile::create(path, specs, {{"format", "pt"}});
  SafetensorsFile to(path, SafetensorsFile::Access::write);
  for (const auto& [name, parts] : layout) {
    int64_t begin = 0;
    for (const Part& part : parts) {
      write_part(from, name, begin, part, to, signals);
      begin += part.shape.numel();
    }
  }
  to.sync();
}

}  // namespace

void export_folder(const ModelOptions& options, const ExportSource& source, const std::string& to) {
  HeldSignals signals;
  Context context;
  TagScope owner(Category::other);
  const SafetensorsFile& weights = source.weights->file();
  check_model(*source.weights, *make_model(options));
  Layout layout = layout_of(options);
  Unfinished folder(to);
  write_file(folder / kConfigFile,
             model_config_text(options, weights.tensors().at(layout.begin()->first).spec.dtype, source.tokens));
  write_tensors(weights, layout, folder / kTensorFile, signals);
  for (const char* name : kTokenizerFiles) {
    std::string file = source.tokenizer + "/" + name;
    std::error_code unknown;
    if (!source.tokenizer.empty() && fs::exists(file, unknown))
      write_file(folder / name, read_file(file, kTokenizerText));
  }
  folder.finish();
}

}  // namespace shardgrad::train::hf
