#include <shardgrad/train/weights.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/hf/folder_weights.h>

namespace shardgrad::train {

static std::vector<NamedParameter> tensors_of(nn::Module& model) {
  std::vector<NamedParameter> tensors = model.named_parameters();
  for (NamedParameter& buffer : model.saved_buffers()) tensors.push_back(std::move(buffer));
  return tensors;
}

static StateSpecs specs_of(nn::Module& model) {
  StateSpecs specs;
  for (const NamedParameter& entry : tensors_of(model))
    specs[entry.name] = {entry.tensor.shape(), entry.tensor.dtype()};
  return specs;
}

// A piece at a time, as a rank reads its shard.
static void read_whole(Weights& weights, const NamedParameter& entry, bool finite) {
  const Tensor& tensor = entry.tensor;
  int64_t count = tensor.numel(), most = fsdp::kPieceBytes / int64_t(size_of(tensor.dtype()));
  Tensor flat = tensor.detach().view({count});
  for (int64_t begin = 0; begin < count; begin += most) {
    Tensor part = flat.rows(begin, std::min(begin + most, count));
    Tensor values = part.device() == kCpu ? part : empty(part.shape(), {part.dtype(), kCpu});
    finite ? read_finite(weights, entry.name, begin, values) : weights.read(entry.name, begin, values);
    if (!values.same_as(part)) copy_into(part, values);
  }
  tensor.bump_version();
}

// Rows of a table beyond the folder's are padding, which stands for no token.
static void check_vocabulary(const Weights& weights, const nn::Module& model) {
  auto* folder = dynamic_cast<const hf::FolderWeights*>(&weights);
  auto* language = dynamic_cast<const nn::LanguageModel*>(&model);
  if (!folder || !language) return;
  int64_t there = std::visit([](const auto& options) { return options.vocab_size; }, folder->options());
  SG_CHECK(language->vocab_size() == there, "model.vocab_size is ", language->vocab_size(), ", but the table in '",
           weights.path(), "' has ", there,
           " tokens; leave model.vocab_size out, or change the table in Python: ", "model.resize_token_embeddings(",
           language->vocab_size(), ") and save_pretrained (model.vocab_multiple only pads it)");
}

static void check_fits_model(const Weights& weights, const nn::Module& model, const StateSpecs& expected) {
  check_vocabulary(weights, model);
  check_fits(weights, expected, true);
}

// Weights that are there and of the model's shapes.
static std::unique_ptr<Weights> fitting_weights(const std::string& path, const nn::Module& model,
                                                const StateSpecs& expected) {
  std::unique_ptr<Weights> weights = open_weights(path);
  check_fits_model(*weights, model, expected);
  return weights;
}

std::string weights_of(const std::string& path) {
  std::error_code unknown;
  std::filesystem::path named = named_checkpoint(path);
  bool of_run = std::ranges::any_of(std::initializer_list<const char*>{kManifestFile, "latest", "about.json"},
                                    [&](const char* file) { return std::filesystem::exists(named / file, unknown); });
  if (!of_run) return path;
  return concat(verify_used_checkpoint(path).folder, "/", kModelFile);
}

std::unique_ptr<Weights> open_weights(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return std::make_unique<hf::FolderWeights>(path);
  return std::make_unique<FileWeights>(path);
}

void load_model(const std::string& path, nn::Module& model, fsdp::Sharded& sharded) {
  TagScope owner(Category::other);
  std::unique_ptr<Weights> weights;
  dist::together(sharded.group(), {"", "checkpoint"},
                 [&] { weights = fitting_weights(path, model, model_specs(model, sharded)); });
  fill_model(model, sharded, *weights, true);
}

void load_model(const std::string& path, nn::Module& model) {
  TagScope owner(Category::other);
  NoGrad no_grad;
  std::unique_ptr<Weights> weights = fitting_weights(path, model, specs_of(model));
  for (auto& [name, module] : model.named_modules())
    for (auto list : {module->own_parameters(), module->own_buffers()})
      for (const auto& entry : list)
        if (entry.object->persistent) entry.object->allocate();
  for (const NamedParameter& entry : model.named_parameters()) read_whole(*weights, entry, true);
  for (const NamedParameter& entry : model.saved_buffers()) read_whole(*weights, entry, false);
  model.materialize();  // what is left of its first call
}

void check_model(const std::string& path, nn::Module& model) { check_model(*open_weights(path), model); }

void check_model(const Weights& weights, nn::Module& model) {
  TagScope owner(Category::other);
  check_fits_model(weights, model, specs_of(model));
}

namespace {

// What tells a file, or those of a folder, from others of the same name, also on another machine that mounts it. A copy
// has another inode and other times.
uint64_t identity_of(const std::string& path) {
  std::vector<std::string> files{path};
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    files.clear();
    for (const auto& entry : std::filesystem::directory_iterator(path, unknown)) files.push_back(entry.path());
    std::ranges::sort(files);
  }
  std::string all;
  for (const std::string& file : files) {
    struct stat s {};
    stat(file.c_str(), &s);
    all += concat(std::filesystem::path(file).filename().string(), ' ', s.st_ino, ' ', s.st_size, ' ', s.st_mtim.tv_sec,
                  ' ', s.st_mtim.tv_nsec, ' ', s.st_ctim.tv_sec, ' ', s.st_ctim.tv_nsec, '\n');
  }
  return stream_of(all);
}

Hashes hashes_of(const std::string& path, nn::Module& model) {
  std::unique_ptr<Weights> weights = open_weights(path);
  Hashes hashes;
  for (const auto& [name, spec] : specs_of(model)) {
    int64_t count = spec.shape.numel(), most = fsdp::kPieceBytes / int64_t(size_of(spec.dtype));
    for (int64_t begin = 0; begin < count; begin += most) {
      Tensor piece = empty({std::min(most, count - begin)}, {spec.dtype, kCpu});
      weights->read(name, begin, piece);
      hashes[name] += content_hash(piece.in().data, spec.dtype, piece.numel(), begin);
    }
  }
  return hashes;
}

}  // namespace

void check_same_weights(const std::string& path, nn::Module& model, dist::ProcessGroup& world) {
  const dist::Label label{"", "start"};
  auto files = world.share<int64_t>({int64_t(identity_of(path))}, label);
  if (std::ranges::count(files, files[0]) == std::ssize(files)) return;
  TagScope owner(Category::other);
  bool is_first = std::ranges::find(files, files[size_t(world.rank())]) - files.begin() == world.rank();
  Hashes mine;
  dist::together(world, label, [&] {
    if (is_first) mine = hashes_of(path, model);
  });
  std::string text;
  for (const auto& [name, hash] : mine) text += hash_text(hash);
  std::string first = dist::same_text(world, label, text);
  dist::together(world, label, [&] {
    constexpr size_t kDigits = 16;
    size_t at = 0;
    for (const auto& [name, hash] : mine) {
      SG_CHECK(hash_text(hash) == first.substr(at, kDigits), "'", path, "' is another file on rank ", world.rank(),
               " than on rank 0, with other values of '", name,
               "'; every rank reads its part of the model, so give all "
               "of them the same weights");
      at += kDigits;
    }
  });
}

}  // namespace shardgrad::train
