// The one list of configuration keys, for reading, writing and the table of the documentation. Those of data sets,
// models and tasks are listed where they are defined.

#include <shardgrad/core/error.h>
#include <shardgrad/fsdp/setup/options.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::train {
namespace {

constexpr double kMost = 1 << 30;

// The largest number that a sharding option can hold, or an infinity.
template <class T> double fsdp_limit(const T&) {
  return std::is_same_v<T, int> ? double(std::numeric_limits<int>::max()) : std::numeric_limits<double>::infinity();
}

void list_subject(OptionList& list, Config& c) {
  const Registry& known = *c.registry;
  list.add("name", c.name, "the run's folder is `runs`/NAME");
  list.add("seed", c.seed, "initial weights and the order of samples are functions of it", {.low = 0});
  list.add("device", c.device,
           "`cuda` is a GPU, `auto` a GPU where there is one; `acc` and `sim` are host memory that behaves like a "
           "GPU's, for tests, `sim` with the kernels of `cuda`",
           {.choices = {"cpu", "cuda", "auto", "acc", "sim"}});
  list.add("preset", c.preset,
           "other defaults, for little memory or for speed; keys that are given win, and what comes of it is printed",
           {.choices = {"none", "memory", "speed"}});
  list.add("data.name", c.data.name, concat("the data set: ", known.description("data")),
           {.choices = known.names("data")});
  list.add("model.name", c.model.name, concat("what is trained: ", known.description("model")),
           {.choices = known.names("model")});
  list.add("model.from", c.model_from,
           "a Hugging Face folder: sets model.name, the model's options and init_from, where they are not given "
           "(docs/hugging-face.md)");
  list.add("model.recompute", c.recompute,
           "modules whose inside backward computes again instead of keeping it; `*` stands for any part "
           "(docs/recompute.md)");
  list.add("model.recompute_regex", c.recompute_regex, "likewise, by regular expressions that match whole names");
  list.add("task.name", c.task.name, concat("what the model learns to give: ", known.description("task")),
           {.choices = known.names("task")});
}

void list_schedule(OptionList& list, Config::Schedule& s) {
  list.add("schedule.name", s.name,
           "of the learning rate, after the warm-up; `plateau` follows the task's first score, all others the step",
           {.choices = {"constant", "linear", "cosine", "step", "one_cycle", "plateau"}});
  list.add("schedule.warmup_steps", s.warmup_steps, "linear from 0; one_cycle has a rise of its own",
           {.low = 0, .high = kMost});
  list.add("schedule.final", s.final, "linear and cosine only: what is left of the learning rate at the end",
           {.low = 0, .high = 1});
  list.add("schedule.step_size", s.step_size, "step only: steps between two drops", {.low = 1, .high = kMost});
  list.add("schedule.gamma", s.gamma, "step and plateau only: a drop is times this",
           {.low = 0, .high = 1, .above_low = true});
  list.add("schedule.patience", s.patience,
           "plateau only: a drop comes after so many evaluations in which the task's first score did not become better",
           {.low = 1, .high = kMost});
  list.add("schedule.pct_start", s.one_cycle.pct_start,
           "one_cycle only: share of the steps in which the learning rate rises, to `optimizer.lr`",
           {.low = 0, .high = 1});
  list.add("schedule.div_factor", s.one_cycle.div_factor, "one_cycle only: it begins at `optimizer.lr` over this",
           {.low = 0, .above_low = true});
  list.add("schedule.final_div_factor", s.one_cycle.final_div_factor,
           "one_cycle only: it ends at its beginning over this", {.low = 0, .above_low = true});
}

void list_optimizer(OptionList& list, Config& c) {
  auto& o = c.optimizer;
  list.add(
      "optimizer.name", o.name,
      "PyTorch's formulas; lion: arXiv 2302.06675; muon: of matrices, whose steps are scaled to be as large as those "
      "of adamw, which updates the rest (docs/zero.md)",
      {.choices = {"sgd", "adam", "adamw", "lion", "muon"}});
  list.add("optimizer.lr", o.lr, "learning rate, before the schedule", {.low = 0, .above_low = true});
  list.add("optimizer.momentum", o.momentum, "sgd only", {.low = 0, .high = 1, .below_high = true});
  list.add("optimizer.nesterov", o.nesterov, "sgd only");
  list.add("optimizer.betas", o.betas, "adam, adamw, and the rest of muon",
           {.low = 0, .high = 1, .below_high = true, .length = 2});
  list.add("optimizer.eps", o.eps, "adam, adamw, and the rest of muon", {.low = 0, .above_low = true});
  list.add("optimizer.lion_betas", o.lion_betas, "lion only", {.low = 0, .high = 1, .below_high = true, .length = 2});
  list.add("optimizer.muon_momentum", o.muon_momentum, "muon only; Nesterov's",
           {.low = 0, .high = 1, .below_high = true});
  list.add(
      "optimizer.adamw", o.adamw,
      "muon only: names of matrices that adamw updates; `*` stands for any part, and `embeddings` for the table of "
      "every Embedding");
  list.add("optimizer.weight_decay", o.weight_decay, "added to the gradient for sgd and adam, decoupled otherwise",
           {.low = 0});
  list.add("optimizer.no_decay", o.no_decay,
           "parameter names without weight decay; `*` stands for any part, and `vectors` for every parameter of one "
           "dimension, such as biases and the gains of norms");
  list.add("optimizer.stochastic_rounding", o.stochastic_rounding,
           "sgd, adam and adamw only: parameters may be of bf16, as a model of your own may have them, and are rounded "
           "up or down by chance (docs/mixed_precision.md)");
}

void list_loop(OptionList& list, Config& c) {
  list.add("clip_grad_norm", c.clip_grad_norm, "bound of the gradients' norm, all together; 0: none", {.low = 0});
  list.add("autocast", c.autocast,
           "what matrix products of forward compute in, with what needs range or precision in f32; `f16` turns loss "
           "scaling on (docs/mixed_precision.md)",
           {.choices = {"off", "bf16", "f16"}});
  list.add("batch", c.batch, "samples per step, all ranks together", {.low = 1, .high = kMost});
  list.add("micro_batches", c.micro_batches, "parts of a rank's samples that go through the model one after the other",
           {.low = 1, .high = kMost});
  list.add("reduce_once", c.reduce_once,
           "send the gradients of all micro-batches together: less traffic, and memory for the full gradients");
  list.add("grains", c.grains,
           "parts of a batch that go through the model one after the other, and are added in one order on 1, 2, 4, … "
           "ranks, with the same bits (docs/grains.md); 0: none",
           {.low = 0, .high = kMost});
  list.add("sync_batchnorm", c.sync_batchnorm,
           "a BatchNorm normalises by the samples of all ranks, not by a rank's own: the same model on any number of "
           "ranks, but for micro-batches; two sums more in forward, and one in backward");
  list.add("graph", c.graph,
           "a step of one GPU is captured once, and then launched as a whole (docs/cuda.md); numbers stay the same");
  list.add("epochs", c.epochs, "passes over the training samples", {.low = 1, .high = kMost});
  list.add("steps", c.steps, "how many to train, in the place of `epochs`; 0: by epochs", {.low = 0, .high = kMost});
  list.add("eval_every", c.eval_every, "steps between evaluations; 0: at the end of every epoch",
           {.low = 0, .high = kMost});
  list.add("sanity_steps", c.sanity_steps,
           "batches of the test samples that are evaluated before the first step, to find there what would fail; "
           "training is the same; 0: none",
           {.low = 0, .high = kMost});
  list.add("early_stop", c.early_stop,
           "end after so many evaluations in which the task's first score did not become better; 0: never",
           {.low = 0, .high = kMost});
}

void list_sharding(OptionList& list, Config& c) {
  list.add("strategy", c.strategy, "what is sharded; it never changes the numbers (docs/zero.md)",
           {.choices = fsdp::strategy_names()});
  list.add("fsdp.wrap", c.fsdp.wrap,
           "units: one per layer, or of at least `fsdp.wrap_numel`, or what `fsdp.wrap_types`, `fsdp.wrap_names` and "
           "`fsdp.wrap_regex` choose",
           {.choices = {"children", "size", "types"}});
  list.add("fsdp.wrap_numel", c.fsdp.wrap_numel, "parameters of a unit, for `size`", {.low = 1});
  list.add("fsdp.wrap_types", c.fsdp.wrap_types, "for `types`: every module of these types, such as `Linear`");
  list.add(
      "fsdp.wrap_names", c.fsdp.wrap_names,
      "for `types`: every module of these names, such as `blocks.?`; `*` stands for any part, `?` for one character");
  list.add("fsdp.wrap_regex", c.fsdp.wrap_regex,
           "for `types`: every module whose whole name is matched by one of these regular expressions, such as "
           "`blocks\\.[0-9]+`");
  fsdp::visit_options(c.fsdp.options, [&](const std::string& name, auto& option, const char* meaning) {
    if (name == "sync_module_states") return;  // values are a function of a seed that all ranks are checked to share
    list.add("fsdp." + name, option, meaning, {.low = 0, .high = fsdp_limit(option)});
  });
}

void list_run(OptionList& list, Config& c) {
  list.add("libraries", c.libraries,
           "shared libraries of kernels, data sets, models and tasks, loaded at the start (docs/extending.md)");
  list.add("stall_limit", c.stall_limit,
           "seconds that ranks wait for a late one, which is named meanwhile, before the job ends",
           {.low = 1, .high = kMost});
  list.add("log_interval", c.log_interval, "steps between progress lines", {.low = 1, .high = kMost});
  list.add("log_steps", c.log_steps, "metrics.jsonl has a line for every step, not only for every progress line");
  list.add("save_every", c.save_every, "steps between checkpoints; 0: not by steps", {.low = 0, .high = kMost});
  list.add("save_minutes", c.save_minutes, "minutes between checkpoints; 0: not by time", {.low = 0});
  list.add("save_beside", c.save_beside,
           "copy what is saved and write it beside training; needs memory for a second shard");
  list.add("keep", c.keep, "how many checkpoints stay, the newest", {.low = 1, .high = kMost});
  list.add("keep_best", c.keep_best,
           "save where the task's first score is the best until then, and keep that one, too");
  list.add(
      "init_from", c.init_from,
      "a safetensors file, a run or one of its checkpoints, or a Hugging Face folder, whose parameters and buffers the "
      "run begins with; empty: none",
      {.may_be_empty = true});
  list.add("on_nan", c.on_nan,
           "what a gradient or loss that is not finite does to the run; such parameters are never saved",
           {.choices = {"stop", "continue"}});
  list.add("runs", c.runs, "the folder of all runs");
  list.add("resume", c.resume,
           "go on in `runs`/NAME from its last checkpoint, or begin there; without it every run has a folder of its "
           "own");
  list.add("trace_steps", c.trace_steps,
           "the first and the last step of which trace.json is to say what ran when on which rank, and who owned the "
           "memory; `[0, 0]`: none",
           {.low = 0, .high = kMost, .length = 2});
  list.add("tensorboard", c.tensorboard, "write the scalars of metrics.jsonl for TensorBoard, too");
}

}  // namespace

OptionList list_options(Config& config) {
  OptionList list;
  list_subject(list, config);
  list_optimizer(list, config);
  list_schedule(list, config.schedule);
  list_loop(list, config);
  list_sharding(list, config);
  list_run(list, config);
  return list;
}

}  // namespace shardgrad::train
