// Defaults that belong together.

#include "config_texts.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;

// The keys that the presets know of.
std::string chosen(const std::vector<std::string>& overrides) {
  train::Config config = config_of("{}", overrides);
  const fsdp::Config& fsdp = config.fsdp.options;
  return concat(config.strategy, " ", fsdp.prefetch, fsdp.move_params_to_cpu ? " in host memory" : "",
                fsdp.param_dtype ? concat(" ", *fsdp.param_dtype) : "");
}

TEST(Preset, SetsDefaultsAndMoreOnAGpu) {
  EXPECT_EQ(chosen({}), "zero3 1");
  EXPECT_EQ(chosen({"preset=none"}), "zero3 1");
  EXPECT_EQ(chosen({"preset=memory"}), "zero3 0");
  EXPECT_EQ(chosen({"preset=speed"}), "zero2 1");
  EXPECT_EQ(chosen({"preset=memory", "device=cpu"}), "zero3 0");
  EXPECT_EQ(chosen({"preset=memory", "device=cuda"}), "zero3 0 in host memory bf16");
  EXPECT_EQ(chosen({"preset=speed", "device=cuda"}), "zero2 1 bf16");
  EXPECT_THAT(refusal("{}", {"preset=fast"}), HasSubstr("preset is \"fast\", expected one of none, memory, speed"));
}

TEST(Preset, GivesWayToKeysWhereverTheyAreGiven) {
  EXPECT_EQ(chosen({"strategy=zero2", "preset=memory"}), "zero2 0");
  EXPECT_EQ(chosen({"preset=memory", "fsdp.prefetch=3"}), "zero3 3");
  EXPECT_EQ(config_of(R"({"strategy": "zero1"})", {"preset=speed"}).strategy, "zero1") << "that of a file, too";
  EXPECT_EQ(chosen({"preset=speed", "device=cuda", "fsdp.param_dtype=own"}), "zero2 1");
  EXPECT_EQ(chosen({"preset=speed", "device=cuda", "autocast=f16"}), "zero2 1") << "16 bits once";
  EXPECT_EQ(chosen({"preset=speed", "device=cuda", "autocast=off"}), "zero2 1 bf16");
  EXPECT_EQ(config_of(R"({"preset": "memory"})", {"preset=speed"}).strategy, "zero2") << "the last one counts";
  EXPECT_THAT(refusal("{}", {"preset=memory", "device=cuda", "strategy=fast"}),
              HasSubstr("strategy is \"fast\", expected one of"))
      << "as without a preset";
  EXPECT_EQ(chosen({"preset=memory", "device=cuda", "strategy=ddp"}), "ddp 0 bf16") << "ddp has no shards to move";
  EXPECT_EQ(chosen({"preset=memory", "device=cuda", "strategy=zero2", "fsdp.keep_params=true"}), "zero2 0 bf16");
}

TEST(Preset, WhatCameOfItIsPrintedAndReadBack) {
  for (const char* preset : {"memory", "speed"}) {
    std::string text = to_json(config_of("{}", {concat("preset=", preset), "device=cuda"}));
    EXPECT_THAT(text, HasSubstr("\"param_dtype\": \"bf16\""));
    EXPECT_EQ(to_json(config_of(text)), text);
    std::string changed = to_json(config_of(text, {"fsdp.param_dtype=own"}));
    EXPECT_EQ(to_json(config_of(changed)), changed);
  }
}

}  // namespace
}  // namespace shardgrad
