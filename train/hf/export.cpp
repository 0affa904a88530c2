#include <shardgrad/train/hf/export.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <shardgrad/autograd/node.h>
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

// Elements of the parameter from `begin` on as one part of it: use(first, piece) a piece at a time, until it returns
// false.
template <class Use>
bool each_piece(const SafetensorsFile& from, const std::string& name, int64_t begin, const Part& part,
                const HeldSignals& signals, const Use& use) {
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
    if (!use(first, piece)) return false;
  }
  return true;
}

// The same of all parts: use(name of the parameter, part, first, piece).
template <class Use>
bool each_piece(const SafetensorsFile& from, const Layout& layout, const HeldSignals& signals, const Use& use) {
  for (const auto& [name, parts] : layout) {
    int64_t begin = 0;
    for (const Part& part : parts) {
      auto use_piece = [&](int64_t first, const Tensor& piece) { return use(name, part, first, piece); };
      if (!each_piece(from, name, begin, part, signals, use_piece)) return false;
      begin += part.shape.numel();
    }
  }
  return true;
}

using Dtypes = std::map<std::string, DType>;  // of the folder's tensors, by name

Dtypes as_saved(const SafetensorsFile& from, const Layout& layout) {
  Dtypes dtypes;
  for (const auto& [name, parts] : layout)
    for (const Part& part : parts) dtypes[part.name] = from.tensors().at(name).spec.dtype;
  return dtypes;
}

// As they are in the folder where they are narrower there.
Dtypes as_in_folder(Dtypes dtypes, const std::string& folder) try {
  TensorFiles files(folder);
  for (auto& [name, dtype] : dtypes) {
    auto found = files.places().find(bare_name(name));
    if (found == files.places().end()) found = files.places().find(kHead);  // by which a tied table may be there alone
    if (found == files.places().end()) continue;
    auto tensor = found->second.file->tensors().find(found->second.name);
    if (tensor == found->second.file->tensors().end()) continue;
    DType there = tensor->second.spec.dtype;
    if (is_floating(there) && size_of(there) < size_of(dtype)) dtype = there;
  }
  return dtypes;
} catch (const Error&) {
  return dtypes;  // it is gone, or another one by now
}

// Whether all values are the same in these dtypes.
bool hold_all(const Dtypes& dtypes, const SafetensorsFile& from, const Layout& layout, const HeldSignals& signals) {
  return each_piece(from, layout, signals, [&](const std::string&, const Part& part, int64_t, const Tensor& piece) {
    Tensor back = piece.to(dtypes.at(part.name)).to(piece.dtype());
    return std::memcmp(back.in().data, piece.in().data, size_t(piece.bytes())) == 0;
  });
}

struct Choice {
  Dtypes dtypes;
  std::optional<DType> too_narrow = {};
};
Choice choose(const ExportSource& source, const Layout& layout, const HeldSignals& signals) {
  const SafetensorsFile& from = source.weights->file();
  Dtypes saved = as_saved(from, layout);
  if (source.dtype) {
    for (auto& [name, dtype] : saved) dtype = *source.dtype;
    return {saved};
  }
  Dtypes began = source.began.empty() ? saved : as_in_folder(saved, source.began);
  if (began == saved || hold_all(began, from, layout, signals)) return {began};
  auto narrower = std::ranges::find_if(began, [&](const auto& each) { return each.second != saved.at(each.first); });
  return {saved, narrower->second};
}

void check_finite(const SafetensorsFile& from, const std::string& name, const Tensor& saved, const Tensor& written) {
  if (!first_not_finite(written)) return;
  SG_CHECK(!first_not_finite(saved), "'", from.path(), "': tensor '", name, "' holds numbers that are not finite; ",
           "there is nothing to export: take a run that was saved before its training failed");
  fail("'", from.path(), "': tensor '", name, "' holds numbers that are too large for ", written.dtype(),
       "; export it in bf16 or f32");
}

void write_tensors(const SafetensorsFile& from, const Layout& layout, const Dtypes& dtypes, const std::string& path,
                   const HeldSignals& signals) {
  StateSpecs specs;
  for (const auto& [name, parts] : layout)
    for (const Part& part : parts) specs[part.name] = {part.shape, dtypes.at(part.name)};
  SafetensorsFile::create(path, specs, {{"format", "pt"}});
  SafetensorsFile to(path, SafetensorsFile::Access::write);
  each_piece(from, layout, signals, [&](const std::string& name, const Part& part, int64_t first, const Tensor& piece) {
    Tensor written = piece.to(dtypes.at(part.name));
    check_finite(from, name, piece, written);
    to.write(part.name, first, written);
    return true;
  });
  to.sync();
}

}  // namespace

ExportedDtypes export_folder(const ModelOptions& options, const ExportSource& source, const std::string& to) {
  HeldSignals signals;
  Context context;
  NoGrad no_grad;
  TagScope owner(Category::other);
  const SafetensorsFile& weights = source.weights->file();
  check_model(*source.weights, *make_model(options));
  Layout layout = layout_of(options);
  Unfinished folder(to);
  Choice choice = choose(source, layout, signals);
  DType first = choice.dtypes.begin()->second;
  write_file(folder / kConfigFile, model_config_text(options, first, source.tokens));
  write_tensors(weights, layout, choice.dtypes, folder / kTensorFile, signals);
  for (const char* name : kTokenizerFiles) {
    std::string file = source.tokenizer + "/" + name;
    std::error_code unknown;
    if (!source.tokenizer.empty() && fs::exists(file, unknown))
      write_file(folder / name, read_file(file, kTokenizerText));
  }
  folder.finish();
  return {first, choice.too_narrow};
}

}  // namespace shardgrad::train::hf
