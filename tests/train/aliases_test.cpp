// Names of Tango, Lightning and PyTorch for our keys.

#include "config_texts.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What is written stands for what is said in our names, to the byte of the printed configuration.
void expect_same(const std::string& theirs, const std::vector<std::string>& ours,
                 const std::vector<std::string>& overrides = {}) {
  EXPECT_EQ(to_json(config_of(theirs, overrides)), to_json(config_of("{}", ours))) << theirs;
}

TEST(Aliases, TangosNamesAreOursInThePrintedConfiguration) {
  expect_same(R"({"max_grad_norm": 2.5})", {"clip_grad_norm=2.5"});
  expect_same(R"({"max_grad_norm": null})", {});
  expect_same(R"({"lr_scheduler": {"type": "torch::StepLR", "step_size": 30, "gamma": 0.5}})",
              {"schedule.name=step", "schedule.step_size=30", "schedule.gamma=0.5"});
  expect_same(R"({"lr_scheduler": "torch::OneCycleLR"})", {"schedule.name=one_cycle"});
  expect_same(R"({"lr_scheduler": {"type": "transformers::linear", "num_warmup_steps": 7}})",
              {"schedule.name=linear", "schedule.warmup_steps=7"});
  expect_same(R"({"lr_scheduler": "cosine"})", {"schedule.name=cosine"});
  expect_same(R"({"lr_scheduler": null})", {});
}

// PyTorch lowers the rate after one evaluation more than it calls patience.
TEST(Aliases, PatienceIsCountedAsHere) {
  expect_same(R"({"lr_scheduler": {"type": "torch::ReduceLROnPlateau", "factor": 0.5, "patience": 2}})",
              {"schedule.name=plateau", "schedule.gamma=0.5", "schedule.patience=3"});
  expect_same(R"({"lr_scheduler": "torch::ReduceLROnPlateau"})", {"schedule.name=plateau", "schedule.patience=11"});
  expect_same(R"({"lr_scheduler": {"type": "torch::ReduceLROnPlateau", "factor": 0.5}})",
              {"schedule.name=plateau", "schedule.gamma=0.5", "schedule.patience=4"}, {"schedule.patience=4"});
  expect_same(R"({"lr_scheduler": "torch::ReduceLROnPlateau"})", {"schedule.name=linear"}, {"schedule.name=linear"});
  EXPECT_THAT(refusal(R"({"lr_scheduler": {"type": "plateau", "patience": 1.5}})"),
              HasSubstr("a.json:1 (lr_scheduler.patience): schedule.patience is 1.5, expected an integer from 1"));
}

TEST(Aliases, TheNumberOfTrainingStepsIsThatOfTheRun) {
  EXPECT_THAT(
      refusal(R"({"lr_scheduler": {"type": "transformers::linear", "num_training_steps": 90}})"),
      HasSubstr("a.json:1: lr_scheduler.num_training_steps is no key here: a schedule ends where the run does"));
}

// bf16 on the CPU, f16 elsewhere, unless it is said.
TEST(Aliases, AmpHasTangosDefaults) {
  expect_same(R"({"amp": true})", {"autocast=bf16"});
  expect_same(R"({"amp": true, "device": "cuda"})", {"autocast=f16", "device=cuda"});
  expect_same(R"({"amp": true, "accelerator": "gpu"})", {"autocast=f16", "device=cuda"});
  expect_same(R"({"amp": true, "amp_use_bfloat16": false})", {"autocast=f16"});
  expect_same(R"({"amp_use_bfloat16": true, "amp": true, "device": "cuda"})", {"autocast=bf16", "device=cuda"});
  expect_same(R"({"amp": true, "amp_use_bfloat16": null})", {"autocast=bf16"});
  expect_same(R"({"amp": false})", {});
  expect_same(R"({"amp_use_bfloat16": null})", {});
  expect_same(R"({"amp": true})", {"autocast=f16"}, {"amp_use_bfloat16=false"});
  expect_same(R"({"amp": true, "amp_use_bfloat16": true})", {"autocast=f16"}, {"amp_use_bfloat16=false"});
  for (const char* text : {R"({"amp_use_bfloat16": true})", R"({"amp_use_bfloat16": true, "amp": false})"})
    EXPECT_EQ(refusal(text), "a.json:1: amp_use_bfloat16 means nothing without amp=true");
  EXPECT_EQ(refusal(R"({"amp": "yes"})"), "a.json:1: amp is \"yes\", expected one of true, false");
}

TEST(Aliases, ComponentsNestByType) {
  expect_same(R"({"optimizer": {"type": "torch::AdamW", "lr": 0.01}})", {"optimizer.name=adamw", "optimizer.lr=0.01"});
  expect_same(R"({"strategy": {"type": "fairscale", "reshard_after_forward": false, "move_params_to_cpu": true}})",
              {"strategy=zero2", "fsdp.move_params_to_cpu=true"});
  expect_same(R"({"strategy": {"type": "hybrid", "shard_ranks": 2}})", {"strategy=hybrid", "fsdp.shard_ranks=2"});
  expect_same(R"({"strategy": {"type": "fsdp", "cpu_offload": true}})", {"fsdp.move_params_to_cpu=true"});
  expect_same(
      R"({"training_engine": {"type": "fairscale", "amp": true, "max_grad_norm": 2, "fsdp_config":
                  {"reshard_after_forward": false}, "optimizer": {"type": "torch::SGD"},
                  "lr_scheduler": {"type": "transformers::linear", "num_warmup_steps": 3}}})",
      {"strategy=zero2", "autocast=bf16", "clip_grad_norm=2", "schedule.name=linear", "schedule.warmup_steps=3"});
  expect_same(R"({"training_engine": "torch"})", {"strategy=ddp"});
  EXPECT_THAT(refusal(R"({"training_engine": {"type": "fairscale", "batch": 3}})"),
              HasSubstr("unknown key 'training_engine.batch'"));
  EXPECT_THAT(refusal(R"({"strategy": {"type": "fsdp", "flatten_parameters": true}})"),
              HasSubstr("unknown key 'fsdp.flatten_parameters'"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "torch::LBFGS"}})"), HasSubstr("optimizer.name is \"torch::LBFGS\""));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "torch::Adam", "name": "sgd"}})"), HasSubstr("are one key"));
  EXPECT_THAT(refusal(R"({"strategy": {"type": "hybrid", "shard_ranks": 2}, "fsdp": {"shard_ranks": 4}})"),
              HasSubstr("fsdp.shard_ranks and strategy.shard_ranks are one key"));
}

TEST(Aliases, FsdpConfigIsAStrategyAndItsKeys) {
  expect_same(R"({"fsdp_config": {}})", {"strategy=zero3"});
  expect_same(R"({"fsdp_config": {"reshard_after_forward": true, "move_params_to_cpu": true}})",
              {"strategy=zero3", "fsdp.move_params_to_cpu=true"});
  expect_same(R"({"fsdp_config": {"reshard_after_forward": false, "mixed_precision": true}})",
              {"strategy=zero2", "fsdp.param_dtype=f16"});
  expect_same(R"({"fsdp_config": {"mixed_precision": false, "move_grads_to_cpu": null}})", {});
  expect_same(R"({"fsdp_config": {"move_grads_to_cpu": true}})", {"fsdp.move_grads_to_cpu=true"});
  for (const char* general : {"fairscale", "fsdp"})
    for (std::string order : {R"({"strategy": "NAME", "fsdp_config": {"reshard_after_forward": false}})",
                              R"({"fsdp_config": {"reshard_after_forward": false}, "strategy": "NAME"})"})
      expect_same(order.replace(order.find("NAME"), 4, general), {"strategy=zero2"});
}

// As FSDP2 has it.
TEST(Aliases, ANumberOfRanksToReshardToIsAKeyOfItsOwn) {
  expect_same(R"({"strategy": {"type": "fsdp", "reshard_after_forward": 4}})", {"fsdp.reshard_after_forward=4"});
  expect_same(R"({"strategy": "hybrid", "fsdp": {"shard_ranks": 4}, "fsdp_config": {"reshard_after_forward": 2}})",
              {"strategy=hybrid", "fsdp.shard_ranks=4", "fsdp.reshard_after_forward=2"});
  EXPECT_THAT(refusal(R"({"fsdp_config": {"reshard_after_forward": -2}})"),
              HasSubstr("a.json:1 (fsdp_config.reshard_after_forward): fsdp.reshard_after_forward is -2, expected an"));
  EXPECT_THAT(refusal(R"({"fsdp_config": {"reshard_after_forward": 2}, "fsdp": {"reshard_after_forward": 4}})"),
              HasSubstr("are one key, fsdp.reshard_after_forward"));
  EXPECT_THAT(refusal(R"({"fsdp_config": {"reshard_after_forward": "node"}})"),
              HasSubstr("fsdp_config.reshard_after_forward is \"node\", expected one of true, false"));
}

TEST(Aliases, StrategiesAndAcceleratorsOfLightning) {
  for (auto [theirs, ours] : {std::pair("fsdp_native", "zero3"),
                              {"ddp_fully_sharded", "zero3"},
                              {"fairscale", "zero3"},
                              {"ddp_sharded", "zero2"},
                              {"ddp_sharded_spawn", "zero2"},
                              {"ddp_sharded_find_unused_parameters_false", "zero2"},
                              {"ddp_sharded_spawn_find_unused_parameters_false", "zero2"},
                              {"dp", "ddp"}})
    EXPECT_EQ(config_of("{}", {concat("strategy=", theirs)}).strategy, ours);
  expect_same(R"({"strategy": "fsdp_native_full_shard_offload"})", {"strategy=zero3", "fsdp.move_params_to_cpu=true"});
  expect_same(R"({"strategy": "fsdp_native_full_shard_offload"})", {"strategy=zero2"}, {"strategy=zero2"});
  expect_same(R"({"accelerator": "cpu"})", {});
  expect_same(R"({"accelerator": "auto"})", {"device=auto"});
  EXPECT_EQ(refusal(R"({"accelerator": "tpu"})"),
            R"(a.json:1: accelerator is "tpu", expected one of "cpu", "gpu", "cuda", "auto")");
  expect_same(R"({"num_sanity_val_steps": 0})", {"sanity_steps=0"});
}

// Older versions of Lightning had strategies there.
TEST(Aliases, AStrategyMayBeNamedAsAnAccelerator) {
  expect_same(R"({"accelerator": "ddp"})", {"strategy=ddp"});
  expect_same(R"({"accelerator": "ddp_sharded", "gpus": 2})", {"strategy=zero2", "device=cuda"});
  expect_same(R"({"accelerator": "ddp", "amp": true})", {"strategy=ddp", "autocast=bf16"});
  EXPECT_EQ(refusal("{\"strategy\": \"zero3\",\n\"accelerator\": \"ddp\"}"),
            "a.json:2: accelerator and strategy at a.json:1 are one key, strategy; leave one out");
}

// Lightning's number of GPUs is a device and a number of ranks, which is held against those that are started.
TEST(Aliases, NumbersOfGpusAndDevicesAreNumbersOfRanks) {
  using Overrides = std::vector<std::string>;
  auto ranks = [](const std::string& text, const Overrides& overrides = {}) {
    return config_of(text, overrides).ranks;
  };
  expect_same(R"({"gpus": 2})", {"device=cuda"});
  expect_same(R"({"gpus": -1})", {"device=cuda"});
  expect_same(R"({"gpus": 0})", {"device=cpu"});
  expect_same(R"({"gpus": null, "devices": null})", {});
  expect_same(R"({"devices": 3, "accelerator": "gpu"})", {"device=cuda"});
  expect_same(R"({"gpus": 2, "amp": true})", {"device=cuda", "autocast=f16"});
  expect_same(R"({"gpus": 0, "amp": true})", {"autocast=bf16"});
  EXPECT_EQ(ranks(R"({"gpus": 2})").count, 2);
  EXPECT_THAT(ranks(R"({"gpus": 2})").said, ::testing::EndsWith("a.json:1: gpus is 2"));
  EXPECT_EQ(ranks(R"({"devices": 3})").count, 3);
  for (const char* any : {"{}", R"({"gpus": -1})", R"({"gpus": 0})", R"({"devices": "auto"})"})
    EXPECT_EQ(ranks(any).count, 0) << any;
  // The command line changes what a file says.
  EXPECT_EQ(ranks(R"({"gpus": 2})", {"gpus=4"}).count, 4);
  EXPECT_EQ(ranks(R"({"gpus": 2})", {"device=cpu"}).count, 0);
  EXPECT_EQ(ranks(R"({"devices": 2})", {"accelerator=cpu"}).count, 2);
  EXPECT_EQ(ranks(R"({"devices": 2})", {"devices=auto"}).count, 0);
}

TEST(Aliases, WhatIsNoNumberOfGpusIsRefusedInLightningsWords) {
  for (const char* value : {"[0, 1]", "\"0,1\"", "1.5", "true", "-2"})
    EXPECT_THAT(refusal(concat("{\"gpus\": ", value, "}")), HasSubstr("expected how many, or -1 for any number; which"))
        << value;
  EXPECT_EQ(refusal(R"({"devices": 0})"), "a.json:1: devices is 0, expected how many ranks there are, or \"auto\"");
  EXPECT_EQ(refusal("{\"accelerator\": \"gpu\",\n\"gpus\": 2}"),
            "a.json:2: gpus and accelerator at a.json:1 are one key, device; leave one out");
  EXPECT_EQ(refusal("{\"devices\": 2,\n\"gpus\": 2}"),
            "a.json:2: gpus and devices at a.json:1 are one key, the number of ranks; leave one out");
}

TEST(Aliases, KeysOfBeforeAreRefusedWithThoseThatTookTheirPlace) {
  EXPECT_EQ(refusal("{\n\"trace\": true}"),
            "a.json:2: trace is no key any more; trace_steps took its place: the first and the last step that are "
            "traced, [0, 0] for none");
  EXPECT_EQ(refusal("{}", {"loss=mse"}), "--set loss=mse: loss is no key any more; task.loss took its place");
}

TEST(Aliases, AKeyThatIsGivenByBothNamesIsRefusedWithBothPlaces) {
  EXPECT_EQ(refusal("{\n\"clip_grad_norm\": 1,\n\"max_grad_norm\": 2}"),
            "a.json:3: max_grad_norm and clip_grad_norm at a.json:2 are one key, clip_grad_norm; leave one out");
  EXPECT_EQ(refusal("{\"amp\": true,\n\"autocast\": \"off\"}"),
            "a.json:2: autocast and amp at a.json:1 are one key, autocast; leave one out");
  EXPECT_THAT(refusal("{\"strategy\": \"ddp\",\n\"fsdp_config\": {\"reshard_after_forward\": true}}"),
              HasSubstr("a.json:2: fsdp_config.reshard_after_forward and strategy at a.json:1 are one key"));
  EXPECT_EQ(refusal("{}", {"device=cuda", "accelerator=cpu"}),
            "--set accelerator=cpu: accelerator and device at --set device=cuda are one key, device; leave one out");
  EXPECT_THAT(refusal("{\"lr_scheduler\": {\"factor\": 1,\n\"gamma\": 2}}"), HasSubstr("are one key, schedule.gamma"));
}

// A general strategy that another key refines is left out, and the rest of the file stays the file's.
TEST(Aliases, TheCommandLineChangesAFileWhoseStrategyIsRefined) {
  expect_same(R"({"strategy": "fairscale", "fsdp_config": {"reshard_after_forward": false}, "max_grad_norm": 2})",
              {"strategy=zero2", "clip_grad_norm=3"}, {"clip_grad_norm=3"});
}

// What wraps a model has fewer settings of ours, or more.
TEST(Aliases, TheCommandLineChangesAFileWhoseModelIsWrapped) {
  auto wrapped = [](const char* again) {
    return concat(R"({"num_sanity_val_steps": 3, "model": {"type": "fairscale::with_wrapped_modules",
                      "model": {"type": "mlp"}, "modules_to_wrap": ["layer0"], "activation_checkpointing": )",
                  again, "}}");
  };
  expect_same(wrapped("false"), {"sanity_steps=0"}, {"sanity_steps=0"});
  expect_same(wrapped("true"), {"sanity_steps=0", "model.recompute_regex=[\"layer0\"]"}, {"sanity_steps=0"});
}

// Whatever it is called there.
TEST(Aliases, TheCommandLineChangesWhatTheFileSays) {
  expect_same(R"({"max_grad_norm": 2})", {"clip_grad_norm=3"}, {"clip_grad_norm=3"});
  expect_same(R"({"clip_grad_norm": 2})", {"clip_grad_norm=3"}, {"max_grad_norm=3"});
  expect_same(R"({"clip_grad_norm": 2})", {}, {"max_grad_norm=null"});
  expect_same(R"({"autocast": "bf16"})", {}, {"amp=false"});
}

TEST(Aliases, RefusalsSayWhatWasWritten) {
  EXPECT_EQ(refusal("{\n\"max_grad_norm\": -1}"),
            "a.json:2 (max_grad_norm): clip_grad_norm is -1, expected a finite number 0 or more");
  EXPECT_EQ(refusal("{}", {"max_grad_norm=-1"}),
            "--set max_grad_norm=-1: clip_grad_norm is -1, expected a finite number 0 or more");
  EXPECT_THAT(refusal(R"({"lr_scheduler": "torch::LambdaLR"})"),
              HasSubstr("(lr_scheduler): schedule.name is \"torch::LambdaLR\", expected one of constant, linear"));
  EXPECT_THAT(refusal(R"({"lr_scheduler": {"type": "cosine", "T_max": 9}})"),
              HasSubstr("a.json:1: unknown key 'lr_scheduler.T_max'"));
}

TEST(Aliases, HintsAndTheTableOfKeysKnowThem) {
  for (auto [word, name] : {std::pair("max_gradnorm", "max_grad_norm"),
                            {"lr_schedular", "lr_scheduler"},
                            {"acelerator", "accelerator"},
                            {"fsdp_config.reshard_after_foward", "fsdp_config.reshard_after_forward"},
                            {"amp_use_bfloat_16", "amp_use_bfloat16"},
                            {"lr_scheduler.step_sise", "lr_scheduler.step_size"}})
    EXPECT_EQ(train::nearest_key(word), name);
  EXPECT_THAT(refusal("{}", {"max_gradnorm=1"}),
              HasSubstr("unknown key 'max_gradnorm'; did you mean 'max_grad_norm'?"));
  std::string table = train::key_table({});
  EXPECT_THAT(table, HasSubstr("\n| `max_grad_norm` | `clip_grad_norm` | null: none |\n"));
  EXPECT_THAT(table, Not(HasSubstr("`devices`")));
}

}  // namespace
}  // namespace shardgrad
