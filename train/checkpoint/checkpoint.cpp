#include <shardgrad/train/checkpoint/checkpoint.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <shardgrad/core/context.h>
#include <shardgrad/core/match.h>
#include <shardgrad/fsdp/replicas.h>
#include <shardgrad/fsdp/state.h>
#include <shardgrad/train/checkpoint/safetensors.h>

namespace shardgrad::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Access = SafetensorsFile::Access;

// A model that was not called yet gets its buffers now; parameters have had their values since they were sharded.
std::vector<NamedParameter> buffers_of(TrainingState state) {
  state.model.materialize();
  return state.model.named_buffers();
}

StateSpecs model_specs(TrainingState state) {
  StateSpecs specs = fsdp::state_specs(state.sharded);
  for (const NamedParameter& buffer : buffers_of(state))
    specs[buffer.name] = {buffer.tensor.shape(), buffer.tensor.dtype()};
  return specs;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  SG_CHECK(file, "cannot write '", path, "'; is the disk full?");
  sync_path(path);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  SG_CHECK(file, "cannot read '", path, "'");
  return text;
}

template <class Call> void on_disk(const Call& call) {
  try {
    call();
  } catch (const fs::filesystem_error& error) {
    fail("the checkpoint could not be written: ", error.what());
  }
}

Tensor on_host(const Tensor& like) { return empty({like.numel()}, {like.dtype(), kCpu}); }

// Replicas have the same values: one of them writes.
bool writes(const fsdp::Sharded& sharded) {
  dist::ProcessGroup* replica = sharded.mesh().replica();
  return !replica || replica->rank() == 0;
}

void write_model(const std::string& path, TrainingState state, const std::map<std::string, Tensor>& buffers) {
  SafetensorsFile file(path, Access::write);
  for (const fsdp::StateSlice& slice : fsdp::sharded_state_dict(state.sharded))
    file.write(slice.name, slice.begin, slice.values);
  if (state.sharded.group().rank() == 0)
    for (const auto& [name, buffer] : buffers) file.write(name, 0, buffer.view({buffer.numel()}));
  file.sync();
}

void write_optimizer(const std::string& path, TrainingState state, const std::map<std::string, int64_t>& steps) {
  SafetensorsFile file(path, Access::write);
  for (const fsdp::StateSlice& slice : fsdp::sharded_optim_state_dict(state.optimizer))
    if (file.tensors().contains(slice.name)) file.write(slice.name, slice.begin, slice.values);  // not if frozen since
  if (state.sharded.group().rank() == 0)
    for (const auto& [name, count] : steps)
      file.write(name + ".step", 0, from_vector<int64_t>({count}, {1}, {DType::i64, kCpu}));
  file.sync();
}

Json about_run(const Config& config, const Progress& progress) {
  return {{"step", progress.step},
          {"samples", progress.samples},
          {"data", progress.data},
          {"loss_scale", progress.scaler.factor},
          {"good_steps", progress.scaler.good_steps},
          {"config", Json::parse(to_json(config))}};
}

void commit(const std::string& run, const std::string& unfinished, const std::string& name) {
  sync_path(unfinished);
  fs::remove_all(run + "/" + name);  // left over: `latest` names another one
  fs::rename(unfinished, run + "/" + name);
  sync_path(run);
  write_text(run + "/latest.tmp", name + "\n");
  fs::rename(run + "/latest.tmp", run + "/latest");
  sync_path(run);
  for (const fs::path& path : std::vector<fs::path>(fs::directory_iterator(run), {}))
    if (matches("step-*", path.filename().string()) && path.filename() != name) fs::remove_all(path);
}

// What may differ between the run that was saved and the one that goes on.
bool may_change(const std::string& key) {
  constexpr const char* kFree[] = {"name",      "device",    "data.dir", "strategy",     "fsdp.*", "model.recompute",
                                   "libraries", "kernels.*", "runs",     "log_interval", "trace",  "resume"};
  return std::ranges::any_of(kFree, [&](const char* pattern) { return matches(pattern, key); });
}

std::map<std::string, Json> by_key(const Json& config) {
  std::map<std::string, Json> values;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object())
      values[key] = value;
    else
      for (const auto& [inner, part] : value.items()) values[key + "." + inner] = part;
  }
  return values;
}

// How far the run in `folder` had come.
Progress check_same_run(const std::string& folder, const Config& config) {
  Json about = Json::parse(read_text(folder + "/run.json"), nullptr, false);
  try {
    std::map<std::string, Json> before = by_key(about.at("config")), now = by_key(Json::parse(to_json(config)));
    std::string faults;
    for (const auto& [key, value] : now)
      if (!may_change(key) && before[key] != value)
        faults += concat("\n  ", key, " is ", value.dump(), ", was ", before[key].dump());
    SG_CHECK(faults.empty(), "'", folder, "' was saved by another run, which this one cannot go on with:", faults,
             "\nset another name, or the old values");
    return {about.at("step"), about.at("samples"), about.at("data"), {about.at("loss_scale"), about.at("good_steps")}};
  } catch (const Json::exception& error) {
    fail("'", folder, "/run.json' is damaged: ", error.what());
  }
}

void check_specs(const SafetensorsFile& file, const StateSpecs& expected) {
  StateSpecs given;
  for (const auto& [name, entry] : file.tensors()) given[name] = entry.spec;
  StateCheck check(given);
  for (const auto& [name, spec] : expected) check.expect(name, spec.shape, spec.dtype);
  SG_CHECK(check.faults().empty(), "'", file.path(), "' does not fit the model; nothing was loaded:", check.faults());
}

void read_model(const SafetensorsFile& file, TrainingState state) {
  std::vector<fsdp::StateSlice> pieces = fsdp::sharded_state_dict(state.sharded);
  for (const fsdp::StateSlice& piece : pieces) file.read(piece.name, piece.begin, piece.values);
  fsdp::load_sharded_state_dict(state.sharded, pieces);
  for (const NamedParameter& buffer : buffers_of(state)) {
    Tensor copy = on_host(buffer.tensor);
    file.read(buffer.name, 0, copy);
    copy_into(buffer.tensor, copy);
  }
}

void read_optimizer(const SafetensorsFile& file, TrainingState state) {
  std::vector<fsdp::StateSlice> pieces = fsdp::sharded_optim_state_dict(state.optimizer);
  for (const fsdp::StateSlice& piece : pieces)
    if (file.tensors().contains(piece.name)) file.read(piece.name, piece.begin, piece.values);
  fsdp::load_sharded_optim_state_dict(state.sharded, state.optimizer, pieces);
  std::map<std::string, int64_t> steps;
  for (const NamedParameter& parameter : state.optimizer.parameters()) {
    Tensor count = empty({1}, {DType::i64, kCpu});
    file.read(parameter.name + ".step", 0, count);
    steps[parameter.name] = int64_t(count.item());
  }
  state.optimizer.set_steps(steps);
}

}  // namespace

void save_checkpoint(const std::string& run, const Config& config, const Progress& progress, TrainingState state) {
  TagScope owner(Category::other);
  dist::ProcessGroup& world = state.sharded.group();
  fsdp::check_replicas(state.sharded, "save_checkpoint");
  std::map<std::string, Tensor> buffers = fsdp::mean_buffers(state.model, world);
  std::string name = concat("step-", progress.step), folder = run + "/" + name, unfinished = folder + ".tmp";
  std::string model = unfinished + "/model.safetensors", optimizer = unfinished + "/optimizer.safetensors";
  std::map<std::string, int64_t> steps = fsdp::optim_steps(state.sharded, state.optimizer);
  if (world.rank() == 0)
    on_disk([&] {
      SG_CHECK(latest_checkpoint(run) != folder, "'", folder, "' is saved already");
      fs::remove_all(unfinished);
      fs::create_directory(unfinished);
      SafetensorsFile::create(model, model_specs(state));
      SafetensorsFile::create(optimizer, fsdp::optim_state_specs(state.sharded, state.optimizer));
    });
  world.barrier({{"", "checkpoint"}});
  if (writes(state.sharded)) {
    write_model(model, state, buffers);
    write_optimizer(optimizer, state, steps);
  }
  world.barrier({{"", "checkpoint"}});
  if (world.rank() == 0)
    on_disk([&] {
      write_text(unfinished + "/run.json", about_run(config, progress).dump(2) + "\n");
      commit(run, unfinished, name);
    });
  world.barrier({{"", "checkpoint"}});
}

std::optional<std::string> latest_checkpoint(const std::string& run) {
  if (!fs::exists(run + "/latest")) return {};
  std::string name = read_text(run + "/latest");
  name.resize(std::min(name.find('\n'), name.size()));
  SG_CHECK(matches("step-*", name) && name.find('/') == std::string::npos, "'", run, "/latest' says '", name,
           "', expected the name of a folder step-N");
  return run + "/" + name;
}

Progress load_checkpoint(const std::string& folder, const Config& config, TrainingState state) {
  TagScope owner(Category::other);
  Progress progress = check_same_run(folder, config);
  SafetensorsFile model(folder + "/model.safetensors", Access::read);
  SafetensorsFile optimizer(folder + "/optimizer.safetensors", Access::read);
  check_specs(model, model_specs(state));
  check_specs(optimizer, fsdp::optim_state_specs(state.sharded, state.optimizer));
  read_model(model, state);
  read_optimizer(optimizer, state);
  return progress;
}

}  // namespace shardgrad::train
