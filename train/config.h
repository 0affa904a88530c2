#pragma once
// What a training job is: every setting with its default. Read from a JSON file and `--set key=value`; anything that is
// unknown, of the wrong type, out of range or given twice is refused with its place.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/optim/schedule.h>
#include <shardgrad/train/options.h>

namespace shardgrad::train {

class Registry;
/// What is built in.
std::shared_ptr<const Registry> built_in_registry();

/// In optimizer.no_decay: every parameter of one dimension.
inline constexpr const char* kVectors = "vectors";
/// In optimizer.adamw: the table of every nn::Embedding.
inline constexpr const char* kEmbeddings = "embeddings";

struct Config {
  /// What the names of data, model and task stand for.
  std::shared_ptr<const Registry> registry = built_in_registry();
  std::string name = "run";
  int64_t seed = 1;
  std::string device = "cpu";
  /// How many ranks there must be, and what says so, "a.json:3: gpus is 2"; 0: any number. No key, and not written.
  struct Ranks {
    int64_t count = 0;
    std::string said{};
  } ranks;
  std::string preset = "none";  ///< where defaults of other keys came from
  Component data{"fashion_mnist"}, model{"mlp"}, task{"classification"};
  std::optional<std::string> model_from{};     ///< key model.from: only while it is read
  std::vector<std::string> recompute{};        ///< key model.recompute
  std::vector<std::string> recompute_regex{};  ///< key model.recompute_regex
  struct Optimizer {
    std::string name = "sgd";
    double lr = 0.1, momentum = 0.9, weight_decay = 0, eps = 1e-8;
    bool nesterov = false;
    std::vector<double> betas{0.9, 0.999};
    std::vector<double> lion_betas{0.9, 0.99};
    double muon_momentum = 0.95;
    std::vector<std::string> adamw{kEmbeddings};  ///< of muon: names, or kEmbeddings
    std::vector<std::string> no_decay{kVectors};  ///< names, or kVectors
    bool stochastic_rounding = false;
  } optimizer;
  struct Schedule {
    std::string name = "constant";
    int64_t warmup_steps = 0;
    double final = 0;
    std::optional<int64_t> step_size{};
    double gamma = 0.1;
    int64_t patience = 10;  ///< evaluations
    optim::OneCycleOptions one_cycle{};
  } schedule;
  double clip_grad_norm = 0;
  std::string autocast = "off";  ///< or the dtype of matrix products
  int64_t batch = 256;
  int64_t micro_batches = 1;
  bool reduce_once = false;  ///< of micro-batches: not each, but all together
  bool sync_batchnorm = false;
  bool graph = false;  ///< steps are captured once and replayed
  int64_t grains = 0;  ///< parts of a batch that are added in one tree, on any number of ranks; 0: none
  int64_t epochs = 10;
  int64_t steps = 0;         ///< 0: as many as `epochs` have
  int64_t eval_every = 0;    ///< steps; 0: an epoch
  int64_t sanity_steps = 2;  ///< batches of an evaluation before the first step
  int64_t early_stop = 0;    ///< evaluations without a better score; 0: never
  std::string strategy = "zero3";
  struct Fsdp {
    std::string wrap = "children";
    int64_t wrap_numel = 100000;
    std::vector<std::string> wrap_types{}, wrap_names{}, wrap_regex{};
    shardgrad::fsdp::Config options = {};  ///< all but strategy and wrap
  } fsdp;
  std::vector<std::string> libraries;          ///< of kernels, loaded at the start
  std::map<std::string, std::string> kernels;  ///< operation -> the name of the kernel that replaces the built-in one
  int64_t stall_limit = 1800;                  ///< seconds
  int64_t log_interval = 100;
  bool log_steps = false;
  int64_t save_every = 0;    ///< steps; 0: not by steps
  double save_minutes = 10;  ///< 0: not by time
  bool save_beside = false;
  int64_t keep = 2;
  bool keep_best = false;
  std::string init_from;
  std::string on_nan = "stop";
  std::string runs = "runs";
  std::vector<int64_t> trace_steps{3, 4};  ///< the first and the last one; 0, 0: none
  bool tensorboard = false;
  bool resume = false;
};

/// The defaults, changed by the file (an empty path: none), changed by the overrides ("key=value"). Loads the libraries
/// that it names, and knows what `registry` and they register. Throws Error(input) with one line per fault, each naming
/// file and line (or the override), the key, and what was expected.
Config read_config(const std::string& path, const std::vector<std::string>& overrides, const Registry& registry);

/// The key, or the other name of one (aliases.h), that somebody meant who wrote `word`, which is none: "lr" and
/// "learning_rate" are optimizer.lr. Empty when none is near.
std::string nearest_key(const std::string& word, const Config& config = {});

/// Every key but those of the components, with the config's values; lives as long as this.
OptionList list_options(Config& config);

/// The whole configuration as JSON text; read_config reads it back.
std::string to_json(const Config& config);
/// The `model` group of it, on one line.
std::string model_text(const Config& config);
/// A line for each key that is not the default, and that has an effect; for people.
std::string to_lines(const Config& config);
/// Every key with its default, what it may be, and its meaning, as a Markdown table; and one of other names for keys.
std::string key_table(const Registry& registry);

}  // namespace shardgrad::train
