// A Hugging Face folder that a run begins with, and the folder that is made of the run.

#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <shardgrad/train/export_run.h>
#include <shardgrad/train/hf/component.h>
#include <shardgrad/train/hf/export.h>
#include <shardgrad/train/hf/layout.h>
#include <shardgrad/train/hf/transpose.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/trainer.h>

#include "disk_watch.h"
#include "hugging_face.h"
#include "opened_times.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using train::SafetensorsFile;

// The bytes of all tensors that a model is made of, by their bare names.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    SafetensorsFile file(entry.path(), SafetensorsFile::Access::read);
    for (const auto& [tensor, place] : file.tensors()) {
      if (train::hf::is_left_over(tensor)) continue;
      Tensor values = tensor_in(file, tensor);
      contents[train::hf::bare_name(tensor)] = concat(
          values.dtype(), values.shape(), std::string(static_cast<const char*>(values.in().data), values.bytes()));
    }
  }
  return contents;
}

TEST(Transpose, AnyPartOfAnyMatrixIsWhatItsDefinitionSays) {
  Context context;
  for (auto [rows, columns] : {std::pair(1, 5), {5, 1}, {16, 16}, {17, 33}, {40, 50}}) {
    int64_t count = rows * columns;
    std::vector<double> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(double(i % 251));
    for (DType dtype : {DType::u8, DType::bf16, DType::f32, DType::i64}) {
      Tensor matrix = from_vector(values, {rows, columns}, DType::f64).to(dtype);
      std::vector<double> expected = numbers(permute(matrix, {1, 0}));
      for (auto [first, last] : {std::pair<int64_t, int64_t>(0, count), {count / 3, count}, {1, count / 2}, {2, 3}}) {
        if (first > last || last > count) continue;
        Tensor around = full({last - first + 200}, 252, {dtype, kCpu}), part = around.rows(100, 100 + last - first);
        train::hf::read_transposed(matrix, first, part);
        for (const Tensor& guard : {around.rows(0, 100), around.rows(100 + last - first, around.numel())})
          EXPECT_EQ(numbers(guard), std::vector<double>(100, 252)) << "written beside";
        EXPECT_EQ(numbers(part), std::vector<double>(expected.begin() + first, expected.begin() + last))
            << rows << " x " << columns << " from " << first << " to " << last;
      }
    }
  }
}

class HuggingFaceRun : public ::testing::Test {
 protected:
  HuggingFaceRun() {
    std::string ids;
    for (int i = 0; i < 400; ++i) ids += {char(i * i % 23), 0};
    folder_.write("ids.bin", ids);
  }
  // A run that begins with a folder, of steps that change nothing unless `lr` is larger.
  train::Config config_of(const std::string& from, const std::string& more = "", double lr = 1e-30) {
    folder_.write("a.json", concat(R"({"data": {"name": "tokens", "length": 8, "train": ")", folder_ / "ids.bin",
                                   R"("}, "task": {"name": "next_token"}, "batch": 4, "steps": 2, "runs": ")",
                                   folder_ / "runs", R"(", "optimizer": {"name": "adamw", "lr": )", lr,
                                   R"(}, "model": {"from": ")", from, "\"", more, "}}"));
    return train::read_config(folder_ / "a.json", {}, train::Registry());
  }
  std::string train(const train::Config& config, int ranks) {
    std::string run;
    std::ostringstream out;
    dist::run_ranks(ranks,
                    [&](dist::ProcessGroup& world) {
                      train::Result mine = train::train(config, world, out, {});
                      if (world.rank() == 0) run = mine.folder;
                    },
                    {.seed = 1, .threads = 1});
    return run;
  }

  TemporaryFolder folder_;
};

TEST_F(HuggingFaceRun, ARunThatLearnsNothingGivesTheFolderThatItBeganWith) {
  for (auto [name, ranks] : {std::pair("gpt2", 2),
                             {"gpt2_untied", 1},
                             {"gpt2_inner", 2},
                             {"gpt2_old", 1},
                             {"llama_grouped", 2},
                             {"llama_head_dim", 3},
                             {"llama_old", 2},
                             {"gpt2_f16", 2},
                             {"llama_bf16", 1}}) {
    SCOPED_TRACE(name);
    FolderCopy from(name);
    from.configure("\"eos_token_id\": null", "\"eos_token_id\": 3");
    from.write("tokenizer.json", "its tokenizer");
    train::Config config = config_of(from.path());
    EXPECT_EQ(config.init_from, from.path());
    std::string run = train(config, ranks), to = folder_ / name;
    EXPECT_FALSE(train::export_run(config, run, to + "/").dtypes.too_narrow);
    Context context;
    auto before = contents(from.path()), after = contents(to);
    EXPECT_EQ(after, before);
    EXPECT_EQ(SafetensorsFile(to + "/model.safetensors", SafetensorsFile::Access::read).metadata().at("format"), "pt");
    EXPECT_EQ(read_file(to + "/tokenizer.json"), "its tokenizer");
    EXPECT_EQ(train::hf::read_token_ids(to), (train::hf::TokenIds{{"eos_token_id", "3"}}));
    EXPECT_EQ(FolderCopy(name).refusal(), "no error");
    train::open_weights(to);
  }
}

// The dtypes of all tensors of a folder, and what its config.json says.
std::set<std::string> dtypes_of(const std::string& folder) {
  std::set<std::string> dtypes;
  SafetensorsFile file(folder + "/model.safetensors", SafetensorsFile::Access::read);
  for (const auto& [name, entry] : file.tensors()) dtypes.insert(name_of(entry.spec.dtype));
  auto config = nlohmann::json::parse(read_file(folder + "/config.json"));
  EXPECT_EQ(config["dtype"], config["torch_dtype"]);
  dtypes.insert(config["dtype"]);
  return dtypes;
}
using Names = std::set<std::string>;

// What is learnt in f32 would be rounded by half the bits: that is for the user to ask for.
TEST_F(HuggingFaceRun, WhatWasLearntIsNotRoundedUnlessItIsAskedFor) {
  FolderCopy from("llama_bf16");
  train::Config config = config_of(from.path(), "", 0.01);
  std::string run = train(config, 2);
  train::ExportedRun wide = train::export_run(config, run, folder_ / "wide");
  EXPECT_EQ(wide.dtypes.written, DType::f32);
  EXPECT_EQ(wide.dtypes.too_narrow, DType::bf16);
  EXPECT_EQ(dtypes_of(folder_ / "wide"), (Names{"f32", "float32"}));
  train::ExportedRun narrow = train::export_run(config, run, folder_ / "narrow", DType::bf16);
  EXPECT_FALSE(narrow.dtypes.too_narrow);
  EXPECT_EQ(dtypes_of(folder_ / "narrow"), (Names{"bf16", "bfloat16"}));
  train::export_run(config, run, folder_ / "half", DType::f16);
  EXPECT_EQ(dtypes_of(folder_ / "half"), (Names{"f16", "float16"}));
  Context context;
  SafetensorsFile all(folder_ / "wide/model.safetensors", SafetensorsFile::Access::read);
  SafetensorsFile rounded(folder_ / "narrow/model.safetensors", SafetensorsFile::Access::read);
  for (const auto& [name, entry] : all.tensors())
    EXPECT_EQ(numbers(tensor_in(rounded, name)), numbers(tensor_in(all, name).to(DType::bf16))) << name;
}

TEST_F(HuggingFaceRun, OfWhatDoesNotChangeTheDtypeMayBeAskedFor) {
  FolderCopy from("gpt2_f16");
  train::Config config = config_of(from.path());
  std::string run = train(config, 1);
  train::export_run(config, run, folder_ / "wide", DType::f32);
  EXPECT_EQ(dtypes_of(folder_ / "wide"), (Names{"f32", "float32"}));
  fs::remove_all(from.path());
  EXPECT_EQ(train::export_run(config, run, folder_ / "alone").dtypes.written, DType::f32) << "nobody knows what it was";
}

// A run that goes on may remove it meanwhile.
TEST_F(HuggingFaceRun, TheModelOfARunIsOpenedOnce) {
  FolderCopy begin("gpt2");
  train::Config config = config_of(begin.path());
  std::string run = train(config, 1);
  for (const char* from : {"", "/step-2"})
    EXPECT_EQ(times_opened(run + "/step-2/model.safetensors",
                           [&] { train::export_run(config, run + from, folder_ / concat("out", from[0] != 0)); }),
              1);
}

TEST_F(HuggingFaceRun, APaddedTableIsCut) {
  FolderCopy from("gpt2_untied");
  train::Config config = config_of(from.path(), R"(, "vocab_multiple": 32, "dropout": 0)");
  std::string run = train(config, 2);
  EXPECT_EQ(
      SafetensorsFile(run + "/model.safetensors", SafetensorsFile::Access::read).tensors().at("wte.weight").spec.shape,
      Shape({32, 8}));
  train::export_run(config, run, folder_ / "out");
  Context context;
  EXPECT_EQ(contents(folder_ / "out"), contents(from.path()));
}

// The run has all that its folder said, and goes on, is scored and exported without it.
TEST_F(HuggingFaceRun, TheFolderIsNeededOnlyAtTheBeginning) {
  auto from = std::make_unique<FolderCopy>("llama_scaled");
  std::string run = train(config_of(from->path()), 2);
  from.reset();
  train::Config config =
      train::read_config(run + "/config.json", {"steps=4", "resume=true", "name=run"}, train::Registry());
  EXPECT_EQ(config.model.name, "llama");
  EXPECT_EQ(config.model.options.at("rope_scaling"), "[4.0,1.0,4.0,8.0]");
  train(config, 1);
  train::export_run(config, run, folder_ / "out");
  EXPECT_FALSE(fs::exists(folder_ / "out/tokenizer.json"));
}

TEST_F(HuggingFaceRun, KeysThatAreGivenWin) {
  FolderCopy from("gpt2");
  train::Config config = config_of(from.path(), R"(, "dropout": 0.25)");
  EXPECT_EQ(config.model.options.at("dropout"), "0.25");
  EXPECT_EQ(config.model.options.at("n_embd"), "8");
  EXPECT_EQ(to_json(config).find("\"from\""), std::string::npos);
  EXPECT_THAT(error_of([&] { config_of(from.path(), R"(, "name": "llama")"); }),
              HasSubstr("which holds a \"gpt2\"; leave model.name out"));
  from.configure("\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0.2");
  EXPECT_THAT(error_of([&] { config_of(from.path()); }), HasSubstr("training has one dropout for the three places"));
}

TEST_F(HuggingFaceRun, WhatIsWrongWithTheFolderIsSaidBeforeARunsFolderIsMade) {
  EXPECT_THAT(error_of([&] { config_of(folder_ / "nothing"); }), HasSubstr("cannot read '"));
  FolderCopy from("gpt2");
  train::Config config = config_of(from.path(), R"(, "n_embd": 16)");
  EXPECT_THAT(error_of([&] { train(config, 2); }), HasSubstr("'h.0.attn.c_attn.bias' is f32[48] here, but"));
  fs::resize_file(from.path() + "/model.safetensors", 1000);
  config = config_of(from.path());
  EXPECT_THAT(error_of([&] { train(config, 2); }), HasSubstr("is not a whole safetensors file"));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(HuggingFaceRun, WeightsThatAreNotFiniteAreRefusedBeforeTheFirstStep) {
  FolderCopy from("gpt2");
  spoil(from, "transformer.h.1.mlp.c_fc.weight", NAN);
  train::Config config = config_of(from.path());
  EXPECT_THAT(error_of([&] { train(config, 2); }),
              HasSubstr("tensor 'transformer.h.1.mlp.c_fc.weight' holds NaN; weights must be finite"));
  EXPECT_TRUE(fs::is_empty(folder_ / "runs"));
}

// Rows for tokens that the folder has not would be zeros, and tokens that the model has not would be lost.
TEST_F(HuggingFaceRun, AnotherVocabularyThanTheFoldersIsRefused) {
  FolderCopy from("gpt2");
  for (const char* more : {R"(, "vocab_size": 30)", R"(, "vocab_size": 23, "vocab_multiple": 24)"})
    EXPECT_THAT(error_of([&] { train(config_of(from.path(), more), 2); }),
                HasSubstr(concat(", but the table in '", from.path(),
                                 "' has 24 tokens; leave model.vocab_size out, or change the table in Python: ")));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

// As one that comes in the midst of it: the signal waits until nothing is left, and then does what it does.
TEST_F(HuggingFaceRun, OfAnExportThatIsInterruptedNothingIsLeft) {
  FolderCopy from("gpt2");
  train::Config config = config_of(from.path());
  std::string run = train(config, 1);
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  raise(SIGINT);
  EXPECT_EQ(error_of([&] { train::export_run(config, run, folder_ / "out"); }), "interrupted; nothing of it is left");
  EXPECT_FALSE(fs::exists(folder_ / "out.tmp") || fs::exists(folder_ / "out"));
  int number = 0;
  EXPECT_EQ(sigwait(&interrupt, &number), 0) << "it still waits";
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(HuggingFaceRun, OfAnExportThatFailsNothingIsLeft) {
  FolderCopy from("gpt2");
  train::Config config = config_of(from.path());
  std::string run = train(config, 1);
  for (auto [call, error] : {std::pair("fallocate", ENOSPC), {"pwrite", EFBIG}, {"fsync", EIO}}) {
    DiskWatch disk(folder_.path());
    disk.let_fail(call, error);
    EXPECT_THAT(error_of([&] { train::export_run(config, run, folder_ / "out"); }),
                AllOf(HasSubstr("model.safetensors': "), EndsWith(std::strerror(error))));
    for (const char* left : {"out", "out.tmp"}) EXPECT_FALSE(fs::exists(folder_ / left)) << call << ": " << left;
  }
  train::export_run(config, run, folder_ / "out");
}

// What is said of a model one of whose weights is `value`, of which nothing may be left.
std::string refused_export(double value, std::optional<DType> dtype = {}) {
  Context context;
  TemporaryFolder folder;
  auto options = std::get<nn::Gpt2Options>(train::hf::read_model_config(hugging_face_folder("gpt2")));
  auto model = nn::make<nn::Gpt2>(options);
  model->materialize();
  State state = model->state_dict();
  state["h.1.mlp.c_proj.weight"] = full(state["h.1.mlp.c_proj.weight"].shape(), value);
  train::save_safetensors(folder / "model", state);
  train::hf::ExportSource source{std::make_shared<train::FileWeights>(folder / "model"), ""};
  source.dtype = dtype;
  std::string why = error_of([&] { train::hf::export_folder(options, source, folder / "out"); });
  for (const char* left : {"out", "out.tmp"}) EXPECT_FALSE(fs::exists(folder / left)) << left;
  return why;
}

TEST(HuggingFaceExport, ARunWhoseTrainingFailedIsRefused) {
  EXPECT_THAT(refused_export(NAN),
              HasSubstr("model': tensor 'h.1.mlp.c_proj.weight' holds numbers that are not finite; there is nothing"));
}

TEST(HuggingFaceExport, NumbersThatAreTooLargeForADtypeAreRefused) {
  EXPECT_THAT(refused_export(1e5, DType::f16),
              HasSubstr("tensor 'h.1.mlp.c_proj.weight' holds numbers that are too large for f16; export it in bf16"));
}

TEST_F(HuggingFaceRun, NothingIsOverwrittenAndNothingIsLeftBehind) {
  FolderCopy from("gpt2");
  train::Config config = config_of(from.path());
  std::string run = train(config, 1);
  folder_.write("file", "mine");
  fs::create_directory(folder_ / "full");
  folder_.write("full/file", "mine");
  for (const char* taken : {"file", "full"})
    EXPECT_THAT(error_of([&] { train::export_run(config, run, folder_ / taken); }),
                EndsWith("is there already and not empty; name another folder, or remove it"));
  fs::create_directory(folder_ / "mine.tmp");
  folder_.write("mine.tmp/file", "mine");
  EXPECT_THAT(error_of([&] { train::export_run(config, run, folder_ / "mine"); }),
              HasSubstr("mine.tmp' is there already, where '"));
  EXPECT_EQ(read_file(folder_ / "mine.tmp/file"), "mine");
  fs::create_directory(folder_ / "empty");
  train::export_run(config, run, folder_ / "empty");
  EXPECT_TRUE(fs::exists(folder_ / "empty/model.safetensors"));
  EXPECT_THAT(error_of([&] { train::export_run(config, run, folder_ / "file/out"); }),
              HasSubstr("cannot make the folder"));
  train::Config other = config;
  other.model = {"mlp"};
  EXPECT_THAT(error_of([&] { train::export_run(other, run, folder_ / "out"); }),
              HasSubstr("model.name is mlp; a Hugging Face folder can hold gpt2 and llama"));
  EXPECT_THAT(error_of([&] { train::export_run(config, folder_ / "full", folder_ / "out"); }),
              HasSubstr("nothing is saved"));
  std::string file = fs::canonical(run + "/model.safetensors"), bytes = read_file(file);
  bytes.back() = char(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THAT(error_of([&] { train::export_run(config, run, folder_ / "out"); }), HasSubstr("is not what was saved"));
  for (const char* left : {"out", "out.tmp", "file.tmp", "full.tmp", "empty.tmp"})
    EXPECT_FALSE(fs::exists(folder_ / left)) << left;
}

}  // namespace
}  // namespace shardgrad
