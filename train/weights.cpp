#include <shardgrad/train/weights.h>

#include <algorithm>
#include <filesystem>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/hf/folder_weights.h>

namespace shardgrad::train {

static std::vector<NamedParameter> tensors_of(nn::Module& model) {
  std::vector<NamedParameter> tensors = model.named_parameters();
  for (NamedParameter& buffer : model.named_buffers()) tensors.push_back(std::move(buffer));
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

// Weights that are there and of the model's shapes.
static std::unique_ptr<Weights> fitting_weights(const std::string& path, const nn::Module& model,
                                                const StateSpecs& expected) {
  std::unique_ptr<Weights> weights = open_weights(path);
  check_vocabulary(*weights, model);
  check_fits(*weights, expected, true);
  return weights;
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
      for (const auto& entry : list) entry.object->allocate();
  for (const NamedParameter& entry : model.named_parameters()) read_whole(*weights, entry, true);
  for (const NamedParameter& entry : model.named_buffers()) read_whole(*weights, entry, false);
  model.materialize();  // what is left of its first call
}

uint64_t check_model(const std::string& path, nn::Module& model) {
  TagScope owner(Category::other);
  constexpr int64_t kLooked = 1024;  // elements of a tensor
  std::unique_ptr<Weights> weights = fitting_weights(path, model, specs_of(model));
  Hashes hashes;
  for (const auto& [name, spec] : specs_of(model)) {
    Tensor some = empty({std::min(kLooked, spec.shape.numel())}, {spec.dtype, kCpu});
    weights->read(name, 0, some);
    hashes[name] = content_hash(some.in().data, spec.dtype, some.numel(), 0);
  }
  return hash_of(hashes);
}

}  // namespace shardgrad::train
