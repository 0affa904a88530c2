#include <shardgrad/train/alias_list.h>

namespace shardgrad::train {
namespace {

Values schedules() {
  return {{nullptr, "constant"},
          {"torch::StepLR", "step"},
          {"torch::CosineAnnealingLR", "cosine"},
          {"torch::OneCycleLR", "one_cycle"},
          {"torch::ReduceLROnPlateau", "plateau"},
          {"transformers::constant", "constant"},
          {"transformers::constant_with_warmup", "constant"},
          {"transformers::linear", "linear"},
          {"transformers::cosine", "cosine"}};
}

Values accelerators() { return {{"cpu", "cpu"}, {"gpu", "cuda"}, {"cuda", "cuda"}, {"auto", "auto"}}; }
Values engines() { return {{"fairscale", "fairscale"}, {"torch", "ddp"}}; }
Values optimizers() { return {{"torch::SGD", "sgd"}, {"torch::Adam", "adam"}, {"torch::AdamW", "adamw"}}; }

}  // namespace

const std::vector<Alias>& aliases() {
  static const std::vector<Alias> list{
      {"accelerator", "device", accelerators(), false, "`gpu` is `cuda`; a strategy's name is one of `strategy`"},
      {"gpus", "device", {}, true, "`cuda`, and the number of ranks that must be started; 0: `cpu`; -1: any number"},
      {"num_sanity_val_steps", "sanity_steps"},
      {"training_engine", "strategy", engines(), false, "`fairscale` is `zero3`, `torch` is `ddp`"},
      {"optimizer.type", "optimizer.name", optimizers(), true, "PyTorch's names after `torch::`"},
      {"max_grad_norm", "clip_grad_norm", {{nullptr, 0}}, true, "null: none"},
      {"amp_use_bfloat16",
       "autocast",
       {{true, "bf16"}, {false, "f16"}, {nullptr, nullptr}},
       false,
       "which one, beside `amp`"},
      {"amp", "autocast", {{true, true}, {false, "off"}}, false, "true: `bf16` on `device` cpu, `f16` elsewhere"},
      {"lr_scheduler.type", "schedule.name", schedules(), true, "PyTorch's names after `torch::` or `transformers::`"},
      {"lr_scheduler.num_warmup_steps", "schedule.warmup_steps"},
      {"lr_scheduler.step_size", "schedule.step_size"},
      {"lr_scheduler.gamma", "schedule.gamma"},
      {"lr_scheduler.factor", "schedule.gamma"},
      {"lr_scheduler.patience", "schedule.patience", {}, true, "one less: PyTorch does not count the last evaluation"},
      {"lr_scheduler.pct_start", "schedule.pct_start"},
      {"lr_scheduler.div_factor", "schedule.div_factor"},
      {"lr_scheduler.final_div_factor", "schedule.final_div_factor"},
      {"lr_scheduler", "schedule.name", schedules(), true, "the same"},
      {"fsdp_config.reshard_after_forward",
       "strategy",
       {{true, "zero3"}, {false, "zero2"}},
       false,
       "true: `zero3`, false: `zero2`; a number of ranks is `fsdp.reshard_after_forward`"},
      {"fsdp_config.move_params_to_cpu", "fsdp.move_params_to_cpu"},
      {"fsdp_config.move_grads_to_cpu", "fsdp.move_grads_to_cpu", {{nullptr, nullptr}}, true, "null: unset"},
      {"fsdp_config.mixed_precision",
       "fsdp.param_dtype",
       {{true, "f16"}, {false, "own"}},
       false,
       "true: `f16`, gradients are sent in f32"}};
  return list;
}

}  // namespace shardgrad::train
