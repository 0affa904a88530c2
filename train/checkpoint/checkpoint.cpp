#include <shardgrad/train/checkpoint/checkpoint.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <shardgrad/autograd/match.h>
#include <shardgrad/core/context.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Access = SafetensorsFile::Access;
constexpr std::string_view kFolder = "step-", kUnfinished = ".tmp";
constexpr const char* kFiles[] = {"model.safetensors", "optimizer.safetensors", "run.json"};

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
  fsdp::visit_pieces(state.sharded, [&](const auto& piece) { file.write(piece.name, piece.begin, piece.values); });
  if (state.sharded.group().rank() == 0)
    for (const auto& [name, buffer] : buffers) file.write(name, 0, buffer.view({buffer.numel()}));
  file.sync();
}

void write_optimizer(const std::string& path, TrainingState state, const std::map<std::string, int64_t>& steps) {
  SafetensorsFile file(path, Access::write);
  fsdp::visit_optim_pieces(state.optimizer,
                           [&](const auto& piece) { file.write(piece.name, piece.begin, piece.values); });
  if (state.sharded.group().rank() == 0)
    for (const auto& [name, count] : steps)
      file.write(name + ".step", 0, from_vector<int64_t>({count}, {1}, {DType::i64, kCpu}));
  file.sync();
}

Json about_run(const Config& config, const Reached& reached) {
  return {{"step", reached.step},
          {"samples", reached.samples},
          {"data", reached.data},
          {"loss_scale", reached.scaler.factor},
          {"good_steps", reached.scaler.good_steps},
          {"config", Json::parse(to_json(config))}};
}

void write_and_sync(const std::string& path, const std::string& text) {
  write_file(path, text);
  sync_path(path);
}

// A folder step-N or step-N.tmp with a checkpoint's files and nothing else: what somebody put beside them stays.
bool is_checkpoint(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (!name.starts_with(kFolder) || fs::symlink_status(folder).type() != fs::file_type::directory) return false;
  std::string number = name.substr(kFolder.size());
  if (number.ends_with(kUnfinished)) number.resize(number.size() - kUnfinished.size());
  if (number.empty() || !std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; })) return false;
  return std::ranges::all_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return std::ranges::find(kFiles, entry.path().filename()) != std::end(kFiles);
  });
}

void commit(const std::string& run, const std::string& unfinished, const std::string& name) {
  sync_path(unfinished);
  fs::remove_all(run + "/" + name);  // left over: `latest` names another one
  fs::rename(unfinished, run + "/" + name);
  sync_path(run);
  write_and_sync(run + "/latest.tmp", name + "\n");
  fs::rename(run + "/latest.tmp", run + "/latest");
  sync_path(run);
  for (const fs::path& path : std::vector<fs::path>(fs::directory_iterator(run), {}))
    if (path.filename() != name && is_checkpoint(path)) fs::remove_all(path);
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

// Its few levels, so that a damaged file cannot make a tree of any depth.
Json parse_shallow(const std::string& text) {
  constexpr int kDeepest = 8;
  bool shallow = true;
  auto look = [&](int depth, Json::parse_event_t, Json&) { return shallow = shallow && depth < kDeepest; };
  Json json = Json::parse(text, look, false);
  return shallow ? json : Json(Json::value_t::discarded);
}

// How far the run in `folder` had come.
Reached check_same_run(const std::string& folder, const Config& config) {
  Json about = parse_shallow(read_file(folder + "/run.json"));
  try {
    std::map<std::string, Json> before = by_key(about.at("config")), now = by_key(Json::parse(to_json(config)));
    std::string faults;
    for (const auto& [key, value] : now)
      if (!may_change(key) && before[key] != value)
        faults += concat("\n  ", key, " is ", shortened(value.dump()), ", was ", shortened(before[key].dump()));
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
  std::string faults = check.faults();
  for (const auto& [name, why] : file.unreadable()) faults += concat("\n  '", name, "' cannot be read: ", why);
  SG_CHECK(faults.empty(), "'", file.path(), "' does not fit the model; nothing was loaded:", faults);
}

void read_model(const SafetensorsFile& file, TrainingState state) {
  fsdp::fill_pieces(state.sharded, [&](const auto& piece) { file.read(piece.name, piece.begin, piece.values); });
  for (const NamedParameter& buffer : buffers_of(state)) {
    Tensor copy = on_host(buffer.tensor);
    file.read(buffer.name, 0, copy);
    copy_into(buffer.tensor, copy);
  }
}

void read_optimizer(const SafetensorsFile& file, TrainingState state) {
  state.optimizer.allocate_states([&](const std::string& name) { return file.tensors().contains(name); });
  fsdp::fill_optim_pieces(state.sharded, state.optimizer,
                          [&](const auto& piece) { file.read(piece.name, piece.begin, piece.values); });
  std::map<std::string, int64_t> steps;
  for (const NamedParameter& parameter : state.optimizer.parameters()) {
    Tensor count = empty({1}, {DType::i64, kCpu});
    file.read(parameter.name + ".step", 0, count);
    steps[parameter.name] = int64_t(count.item());
  }
  state.optimizer.set_steps(steps);
}

// Makes step-N.tmp with files of their full size.
void begin_folder(const std::string& run, const std::string& name, const Config& config, const Reached& reached,
                  TrainingState state) {
  std::string unfinished = concat(run, "/", name, kUnfinished);
  SG_CHECK(latest_checkpoint(run) != run + "/" + name, "'", run, "/", name, "' is saved already");
  fs::remove_all(unfinished);
  fs::create_directory(unfinished);
  SafetensorsFile::Texts metadata{{"format", "pt"},
                                  {"step", std::to_string(reached.step)},
                                  {"model", Json::parse(to_json(config))["model"].dump()}};
  SafetensorsFile::create(unfinished + "/model.safetensors", model_specs(state), metadata);
  SafetensorsFile::create(unfinished + "/optimizer.safetensors", fsdp::optim_state_specs(state.optimizer), metadata);
}

}  // namespace

void save_checkpoint(const std::string& run, const Config& config, const Reached& reached, TrainingState state) {
  TagScope owner(Category::other);
  dist::ProcessGroup& world = state.sharded.group();
  fsdp::check_replicas(state.sharded, "save_checkpoint");
  std::map<std::string, Tensor> buffers = fsdp::mean_buffers(state.model, world);
  std::string name = concat(kFolder, reached.step), unfinished = concat(run, "/", name, kUnfinished);
  std::map<std::string, int64_t> steps = fsdp::optim_steps(state.sharded, state.optimizer);
  try {
    if (world.rank() == 0) on_disk([&] { begin_folder(run, name, config, reached, state); });
    world.barrier({{"", "checkpoint"}});
    if (writes(state.sharded)) {
      write_model(unfinished + "/model.safetensors", state, buffers);
      write_optimizer(unfinished + "/optimizer.safetensors", state, steps);
    }
    world.barrier({{"", "checkpoint"}});
    if (world.rank() == 0)
      on_disk([&] {
        write_and_sync(unfinished + "/run.json", about_run(config, reached).dump(2) + "\n");
        commit(run, unfinished, name);
      });
    world.barrier({{"", "checkpoint"}});
  } catch (...) {
    std::error_code ignored;  // the space is wanted by whoever saves next
    if (world.rank() == 0) fs::remove_all(unfinished, ignored);
    throw;
  }
}

std::optional<std::string> latest_checkpoint(const std::string& run) {
  if (!fs::exists(run + "/latest")) return {};
  std::string name = read_file(run + "/latest");
  name.resize(std::min(name.find('\n'), name.size()));
  SG_CHECK(matches("step-*", name) && name.find('/') == std::string::npos, "'", run, "/latest' says '", name,
           "', expected the name of a folder step-N");
  return run + "/" + name;
}

Reached load_checkpoint(const std::string& folder, const Config& config, TrainingState state) {
  TagScope owner(Category::other);
  Reached reached = check_same_run(folder, config);
  SafetensorsFile model(folder + "/model.safetensors", Access::read);
  SafetensorsFile optimizer(folder + "/optimizer.safetensors", Access::read);
  check_specs(model, model_specs(state));
  auto given = [&](const std::string& name) { return optimizer.tensors().contains(name); };
  check_specs(optimizer, fsdp::optim_state_specs(state.optimizer, given));
  read_model(model, state);
  read_optimizer(optimizer, state);
  return reached;
}

}  // namespace shardgrad::train
