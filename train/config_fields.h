#pragma once
// The one list of configuration keys, walked by reading, writing and the table of the documentation.

#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <shardgrad/fsdp/setup/options.h>
#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// What a value (each value, for a list) may be.
struct Rule {
  std::initializer_list<const char*> choices{};  ///< strings
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool above_low = false, below_high = false;  ///< the limit itself is excluded
  bool may_be_empty = false;                   ///< a text
  size_t length = 0;                           ///< exact length of a list; 0: one or more
};

/// The largest number that a sharding option can hold, or an infinity.
template <class T> double fsdp_limit(const T&) {
  return std::is_same_v<T, int> ? 1 << 30 : std::numeric_limits<double>::infinity();
}

/// Calls visit(key, field, rule, meaning) for every key. C is Config or const Config.
template <class C, class Visit> void visit_fields(C& c, Visit&& visit) {
  constexpr double kMost = 1 << 30;
  using Choices = std::initializer_list<const char*>;
  auto& o = c.optimizer;
  auto text = [&](const char* key, auto& field, const char* meaning) { visit(key, field, Rule{}, meaning); };
  auto choice = [&](const char* key, auto& field, Choices choices, const char* meaning) {
    visit(key, field, Rule{.choices = choices}, meaning);
  };
  auto number = [&](const char* key, auto& field, Rule rule, const char* meaning) { visit(key, field, rule, meaning); };
  text("name", c.name, "the run's folder is `runs`/NAME");
  number("seed", c.seed, {.low = 0}, "initial weights and the order of samples are functions of it");
  choice("device", c.device, {"cpu", "cuda", "auto", "acc", "sim"},
         "`cuda` is a GPU, `auto` a GPU where there is one; `acc` and `sim` are host memory that behaves like a GPU's, "
         "for tests, `sim` with the kernels of `cuda`");
  choice("data.name", c.data.name, {"fashion_mnist"}, "the data set");
  text("data.dir", c.data.dir, "the folder with its files");
  number("model.layers", c.model.layers, {.low = 1, .high = kMost}, "widths from input to output");
  choice("model.activation", c.model.activation, {"relu", "gelu", "tanh", "sigmoid"}, "between layers");
  text("model.recompute", c.model.recompute,
       "modules whose inside backward computes again instead of keeping it; `*` stands for any part "
       "(docs/recompute.md)");
  choice("loss", c.loss, {"mse", "cross_entropy"}, "`mse` is on one-hot targets");
  choice("optimizer.name", o.name, {"sgd", "adam", "adamw"}, "PyTorch's formulas");
  number("optimizer.lr", o.lr, {.low = 0, .above_low = true}, "learning rate, before the schedule");
  number("optimizer.momentum", o.momentum, {.low = 0, .high = 1, .below_high = true}, "sgd only");
  number("optimizer.nesterov", o.nesterov, {}, "sgd only");
  number("optimizer.betas", o.betas, {.low = 0, .high = 1, .below_high = true, .length = 2}, "adam and adamw only");
  number("optimizer.eps", o.eps, {.low = 0, .above_low = true}, "adam and adamw only");
  number("optimizer.weight_decay", o.weight_decay, {.low = 0}, "decoupled for adamw, added to the gradient otherwise");
  text("optimizer.no_decay", o.no_decay, "parameter names without weight decay; `*` stands for any part");
  choice("schedule.name", c.schedule.name, {"constant", "linear", "cosine"}, "of the learning rate, after the warm-up");
  number("schedule.warmup_steps", c.schedule.warmup_steps, {.low = 0, .high = kMost}, "linear from 0");
  number("schedule.final", c.schedule.final, {.low = 0, .high = 1}, "what is left of the learning rate at the end");
  number("clip_grad_norm", c.clip_grad_norm, {.low = 0}, "bound of the gradients' norm, all together; 0: none");
  number("batch", c.batch, {.low = 1, .high = kMost}, "samples per step, all ranks together");
  number("epochs", c.epochs, {.low = 1, .high = kMost}, "passes over the training samples");
  choice("strategy", c.strategy,
         {"zero3", "zero2", "zero1", "ddp", "hybrid", "full_shard", "fsdp", "shard_grad_op", "sharded_ddp", "oss",
          "no_shard", "hybrid_shard", "hsdp"},
         "what is sharded; it never changes the numbers (docs/zero.md)");
  choice("fsdp.wrap", c.fsdp.wrap, {"children", "size"}, "units: one per layer, or of at least `fsdp.wrap_numel`");
  number("fsdp.wrap_numel", c.fsdp.wrap_numel, {.low = 1}, "parameters of a unit, for `size`");
  shardgrad::fsdp::visit_options(c.fsdp.options, [&](const std::string& name, auto& option, const char* meaning) {
    if (name == "sync_module_states") return;  // values are a function of a seed that all ranks are checked to share
    visit("fsdp." + name, option, Rule{.low = 0, .high = fsdp_limit(option)}, meaning);
  });
  text("libraries", c.libraries, "shared libraries of kernels, loaded at the start (docs/extending.md)");
  number("stall_limit", c.stall_limit, {.low = 1, .high = kMost},
         "seconds that ranks wait for a late one, which is named meanwhile, before the job ends");
  number("log_interval", c.log_interval, {.low = 1, .high = kMost}, "steps between progress lines");
  number("save_every", c.save_every, {.low = 0, .high = kMost}, "steps between checkpoints; 0: not by steps");
  number("save_minutes", c.save_minutes, {.low = 0}, "minutes between checkpoints; 0: not by time");
  number("save_beside", c.save_beside, {},
         "copy what is saved and write it beside training; needs memory for a second shard");
  number("keep", c.keep, {.low = 1, .high = kMost}, "how many checkpoints stay, the newest");
  number("keep_best", c.keep_best, {}, "save where the test accuracy is the best until then, and keep that one, too");
  visit("init_from", c.init_from, Rule{.may_be_empty = true},
        "a safetensors file whose parameters and buffers the run begins with; empty: none");
  choice("on_nan", c.on_nan, {"stop", "continue"},
         "what a gradient or loss that is not finite does to the run; such parameters are never saved");
  text("runs", c.runs, "the folder of all runs");
  number("resume", c.resume, {},
         "go on in `runs`/NAME from its last checkpoint, or begin there; without it every run has a folder of its own");
  number("trace", c.trace, {}, "write trace.json, a timeline for chrome://tracing or Perfetto");
}

}  // namespace shardgrad::train
