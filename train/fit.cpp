#include <shardgrad/train/fit.h>

#include <cstring>
#include <iostream>
#include <map>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/watch/signals.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/config_check.h>
#include <shardgrad/train/tasks/fit_task.h>
#include <shardgrad/train/trained.h>

namespace shardgrad::train {
namespace {

constexpr const char* kOwn = "trainer";  // the name of its task and its data

void assign_or_refuse(const Option& option, const std::string& json, const std::string& name) {
  SG_CHECK(option.assign(json), "Trainer: ", name, " is ", json, ", expected ", option.expected);
}

// One of our keys, by the option's name.
template <class T> void set_key(Config& config, const char* key, const char* name, const std::optional<T>& value) {
  if (value) assign_or_refuse(*list_options(config).find(key), checked_json(name, *value), name);
}

// What a program has written into it, as read_config checks what a file says.
void check_config(Config& config) {
  config.strategy = name_of(fsdp::parse_strategy(config.strategy));
  for (const Option& option : list_options(config))
    if (std::string json = option.json(); !json.empty()) assign_or_refuse(option, json, option.key);
  std::vector<std::string> faults;
  check_together(config, {}, faults);
  SG_CHECK(faults.empty(), "Trainer: ", faults[0]);
}

void set_precision(Config& config, const std::string& precision) {
  static const std::map<std::string, const char*> known{{"32-true", "off"}, {"32", "off"},       {"bf16-mixed", "bf16"},
                                                        {"bf16", "bf16"},   {"16-mixed", "f16"}, {"16", "f16"}};
  auto found = known.find(precision);
  SG_CHECK(found != known.end(), "Trainer: precision is '", precision,
           "', expected one of 32-true, bf16-mixed, 16-mixed, 32, bf16, 16; a model whose parameters are in 16 bits "
           "while they compute has strategy = fsdp::Config{.param_dtype = DType::bf16}");
  config.autocast = found->second;
}

void set_strategy(Config& config, const std::variant<std::string, fsdp::Config>& strategy) {
  if (const auto* name = std::get_if<std::string>(&strategy)) {
    config.strategy = *name;
    return;
  }
  config.fsdp.options = std::get<fsdp::Config>(strategy);
  config.strategy = name_of(config.fsdp.options.strategy);
}

Device device_of(const std::string& accelerator) {
  if (accelerator == "auto") return cuda_device_count() > 0 ? kCuda : kCpu;
  SG_CHECK(accelerator == "cpu" || accelerator == "gpu" || accelerator == "cuda", "Trainer: accelerator is '",
           accelerator, "', expected one of cpu, gpu, cuda, auto");
  return accelerator == "cpu" ? kCpu : kCuda;
}

// Older versions of Lightning had strategies there.
void move_strategy(TrainerOptions& options) {
  static const std::vector<std::string> names = fsdp::strategy_names();
  if (!options.accelerator || !std::ranges::count(names, *options.accelerator)) return;
  SG_CHECK(!options.strategy, "Trainer: accelerator is '", *options.accelerator,
           "', which is a strategy, and strategy is given, too; leave one out");
  options.strategy = std::exchange(options.accelerator, {}).value();
}

TrainerOptions resolved(TrainerOptions options) {
  Config& config = options.config;
  move_strategy(options);
  SG_CHECK(!options.max_epochs || !options.max_steps,
           "Trainer: max_epochs and max_steps are both given; leave one out");
  if (options.max_epochs) config.steps = 0;
  set_key(config, "epochs", "max_epochs", options.max_epochs);
  set_key(config, "steps", "max_steps", options.max_steps);
  set_key(config, "eval_every", "val_check_interval", options.val_check_interval);
  set_key(config, "sanity_steps", "num_sanity_val_steps", options.num_sanity_val_steps);
  set_key(config, "log_interval", "log_every_n_steps", options.log_every_n_steps);
  set_key(config, "micro_batches", "accumulate_grad_batches", options.accumulate_grad_batches);
  set_key(config, "sync_batchnorm", "sync_batchnorm", options.sync_batchnorm);
  set_key(config, "clip_grad_norm", "gradient_clip_val", options.gradient_clip_val);
  set_key(config, "runs", "default_root_dir", options.default_root_dir);
  if (options.gpus) {
    SG_CHECK(!options.devices && !options.accelerator,
             "Trainer: gpus says what devices and accelerator say; give it alone");
    options.devices = options.gpus;
    options.accelerator = "gpu";
  }
  if (options.precision) set_precision(config, *options.precision);
  if (options.strategy) set_strategy(config, *options.strategy);
  check_config(config);
  SG_CHECK(!options.devices || *options.devices > 0, "Trainer: ", options.gpus ? "gpus" : "devices", " is ",
           options.devices.value_or(0), ", expected 1 or more");
  if (!options.out) options.out = &std::cout;
  return options;
}

// This rank's rows, one after the other.
std::vector<float> rows_of(FitTask& task, data::DataLoader& samples, int64_t& columns) {
  std::vector<float> rows;
  for (const data::Batch& batch : samples.epoch(0)) {
    progress() = {uint64_t(batch.step), batch.first};
    Tensor values = task.predict_rows(batch);
    columns = values.shape().numel() / std::max<int64_t>(1, batch.count);
    std::vector<float> mine = values.to(DType::f32).to(kCpu).to_vector<float>();
    rows.insert(rows.end(), mine.begin(), mine.end());
  }
  return rows;
}

// All ranks' rows in the order of the samples.
Predictions in_order(const std::vector<float>& mine, int64_t columns, const data::DataLoader& samples,
                     dist::ProcessGroup& world) {
  std::vector<int64_t> widths = world.share<int64_t>({columns}, {"", "predict"});
  Predictions all{samples.dataset().size(), *std::ranges::max_element(widths), {}};
  all.values.resize(size_t(all.rows * all.columns));
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(float));
    text = dist::same_text(world, {"", "predict"}, rank == world.rank() ? text : "", rank);
    size_t from = 0;
    for (int64_t first = 0; first < all.rows; first += samples.options().batch) {
      data::Part part = data::part_of(std::min(samples.options().batch, all.rows - first), rank, world.size());
      size_t bytes = size_t((part.end - part.begin) * all.columns) * sizeof(float);
      SG_CHECK(from + bytes <= text.size(), "predict_step gives ", all.columns, " columns, and fewer on rank ", rank);
      std::memcpy(all.values.data() + (first + part.begin) * all.columns, text.data() + from, bytes);
      from += bytes;
    }
  }
  return all;
}

}  // namespace

Trainer::Trainer(TrainerOptions options) : options_(resolved(std::move(options))) {
  if (options_.accelerator) options_.config.device = name_of(device_of(*options_.accelerator).kind);
  const std::string& device = options_.config.device;
  device_ = device == "auto" ? device_of(device) : parse_device(device);
  int launched = dist::processes_of_job();
  SG_CHECK(launched == 1, "Trainer: a launcher has started ", launched,
           " processes, which would each train alone; give it their group: inside dist::run_job, "
           "Trainer(options, job.world())");
}

Trainer::Trainer(TrainerOptions options, dist::ProcessGroup& world)
    : options_(resolved(std::move(options))), world_(&world), device_(context().default_device()) {
  SG_CHECK(options_.devices.value_or(world.size()) == world.size(), "Trainer: devices is ",
           options_.devices.value_or(0), ", but the group has ", world.size(), " ranks; leave devices out");
  SG_CHECK(!options_.accelerator || device_of(*options_.accelerator).kind == device_.kind, "Trainer: accelerator is '",
           options_.accelerator.value_or(""), "', but the group's ranks compute on ", device_);
  options_.config.device = name_of(device_.kind);
  options_.config.seed = int64_t(context().seed());
}

template <class T>
T Trainer::on_every_rank(const std::function<T(dist::ProcessGroup&)>& body, const dist::WatchOptions& watch) const {
  if (world_) return body(*world_);
  T result{};
  dist::run_ranks(options_.devices.value_or(1),
                  [&](dist::ProcessGroup& world) {
                    T mine = body(world);
                    if (world.rank() == 0) result = std::move(mine);
                  },
                  {.device = device_, .seed = uint64_t(options_.config.seed), .watch = watch});
  return result;
}

// The configuration of a run of the module, which has a registry of its own.
Config Trainer::job(const MakeModule& make, const OpenData& data, Stage stage) const {
  Config config = options_.config;
  auto registry = std::make_shared<Registry>(*config.registry);
  registry->add_whole_task(kOwn, "a FitModule",
                           [this, make, stage] { return std::make_unique<FitTask>(make(), options_, stage); },
                           {.own_optimizer = true});
  registry->add_data(kOwn, "given to the trainer", data);
  for (const Registry::MakeCallback& callback : options_.callbacks) registry->add_callback(callback);
  config.registry = registry;
  config.task = {kOwn};
  config.data = {kOwn};
  return config;
}

Result Trainer::fit(const MakeModule& make, const OpenData& data) {
  Config config = job(make, data, Stage::validate);
  std::optional<dist::Signals> signals;
  dist::WatchOptions watch;
  if (!world_ && !dist::Signals::taken()) {  // else they are for the job's guard, or another trainer's run
    signals.emplace(false).take_hangups();
    watch.signals = signals->descriptor();
    watch.saves_when_told = true;
  }
  Result result =
      on_every_rank<Result>([&](dist::ProcessGroup& world) { return train(config, world, *options_.out); }, watch);
  folder_ = result.folder;
  return result;
}

std::string Trainer::weights(const std::string& ckpt_path) const {
  SG_CHECK(!ckpt_path.empty() || !folder_.empty(),
           "Trainer: there are no weights yet; call fit first, or give ckpt_path");
  return ckpt_path.empty() ? folder_ : ckpt_path;
}

Evaluation Trainer::evaluate_stage(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path,
                                   Stage stage) {
  Config config = job(
      make, [] { return data::Splits(); }, stage);
  std::string from = weights(ckpt_path);
  return on_every_rank<Evaluation>([&](dist::ProcessGroup& world) {
    Trained trained(config, from, world);
    data::DataLoader loader = make_loader(config, world, samples(), false);
    return evaluate(*trained.task, loader, world, forward_dtype(config));
  });
}

Evaluation Trainer::validate(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path) {
  return evaluate_stage(make, samples, ckpt_path, Stage::validate);
}

Evaluation Trainer::test(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path) {
  return evaluate_stage(make, samples, ckpt_path, Stage::test);
}

Predictions Trainer::predict(const MakeModule& make, const OpenSamples& samples, const std::string& ckpt_path) {
  Config config = job(
      make, [] { return data::Splits(); }, Stage::predict);
  config.grains = 0;  // each rank's rows are to lie together
  std::string from = weights(ckpt_path);
  return on_every_rank<Predictions>([&](dist::ProcessGroup& world) {
    Trained trained(config, from, world);
    data::DataLoader loader = make_loader(config, world, samples(), false);
    NoGrad no_grad;
    Autocast precision(forward_dtype(config));
    int64_t columns = 0;
    std::vector<float> mine = rows_of(static_cast<FitTask&>(*trained.task), loader, columns);
    return in_order(mine, columns, loader, world);
  });
}

}  // namespace shardgrad::train
