#include <set>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/optim/state_rates.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/checkpoint/weights.h>

namespace shardgrad::train {
namespace {

Tensor on_host(int64_t count, DType dtype) { return empty({count}, {dtype, kCpu}); }

// What the file's tensors hold. Each rank reads a part of every tensor, whatever it needs of them itself.
Hashes hashes_in(const SafetensorsFile& file, int64_t rank, int64_t ranks) {
  Hashes hashes;
  for (const auto& [name, entry] : file.tensors()) {
    int64_t count = entry.spec.shape.numel();
    int64_t most = fsdp::kPieceBytes / int64_t(size_of(entry.spec.dtype)), end = count / ranks * (rank + 1);
    if (rank + 1 == ranks) end = count;
    uint64_t& hash = hashes[name];
    for (int64_t begin = count / ranks * rank; begin < end; begin += most) {
      Tensor part = on_host(std::min(most, end - begin), entry.spec.dtype);
      file.read(name, begin, part);
      hash += content_hash(part.in().data, part.dtype(), part.numel(), begin);
    }
  }
  return hashes;
}

void open_saved(std::optional<FileWeights>& weights, const std::string& path) {
  try {
    weights.emplace(path);
  } catch (const Error& error) {
    throw Error(error.kind(), concat(error.what(), ". ", kOlderCheckpoint));
  }
}

// Tensors by their hashes, and what stands beside them: how inputs became what the model was trained on, for one.
void check_saved(const SafetensorsFile& file, const Hashes& found, const Manifest& manifest) {
  bool of_model = file.path().ends_with(kModelFile);
  const Hashes& expected = of_model ? manifest.model : manifest.optimizer;
  for (const auto& [name, hash] : found) {
    auto saved = expected.find(name);
    SG_CHECK(saved != expected.end() && saved->second == hash, "'", file.path(), "': '", name,
             "' is not what was saved: the file is damaged, or of another checkpoint. ", kOlderCheckpoint);
  }
  for (const auto& [name, hash] : expected)
    SG_CHECK(found.contains(name), "'", file.path(), "' has no '", name,
             "', which was saved: the file is of another checkpoint. ", kOlderCheckpoint);
  if (!manifest.headers) return;
  SG_CHECK(file.header_hash() == (of_model ? manifest.headers->model : manifest.headers->optimizer), "'", file.path(),
           "': its header is not what was saved: the file is damaged, or of another checkpoint. ", kOlderCheckpoint);
}

// Together, by what every rank has read of the manifest.
void check_saved(const SafetensorsFile& file, dist::ProcessGroup& world, const Manifest& manifest) {
  Hashes mine;
  dist::together(world, {"", "checkpoint"}, [&] { mine = hashes_in(file, world.rank(), world.size()); });
  Hashes found = sum_over_ranks(world, mine);
  dist::together(world, {"", "checkpoint"}, [&] { check_saved(file, found, manifest); });
}

// A step that is not that of the weights would repeat or leave out some.
void check_name(const std::string& folder, const Manifest& manifest) {
  std::string name = folder.substr(folder.rfind('/') + 1);
  SG_CHECK(!name.starts_with("step-") || name == step_folder(manifest.reached.step), "'", folder, "/", kManifestFile,
           "' is of step ", manifest.reached.step, ", its folder of another one");
}

// What the file has of each parameter beside its state.
struct Counted {
  std::map<std::string, int64_t> steps;
  std::map<std::string, optim::Optimizer::Rates> rates;  // none in files of before
};

Counted read_counted(const SafetensorsFile& file, const SavedOptimizers& optimizers) {
  Counted counted;
  for (const optim::Optimizer* optimizer : optimizers)
    for (const NamedParameter& parameter : optimizer->parameters()) counted.steps[parameter.name] = 0;
  int64_t parameters = std::ssize(counted.steps), row = 0;
  if (parameters == 0) return counted;
  bool has_rates = file.tensors().contains(kRates);
  Tensor counts = on_host(parameters, DType::i64), rates = on_host(parameters * optim::kRateCount, DType::f64);
  file.read(kSteps, 0, counts);
  if (has_rates) file.read(kRates, 0, rates);
  for (auto& [name, count] : counted.steps) {
    count = counts.data<int64_t>()[row];
    SG_CHECK(count >= 0, "'", file.path(), "': '", name, "' has been through ", count, " steps");
    const double* saved = rates.data<double>() + optim::kRateCount * row++;
    if (has_rates) counted.rates[name] = {saved[0], saved[1], saved[2]};
  }
  std::string faults = faults_of(counted.rates);
  SG_CHECK(faults.empty(), "'", file.path(), "':", faults);
  return counted;
}

void read_optimizers(const SafetensorsFile& file, TrainingState state) {
  Counted counted = read_counted(file, state.optimizers);
  for (optim::Optimizer* optimizer : state.optimizers) {
    optimizer->allocate_states([&](const std::string& name) { return file.tensors().contains(name); });
    fsdp::fill_optim_pieces(state.sharded, *optimizer,
                            [&](const auto& piece) { file.read(piece.name, piece.begin, piece.values); });
    std::map<std::string, int64_t> mine;
    for (const NamedParameter& parameter : optimizer->parameters())
      mine[parameter.name] = counted.steps.at(parameter.name);
    optimizer->set_steps(mine);
    optimizer->set_rates(counted.rates);
  }
}

}  // namespace

SavedOptimizers::SavedOptimizers(std::vector<optim::Optimizer*> all) : all_(std::move(all)) {
  std::set<std::string> updated;
  for (const optim::Optimizer* optimizer : all_)
    for (const NamedParameter& parameter : optimizer->parameters())
      SG_CHECK(updated.insert(parameter.name).second, "a checkpoint's optimizers: two of them update '", parameter.name,
               "'; give it to one");
}

StateSpecs model_specs(nn::Module& model, fsdp::Sharded& sharded) {
  SG_CHECK(sharded.left_out().empty(), "a checkpoint has what is sharded, and leave_out names '",
           sharded.left_out()[0].name, "'; save full_state_dict with save_safetensors instead");
  SG_CHECK(!sharded.on_mesh(),
           "a checkpoint is of ranks that share one model, and this one is sharded over an axis of ",
           "a mesh; save full_state_dict and full_optim_state_dict with save_safetensors instead");
  StateSpecs specs = fsdp::state_specs(sharded);
  for (const NamedParameter& buffer : buffers_of(model))
    specs[buffer.name] = {buffer.tensor.shape(), buffer.tensor.dtype()};
  return specs;
}

StateSpecs optimizer_specs(const SavedOptimizers& optimizers, const fsdp::IsGiven& given) {
  StateSpecs specs;
  int64_t count = 0;
  for (const optim::Optimizer* optimizer : optimizers) {
    specs.merge(fsdp::optim_state_specs(*optimizer, given));
    for (const NamedParameter& parameter : optimizer->parameters())
      count += int64_t(specs.erase(parameter.name + ".step"));
    for (const auto& [name, spec] : optim::rates_specs(*optimizer)) specs.erase(name);
  }
  if (count > 0) specs[kSteps] = {{count}, DType::i64};
  if (count > 0 && (!given || given(kRates))) specs[kRates] = {{count, optim::kRateCount}, DType::f64};
  return specs;
}

int64_t checkpoint_bytes(TrainingState state) {
  int64_t bytes = 0;
  for (const StateSpecs& specs : {model_specs(state.model, state.sharded), optimizer_specs(state.optimizers)})
    for (const auto& [name, spec] : specs) bytes += spec.shape.numel() * int64_t(size_of(spec.dtype));
  return bytes;
}

Manifest load_checkpoint(const std::string& folder, const Config& config, TrainingState state) {
  TagScope owner(Category::other);
  dist::ProcessGroup& world = state.sharded.group();
  Manifest manifest;
  std::optional<FileWeights> model, optimizer;
  dist::together(world, {"", "checkpoint"}, [&] {
    manifest = read_manifest(folder);
    check_same_run(folder, manifest, config);
    check_name(folder, manifest);
    open_saved(model, folder + "/" + kModelFile);
    open_saved(optimizer, folder + "/" + kOptimizerFile);
    check_fits(*model, model_specs(state.model, state.sharded));
    auto given = [&](const std::string& name) { return optimizer->file().tensors().contains(name); };
    check_fits(*optimizer, optimizer_specs(state.optimizers, given));
  });
  check_saved(model->file(), world, manifest);
  check_saved(optimizer->file(), world, manifest);
  fill_model(state.model, state.sharded, *model);
  read_optimizers(optimizer->file(), state);
  return manifest;
}

Verified verify_checkpoint(const std::string& folder) {
  Context context;
  Manifest manifest = read_manifest(folder);
  check_name(folder, manifest);
  auto model = std::make_shared<FileWeights>(concat(folder, "/", kModelFile));
  SafetensorsFile optimizer(concat(folder, "/", kOptimizerFile), SafetensorsFile::Access::read);
  for (const SafetensorsFile* file : {&model->file(), &std::as_const(optimizer)})
    check_saved(*file, hashes_in(*file, 0, 1), manifest);
  return {folder, std::move(manifest), std::move(model)};
}

Verified verify_used_checkpoint(const std::string& from) {
  UsedCheckpoint used(from);
  return read_used([&] { return used.named(); }, verify_checkpoint);
}

LoadedWeights load_weights(const std::string& folder, nn::Module& model, fsdp::Sharded& sharded) {
  TagScope owner(Category::other);
  dist::ProcessGroup& world = sharded.group();
  Manifest manifest;
  std::optional<FileWeights> weights;
  dist::together(world, {"", "checkpoint"}, [&] {
    manifest = read_manifest(folder);
    check_name(folder, manifest);
    weights.emplace(folder + "/" + kModelFile);
    check_fits(*weights, model_specs(model, sharded), true);
  });
  check_saved(weights->file(), world, manifest);
  fill_model(model, sharded, *weights);
  return {manifest.reached.step, weights->file().metadata()};
}

}  // namespace shardgrad::train
