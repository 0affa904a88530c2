#include <algorithm>
#include <filesystem>
#include <set>

#include <shardgrad/train/aliases.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/synonyms.h>

#include "config_texts.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using train::Config;

TEST(Config, NestedKeysDefaultsAndOverrides) {
  Config config = config_of(R"({"batch": 64, "optimizer": {"name": "sgd", "lr": 1}})",
                            {"batch=32", "model.layers=[4, 3, 2]", "optimizer.nesterov=true", "name=two words"});
  EXPECT_EQ(config.batch, 32);
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.optimizer.momentum, 0.9);
  EXPECT_TRUE(config.optimizer.nesterov);
  EXPECT_EQ(config.model.options.at("layers"), "[4,3,2]");
  EXPECT_EQ(config.name, "two words");
  EXPECT_EQ(config_of("{}", {"name=2020"}).name, "2020") << "no shell keeps the quotes of a text";
  EXPECT_THAT(refusal(R"({"name": 2020})"), HasSubstr("name is 2020, expected a text"));
}

TEST(Config, WhatIsWrittenIsReadBack) {
  for (const char* optimizer : {"sgd", "adam"}) {
    Config config =
        config_of(R"({"optimizer": {"lr": 0.1, "weight_decay": 1, "no_decay": ["a", "*.b"]}, "trace_steps": [5, 7]})",
                  {concat("optimizer.name=", optimizer)});
    std::string text = to_json(config);
    EXPECT_THAT(text, HasSubstr("\"no_decay\""));
    EXPECT_EQ(to_json(config_of(text)), text);
  }
}

TEST(Config, KernelsAreChosenByOperation) {
  Config config = config_of(R"({"libraries": ["libm.so.6"], "kernels": {"sigmoid": "mine"}})", {"kernels.neg=3x"});
  EXPECT_EQ(config.libraries, std::vector<std::string>{"libm.so.6"});
  EXPECT_EQ(config.kernels, (std::map<std::string, std::string>{{"neg", "3x"}, {"sigmoid", "mine"}}));
  EXPECT_EQ(config_of(to_json(config)).kernels, config.kernels);
  EXPECT_EQ(refusal(R"({"kernels": {"sigmoid": 3}})"), "a.json:1: kernels.sigmoid is 3, expected a text");
}

TEST(Config, B37_UnknownKeysNameTheNearestOne) {
  EXPECT_EQ(refusal("{\n  \"batch\": 1,\n  \"optimzer\": {\"lr\": 1}\n}"),
            "a.json:3: unknown key 'optimzer.lr'; did you mean 'optimizer.lr'? (`shardgrad train --keys` lists all)");
  EXPECT_THAT(refusal("{}", {"lr=1"}), HasSubstr("--set lr=1: unknown key 'lr'; did you mean 'optimizer.lr'?"));
  EXPECT_THAT(refusal("{\"optimizer\": 3}"),
              HasSubstr("'optimizer' is a group of keys; did you mean 'optimizer.name'"));
  EXPECT_THAT(refusal("{\"batch\": {\"size\": 3}}"), HasSubstr("unknown key 'batch.size'; did you mean 'batch'?"));
  EXPECT_EQ(refusal("{}", {"colour=red"}),
            "--set colour=red: unknown key 'colour'; `shardgrad train --keys` lists all");
}

TEST(Config, WordsOfOtherToolsNameOurKeyAndWhatDiffers) {
  for (auto [word, key] : {std::pair("max_steps", "steps"),
                           {"max_epochs", "epochs"},
                           {"num_epochs", "epochs"},
                           {"save_steps", "save_every"},
                           {"eval_steps", "eval_every"},
                           {"val_check_interval", "eval_every"},
                           {"log_every_n_steps", "log_interval"},
                           {"precision", "autocast"},
                           {"fp16", "autocast"},
                           {"bf16", "autocast"},
                           {"accumulate_grad_batches", "micro_batches"},
                           {"gradient_accumulation_steps", "micro_batches"},
                           {"gradient_clip_val", "clip_grad_norm"},
                           {"grad_clip", "clip_grad_norm"},
                           {"output_dir", "runs"},
                           {"trainer.max_epochs", "epochs"}})
    EXPECT_THAT(refusal("{}", {concat(word, "=1")}), HasSubstr(concat("'; did you mean '", key, "'? ("))) << word;
  EXPECT_EQ(
      refusal("{}", {"fp16=true"}),
      "--set fp16=true: unknown key 'fp16'; did you mean 'autocast'? (true is f16, false is off; `shardgrad train "
      "--keys` lists all)");
  std::set<std::string> words;
  for (const std::string& alias : train::alias_names()) words.insert(alias);
  for (const train::Synonym& synonym : train::synonyms())
    EXPECT_TRUE(words.insert(synonym.word).second) << synonym.word << " has two homes";
}

TEST(Config, OptionsOfTheChosenModelAreMeantFirst) {
  EXPECT_THAT(refusal("{}", {"hidden=[3]"}), HasSubstr("did you mean 'model.layers'?"));
  EXPECT_THAT(refusal("{}", {"model.name=cnn", "hidden=[3]"}), HasSubstr("did you mean 'model.hidden'? (`"));
  EXPECT_THAT(refusal("{}", {"channel=[3]"}),
              HasSubstr("did you mean 'model.channels'? (an option of cnn, and model.name is mlp; `"));
  EXPECT_EQ(refusal("{}", {"model.hidden=[3]"}),
            "--set model.hidden=[3]: model.hidden is an option of cnn, but model.name is mlp");
}

TEST(Config, TheCommandLinesLengthTakesThePlaceOfTheFiles) {
  EXPECT_EQ(config_of(R"({"epochs": 7})", {"steps=3"}).steps, 3);
  Config config = config_of(R"({"steps": 7})", {"epochs=3"});
  EXPECT_EQ(std::pair(config.steps, config.epochs), std::pair(int64_t(0), int64_t(3)));
  EXPECT_EQ(config_of(R"({"epochs": 7})", {"steps=0"}).epochs, 7);
  EXPECT_THAT(refusal("{}", {"steps=3", "epochs=3"}), HasSubstr("epochs means nothing to a run of `steps`"));
  EXPECT_THAT(refusal(R"({"steps": 3, "epochs": 3})"), HasSubstr("epochs means nothing to a run of `steps`"));
}

TEST(Config, NamesOfFoldersHaveNoControlCharacters) {
  EXPECT_EQ(refusal(R"({"name": "a\u0000b"})"),
            "name is 'a\\x00b'; it names a folder: no '/', no leading '.', no control characters");
  EXPECT_THAT(refusal("{}", {"name=a\x7f"}), HasSubstr("name is 'a\\x7f'"));
  EXPECT_EQ(refusal(R"({"runs": "a\n"})"), "runs is 'a\\x0a'; it names a folder: no control characters");
  EXPECT_EQ(config_of(R"({"name": "größe 3"})").name, "größe 3");
}

TEST(Config, ALibraryOfThisFolderIsKnownByItsWholePath) {
  TemporaryFolder folder;
  std::filesystem::path here = std::filesystem::current_path();
  std::string library;
  for (const char* place : {"/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"})
    if (std::filesystem::exists(place)) library = place;
  if (library.empty()) GTEST_SKIP() << "no library to copy";
  std::filesystem::create_symlink(library, folder / "own.so");
  std::filesystem::current_path(folder.path());
  Config config = config_of(R"({"libraries": ["./own.so"]})");
  std::filesystem::current_path(here);
  EXPECT_EQ(config.libraries, std::vector<std::string>{folder / "own.so"});
  EXPECT_EQ(config_of(to_json(config)).libraries, config.libraries) << "from elsewhere";
  EXPECT_THAT(refusal(R"({"libraries": ["./own.so"]})"),
              HasSubstr("a library (`libraries`) cannot be loaded: ./own.so: "));
}

TEST(Config, KeysAreFoundByWhatTheyAreCalledElsewhere) {
  for (auto [word, key] : {std::pair("lr", "optimizer.lr"),
                           {"learning_rate", "optimizer.lr"},
                           {"optimizer.learning_rate", "optimizer.lr"},
                           {"weight_decay", "optimizer.weight_decay"},
                           {"batch_size", "batch"},
                           {"epoch", "epochs"},
                           {"warmup", "schedule.warmup_steps"},
                           {"optimizer", "optimizer.name"},
                           {"startegy", "strategy"}})
    EXPECT_EQ(train::nearest_key(word), key);
  for (const char* word : {"colour", "ranks", "x", ""}) EXPECT_EQ(train::nearest_key(word), "") << word;
}

// An empty folder of runs would be the root's.
TEST(Config, EmptyTextsAreRefusedWithTheirKey) {
  for (const char* key : {"runs", "name", "data.dir"})
    EXPECT_EQ(
        refusal("{}", {concat(key, "=")}),
        concat("--set ", key, "=: ", key, " is \"\", expected a text that is not empty; leave it out for the default"));
  EXPECT_EQ(refusal(R"({"libraries": [""]})"),
            R"(a.json:1: libraries is [""], expected a list, each a text that is not empty)");
}

TEST(Config, AFileMayHaveComments) {
  EXPECT_EQ(config_of("// of mine\n{\"batch\": 7, /* not\n 8 */ \"runs\": \"a // b\"}").runs, "a // b");
  EXPECT_THAT(refusal("{ // one\n/* two\nthree */ \"bach\": 7}"), HasSubstr("a.json:3: unknown key 'bach'"));
  EXPECT_THAT(refusal("{\"batch\": 7} /* to the end"), HasSubstr("a.json:1: "));
}

TEST(Config, WrongTypesAndRangesSayWhatWasExpected) {
  EXPECT_EQ(refusal("{\n\"batch\" 4}"), "a.json:2: unexpected number literal; expected ':'");
  EXPECT_EQ(refusal(R"({"batch": four})"), "a.json:1: invalid literal at '\"batch\": fo'");
  EXPECT_EQ(refusal(R"({"batch": "many"})"), "a.json:1: batch is \"many\", expected an integer from 1 to 1073741824");
  EXPECT_EQ(refusal(R"({"batch": 2.5})"), "a.json:1: batch is 2.5, expected an integer from 1 to 1073741824");
  EXPECT_EQ(refusal(R"({"batch": 0})"), "a.json:1: batch is 0, expected an integer from 1 to 1073741824");
  EXPECT_EQ(refusal(R"({"seed": 18446744073709551615})"),
            "a.json:1: seed is 18446744073709551615, expected an integer 0 or more");
  EXPECT_EQ(refusal(R"({"resume": 1})"), "a.json:1: resume is 1, expected true or false");
  EXPECT_EQ(refusal(R"({"batch": null})"), "a.json:1: batch is null, expected an integer from 1 to 1073741824");
  EXPECT_EQ(refusal(R"({"optimizer": {"lr": 0}})"), "a.json:1: optimizer.lr is 0, expected a finite number above 0");
  EXPECT_EQ(refusal(R"({"optimizer": {"momentum": 1}})"),
            "a.json:1: optimizer.momentum is 1, expected a finite number from 0 to below 1");
  EXPECT_EQ(refusal(R"({"device": "gpu"})"), "a.json:1: device is \"gpu\", expected one of cpu, cuda, auto, acc, sim");
  EXPECT_EQ(refusal(R"({"model": {"layers": [3, "x"]}})"),
            "a.json:1: model.layers is [3,\"x\"], expected a list of 2 or more, each an integer from 1 to 1073741824");
  EXPECT_EQ(refusal(R"({"optimizer": {"name": "adam", "betas": [0.9]}})"),
            "a.json:1: optimizer.betas is [0.9], expected a list of 2, each a finite number from 0 to below 1");
  EXPECT_EQ(refusal(R"({"data": {"name": "tokens", "train": "x", "length": 0}})"),
            "a.json:1: data.length is 0, expected an integer from 1 to 1073741824");
}

TEST(Config, NonFiniteNumbersAreRefused) {
  EXPECT_THAT(refusal("{\n\"optimizer\": {\"lr\": 1e999}}"), HasSubstr("a.json:2: the number 1e999 is not finite"));
  EXPECT_THAT(refusal("{\n\"optimizer\": {\"lr\": NaN}}"), HasSubstr("a.json:2: "));
  EXPECT_THAT(refusal("{}", {"optimizer.lr=nan"}), HasSubstr("\"nan\", expected a finite number above 0"));
  EXPECT_THAT(refusal("{}", {"optimizer.lr=-inf"}), HasSubstr("expected a finite number above 0"));
  EXPECT_THAT(refusal("{}", {"optimizer.lr=1e999"}), HasSubstr("expected a finite number above 0"));
}

TEST(Config, DuplicateKeysNameBothPlaces) {
  EXPECT_EQ(refusal("{\n\"batch\": 1,\n\"batch\": 2\n}"), "a.json:3: batch is given twice; first at a.json:2");
  EXPECT_THAT(refusal("{\"optimizer.lr\": 1,\n\"optimizer\": {\"lr\": 2}}"),
              HasSubstr("a.json:2: optimizer.lr is given twice; first at a.json:1"));
  EXPECT_EQ(refusal("{}", {"batch=1", "batch=2"}), "--set batch=2: batch is given twice on the command line");
}

TEST(Config, EveryFaultIsListedAtOnce) {
  EXPECT_EQ(refusal("{\"batch\": 0,\n\"epochs\": 0}", {"seed=-1"}),
            "a.json:1: batch is 0, expected an integer from 1 to 1073741824\n"
            "a.json:2: epochs is 0, expected an integer from 1 to 1073741824\n"
            "--set seed=-1: seed is -1, expected an integer 0 or more");
  EXPECT_EQ(
      refusal("{\"batch\": 0}", {"optimizer.betas=[0.9,0.9]", "optimizer.name=sgd"}),
      "a.json:1: batch is 0, expected an integer from 1 to 1073741824\n"
      "--set optimizer.betas=[0.9,0.9]: optimizer.betas means nothing to sgd; remove it or change optimizer.name");
  EXPECT_THAT(refusal("{}", {"optimizer.betas=[0.9,0.9]", "optimizer.name=adm"}), Not(HasSubstr("means nothing")))
      << "nobody knows which optimizer was meant";
  EXPECT_THAT(refusal("{}", {"reduce_once=true", "micro_batches=0"}), Not(HasSubstr("means nothing")))
      << "nor how many micro-batches";
}

TEST(Config, WhatDoesNotGoWithGrainsIsRefused) {
  for (const char* other : {"micro_batches=2", "reduce_once=true"})
    EXPECT_THAT(refusal("{}", {"grains=4", other}), HasSubstr("means nothing to grains; remove it or change grains"));
  EXPECT_THAT(refusal("{}", {"grains=5", "batch=4"}), HasSubstr("grains is 5, and a batch has 4 samples"));
  for (const char* dtype : {"bf16", "f16"})
    EXPECT_THAT(refusal("{}", {"grains=4", concat("fsdp.reduce_dtype=", dtype)}),
                HasSubstr(concat("grains: gradients that are sent as ", dtype)));
  EXPECT_EQ(refusal("{}", {"grains=4", "fsdp.reduce_dtype=f32", "fsdp.param_dtype=bf16"}), "no error");
}

TEST(Config, FilesThatAreNotOneObjectAreRefusedWithTheLine) {
  EXPECT_THAT(refusal("{\n\"batch\" 3}"), HasSubstr("a.json:2: "));
  EXPECT_THAT(refusal("{\"batch\": 3"), HasSubstr("a.json:1: "));
  for (const char* text : {"{\"batch\": 3,\n}", "{\"batch\": 3, \"optimizer\": {\"lr\": 1,\n }}"})
    EXPECT_EQ(refusal(text), "a.json:2: there is a comma before '}', and nothing after it; remove it");
  EXPECT_EQ(refusal("{\"model\": {\"layers\": [3, 4, ]}}"),
            "a.json:1: there is a comma before ']', and nothing after it; remove it");
  EXPECT_THAT(refusal(""), HasSubstr("a.json:1: "));
  EXPECT_THAT(refusal("[1]"), HasSubstr("the file must hold one object"));
  EXPECT_THAT(refusal("{\"model\": {\"layers\": [{\"a\": 1}]}}"), HasSubstr("an object is not possible here"));
  EXPECT_THAT(error_of([] { train::read_config("no/such.json", {}, {}); }),
              HasSubstr(concat("the configuration: cannot read 'no/such.json': No such file or directory in '",
                               std::filesystem::current_path().string(), "'")));
  EXPECT_THAT(refusal("{}", {"batch"}), HasSubstr("--set batch: write key=value"));
  EXPECT_THAT(refusal("{}", {"runs=/data/r\xe9s"}), HasSubstr("its value is no UTF-8"));
}

// However deep: told at once, with the line, in little memory and without recursion.
TEST(Config, NestingBeyondAnySettingIsRefusedWithTheLine) {
  auto times = [](const std::string& part) {
    std::string text;
    for (int i = 0; i < 200'000; ++i) text += part;
    return text;
  };
  EXPECT_EQ(refusal("{\n\"epochs\": " + times("[") + times("]") + "}"),
            "a.json:2: this is nested deeper than any setting");
  EXPECT_EQ(refusal("\n\n" + times("{\"a\":")), "a.json:3: this is nested deeper than any setting");
  EXPECT_THAT(refusal(times("[")), HasSubstr("a.json:1: this is nested deeper"));
}

TEST(Config, WhatFollowsANulByteIsNotIgnored) {
  EXPECT_EQ(refusal(std::string("{\"epochs\": 1}\n") + '\0' + "{\"epochs\": 2}"),
            "a.json:2: there is a NUL byte, which no text has");
}

TEST(Config, RefusalsRepeatLongValuesOnlyInPart) {
  std::string list = "[";
  for (int i = 0; i < 20'000; ++i) list += "1,";
  std::string many(50'000, 'k'), umlauts;
  for (int i = 0; i < 10'000; ++i) umlauts += "ü";
  EXPECT_THAT(refusal("{\"batch\": " + list + "1]}"), HasSubstr("… (40003 bytes), expected an integer"));
  for (const std::string& message :
       {refusal("{\"batch\": " + list + "1]}"), refusal("{\"" + many + "\": 1}"),
        refusal("{\"kernels\": {\"a\": " + list + "1]}}"), refusal("{\"name\": \"/" + many + "\"}"),
        refusal("{\"batch\": \"" + many), refusal("{\"batch\": 1" + many), refusal("{}", {"batch=" + many}),
        refusal("{}", {many}), refusal("{}", {many + "=1", many + "=1"}),
        refusal("{\"optimizer\": {\"lr\": 1" + std::string(9'999, '0') + "}}")})
    EXPECT_LT(message.size(), 2000) << message;
  EXPECT_EQ(train::shortened("a" + umlauts), "a" + umlauts.substr(0, 198) + "… (20001 bytes)") << "whole characters";
}

TEST(Config, AFileFullOfFaultsIsAnsweredInFiftyLines) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += concat(i == 0 ? "{" : ",", "\"key", i, "\": 1");
  std::string message = refusal(text + "}");
  EXPECT_EQ(std::ranges::count(message, '\n'), 50);
  EXPECT_TRUE(message.ends_with("\n… and 10 more"));
}

TEST(Config, OtherNamesOfStrategiesAreAcceptedAndResolved) {
  EXPECT_EQ(config_of("{}", {"strategy=full_shard"}).strategy, "zero3");
  EXPECT_EQ(config_of("{}", {"strategy=shard_grad_op"}).strategy, "zero2");
  EXPECT_EQ(config_of("{}", {"strategy=no_shard"}).strategy, "ddp");
  EXPECT_EQ(config_of("{}", {"strategy=oss"}).strategy, "zero1");
  EXPECT_EQ(config_of("{}", {"strategy=hsdp"}).strategy, "hybrid");
}

TEST(Config, EveryShardingOptionIsAKeyAndComesBack) {
  Config config = config_of("{}", {"fsdp.prefetch=3", "fsdp.param_dtype=bf16", "fsdp.move_grads_to_cpu=true"});
  EXPECT_EQ(config.fsdp.options.prefetch, 3);
  EXPECT_EQ(config.fsdp.options.param_dtype, DType::bf16);
  EXPECT_EQ(config.fsdp.options.reduce_dtype, std::nullopt);
  EXPECT_TRUE(config.fsdp.options.grads_to_cpu());
  EXPECT_EQ(to_json(config_of(to_json(config))), to_json(config));
  EXPECT_EQ(to_json(config).find("bucket_bytes"), std::string::npos) << "unset";
  EXPECT_EQ(config_of(to_json(config), {"fsdp.param_dtype=own"}).fsdp.options.param_dtype, std::nullopt);
  EXPECT_THAT(refusal("{}", {"fsdp.param_dtype=f64"}), HasSubstr("expected one of own, f32, bf16, f16"));
  EXPECT_THAT(refusal("{}", {"fsdp.prefetch=-1"}), HasSubstr("expected an integer from 0 to 2147483647"));
  EXPECT_THAT(refusal("{}", {"fsdp.prefetch_bytes=-1"}), HasSubstr("expected an integer 0 or more"));
  EXPECT_THAT(refusal("{}", {"fsdp.move_grads_to_cpu=1"}), HasSubstr("expected true or false"));
}

TEST(Config, TheLargestIntegersAreTakenAndNoneBeyond) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  Config config = config_of(concat("{\"seed\": ", kLargest, ", \"fsdp\": {\"prefetch_bytes\": ", kLargest, "}}"),
                            {"fsdp.prefetch=2147483647"});
  EXPECT_EQ(config.seed, kLargest);
  EXPECT_EQ(config.fsdp.options.prefetch_bytes, kLargest);
  EXPECT_EQ(config.fsdp.options.prefetch, std::numeric_limits<int>::max());
  EXPECT_EQ(to_json(config_of(to_json(config))), to_json(config));
  EXPECT_THAT(refusal("{}", {"seed=9223372036854775808"}), HasSubstr("seed is 9223372036854775808, expected"));
  EXPECT_THAT(refusal("{}", {"fsdp.prefetch=2147483648"}), HasSubstr("fsdp.prefetch is 2147483648, expected"));
}

TEST(Config, SettingsWithoutEffectAreRefused) {
  EXPECT_EQ(refusal(R"({"optimizer": {"name": "adamw", "momentum": 0.5}})"),
            "a.json:1: optimizer.momentum means nothing to adamw; remove it or change optimizer.name");
  EXPECT_THAT(refusal("{}", {"optimizer.eps=1"}), HasSubstr("optimizer.eps means nothing to sgd"));
  EXPECT_EQ(refusal(R"({"schedule": {"final": 0.1}})"),
            "a.json:1: schedule.final means nothing to a constant schedule; remove it or change schedule.name");
  EXPECT_EQ(refusal("{}", {"fsdp.wrap_numel=100000"}),
            "--set fsdp.wrap_numel=100000: fsdp.wrap_numel means nothing to units that are the model's children; "
            "remove it or change fsdp.wrap");
  EXPECT_EQ(config_of("{}", {"strategy=ddp", "fsdp.prefetch=2"}).fsdp.options.prefetch, 2)
      << "one file for all strategies";
  EXPECT_THAT(
      refusal("{}", {"fsdp.prefetch=0", "fsdp.prefetch_bytes=9"}),
      HasSubstr("fsdp.prefetch_bytes means nothing to a prefetch of 0 units; remove it or change fsdp.prefetch"));
  for (const char* bytes : {"0", "100", "26214400"})
    for (const char* strategy : {"zero3", "fsdp", "zero2"})
      EXPECT_THAT(refusal("{}", {concat("strategy=", strategy), concat("fsdp.bucket_bytes=", bytes)}),
                  HasSubstr("fsdp.bucket_bytes means nothing to"));
  EXPECT_EQ(config_of("{}", {"strategy=zero1", "fsdp.bucket_bytes=0"}).fsdp.options.bucket_bytes, 0);
  EXPECT_EQ(config_of("{}", {"strategy=zero2", "fsdp.keep_params=true", "fsdp.bucket_bytes=7"}).fsdp.options.bucket(),
            7);
  EXPECT_THAT(refusal("{}", {"model.layers=[3]"}),
              HasSubstr("model.layers is [3], expected a list of 2 or more, each an integer from 1"));
  EXPECT_EQ(config_of("{}", {"init_from="}).init_from, "");
  EXPECT_THAT(refusal("{}", {"name=a/b"}), HasSubstr("it names a folder"));
}

TEST(Config, KeysOfOtherSchedulesAreRefused) {
  for (auto [key, of] : {std::pair("final", "linear cosine"),
                         {"step_size", "step"},
                         {"gamma", "step plateau"},
                         {"patience", "plateau"},
                         {"pct_start", "one_cycle"},
                         {"div_factor", "one_cycle"},
                         {"final_div_factor", "one_cycle"},
                         {"warmup_steps", "constant linear cosine step plateau"}})
    for (const char* name : {"constant", "linear", "cosine", "step", "one_cycle", "plateau"}) {
      std::vector<std::string> overrides{concat("schedule.name=", name), concat("schedule.", key, "=1")};
      if (name == std::string("step") && key != std::string("step_size")) overrides.push_back("schedule.step_size=9");
      if (concat(" ", of, " ").find(concat(" ", name, " ")) != std::string::npos)
        EXPECT_THAT(to_json(config_of("{}", overrides)), HasSubstr(concat("\"", key, "\": 1")));
      else
        EXPECT_EQ(refusal("{}", overrides), concat("--set schedule.", key, "=1: schedule.", key, " means nothing to a ",
                                                   name, " schedule; remove it or change schedule.name"));
    }
  EXPECT_EQ(refusal("{}", {"schedule.name=step"}),
            "schedule.name is step, which needs schedule.step_size: the steps between two drops");
  EXPECT_THAT(refusal("{}", {"schedule.name=step", "schedule.step_size=0"}), HasSubstr("expected an integer from 1"));
}

TEST(Config, EachKeyOfUnitsBelongsToOneWayToChooseThem) {
  for (auto [key, wrap] : {std::pair("wrap_numel=7", "size"),
                           {"wrap_types=[\"A\"]", "types"},
                           {"wrap_names=[\"a\"]", "types"},
                           {"wrap_regex=[\"a\"]", "types"}})
    for (auto [other, units] : {std::pair("children", "units that are the model's children"),
                                {"size", "units of a size"},
                                {"types", "units that types and names choose"}}) {
      std::vector<std::string> overrides{concat("fsdp.wrap=", other), concat("fsdp.", key)};
      if (other == std::string(wrap))
        EXPECT_EQ(config_of("{}", overrides).fsdp.wrap, wrap);
      else
        EXPECT_THAT(refusal("{}", overrides), HasSubstr(concat(" means nothing to ", units, "; remove it")));
    }
  EXPECT_EQ(
      refusal("{}", {"fsdp.wrap=types"}),
      "fsdp.wrap is types, which needs fsdp.wrap_types (such as [\"Linear\"]), fsdp.wrap_names or fsdp.wrap_regex");
}

TEST(Config, WhatHasNoEffectIsNotSavedAndSoReadBack) {
  for (const std::vector<std::string>& overrides : {std::vector<std::string>{},
                                                    {"strategy=ddp"},
                                                    {"fsdp.prefetch=0"},
                                                    {"optimizer.name=adamw"},
                                                    {"schedule.name=step", "schedule.step_size=7"},
                                                    {"schedule.name=one_cycle"},
                                                    {"schedule.name=plateau"}}) {
    std::string text = to_json(config_of("{}", overrides));
    EXPECT_EQ(to_json(config_of(text)), text);
  }
  Config config =
      config_of("{}", {"schedule.name=linear", "schedule.final=0.5", "fsdp.wrap=size", "fsdp.wrap_numel=7"});
  EXPECT_EQ(config_of(to_json(config)).schedule.final, 0.5);
  EXPECT_EQ(config_of(to_json(config)).fsdp.wrap_numel, 7);
}

}  // namespace
}  // namespace shardgrad
