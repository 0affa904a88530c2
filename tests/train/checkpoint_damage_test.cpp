// Checkpoints that somebody or something has changed: refused by what was changed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <shardgrad/train/checkpoint/safetensors.h>

#include "checkpoint_files.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CheckpointFiles, DamagedFilesAreRefusedByName) {
  save_on_one_rank();
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "run.json"}) {
    std::string path = *latest() + "/" + name, whole = read_file(path);
    for (const std::string& damaged : {std::string(), whole.substr(0, whole.size() - 3)}) {
      folder_.write(std::string("step-2/") + name, damaged);
      EXPECT_THAT(refusal(), HasSubstr("'" + path + "'"));
      bool tensors = path.ends_with(".safetensors");
      EXPECT_THAT(refusal(), HasSubstr("write its name into the file latest"));
      if (tensors) continue;
      const char* why = damaged.empty() ? "it is empty. To go" : "it ends in the middle, in line ";
      EXPECT_THAT(refusal(), HasSubstr(concat("' is damaged: ", why)));
    }
    std::filesystem::remove(path);
    EXPECT_THAT(refusal(), AllOf(HasSubstr("'" + path + "'"), HasSubstr("No such file or directory"),
                                 HasSubstr("write its name into the file latest")));
    folder_.write(std::string("step-2/") + name, whole);
  }
  EXPECT_EQ(refusal(), "no error");
  train::SafetensorsFile::create(*latest() + "/model.safetensors",
                                 {{"first.weight", {{7, 4}, DType::f32}}, {"other", {{1}, DType::f32}}});
  EXPECT_THAT(refusal(), HasSubstr("'first.weight' is f32[7, 5] here, but f32[7, 4] was given"));
  EXPECT_THAT(refusal(), HasSubstr("missing: 'last.weight'"));
  EXPECT_THAT(refusal(), HasSubstr("unknown: 'other'"));
  std::string header = R"({"last.weight":{"dtype":"F8_E4M3","shape":[1,7],"data_offsets":[0,7]}})";
  folder_.write("step-2/model.safetensors", std::string{char(header.size()), 0, 0, 0, 0, 0, 0, 0} + header + "1234567");
  EXPECT_THAT(refusal(), HasSubstr("'last.weight' cannot be read: its dtype is F8_E4M3"));
  folder_.write("step-2/run.json", R"({"format": 1, "step": "x"})");
  EXPECT_THAT(refusal(), HasSubstr("run.json' is damaged: type must be number, but is string. To go on from an older"));
  folder_.write("step-2/run.json", std::string(200'000, '[') + std::string(200'000, ']'));
  EXPECT_THAT(refusal(), HasSubstr("run.json' is damaged"));
  folder_.write("latest", "../elsewhere\n");
  EXPECT_THAT(refusal(), HasSubstr("/latest' says '../elsewhere'"));
}

// Every tensor of both files, and nothing was changed when it is noticed.
TEST_F(CheckpointFiles, AFlippedBitIsRefusedWithTheTensorsName) {
  save_on_one_rank();
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    std::string path = *latest() + "/" + name, whole = read_file(path);
    std::map<std::string, int64_t> tensors;
    train::SafetensorsFile file(path, train::SafetensorsFile::Access::read);
    for (const auto& [tensor, entry] : file.tensors())
      tensors[tensor] = entry.begin + entry.spec.shape.numel() * int64_t(size_of(entry.spec.dtype)) - 1;
    for (const auto& [name_of_tensor, last] : tensors) {
      const std::string& tensor = name_of_tensor;
      std::string flipped = whole;
      flipped[size_t(last)] ^= 1;
      folder_.write(std::string("step-2/") + name, flipped);
      dist::run_ranks(3, [&](dist::ProcessGroup& world) {
        Trained other(world, fsdp::Strategy::zero3, 1);
        auto before = fsdp::sharded_state_dict(*other.sharded);
        EXPECT_THAT(error_of([&] { load(other); }),
                    HasSubstr("'" + path + "': '" + tensor + "' is not what was saved"));
        auto after = fsdp::sharded_state_dict(*other.sharded);
        for (size_t i = 0; i < before.size(); ++i)
          EXPECT_EQ(after[i].values.to_vector<float>(), before[i].values.to_vector<float>());
      });
    }
    folder_.write(std::string("step-2/") + name, whole);
  }
}

TEST_F(CheckpointFiles, AFileOfAnotherCheckpointIsRefused) {
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 2);
    train::save_checkpoint(folder_.path(), config_, {2, 20, 7, {}}, trained.state(), {.count = 2});
    trained.train(1);
    train::save_checkpoint(folder_.path(), config_, {3, 30, 7, {}}, trained.state(), {.count = 2});
  });
  std::filesystem::copy(folder_ / "step-2/optimizer.safetensors", folder_ / "step-3/optimizer.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(), HasSubstr("step-3/optimizer.safetensors': 'first.bias.exp_avg' is not what was saved"));
  Context context;
  train::save_safetensors(folder_ / "step-3/optimizer.safetensors", {});
  EXPECT_THAT(refusal(), HasSubstr("missing: 'first.bias.exp_avg'"));
  EXPECT_THAT(
      error_of([&] { train::verify_checkpoint(folder_ / "step-3"); }),
      HasSubstr("step-3/optimizer.safetensors' has no 'first.bias.exp_avg', which was saved: the file is of another "
                "checkpoint. To go on from an older checkpoint, write its name into the file latest"));
}

TEST_F(CheckpointFiles, ANewerFormatIsRefused) {
  save_on_one_rank();
  std::string about = bytes("run.json"), now = "\"format\": 2";
  about.replace(about.find(now), now.size(), "\"format\": 3");
  folder_.write("step-2/run.json", about);
  EXPECT_THAT(refusal(), HasSubstr("run.json': it is in format 3, written by a newer shardgrad"));
}

// The loss scale, the best score, how inputs were standardised: a bit there changes what follows as one of a tensor.
TEST_F(CheckpointFiles, AFlippedBitBesideTheTensorsIsRefused) {
  save_on_one_rank();
  const std::string whole = bytes("run.json");
  for (size_t bit = 0; bit < 8 * whole.size(); bit += 7) {
    std::string flipped = whole;
    flipped[bit / 8] = char(flipped[bit / 8] ^ (1 << bit % 8));
    folder_.write("step-2/run.json", flipped);
    EXPECT_THAT(error_of([&] { train::read_manifest(folder_ / "step-2"); }), HasSubstr("/run.json'"))
        << "bit " << bit << " of\n"
        << whole;
  }
  folder_.write("step-2/run.json", whole);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string file = bytes(name), step = "\"step\":\"2\"";
    std::string flipped = file;
    flipped.replace(flipped.find(step), step.size(), "\"step\":\"3\"");
    folder_.write(std::string("step-2/") + name, flipped);
    EXPECT_THAT(refusal(), HasSubstr(concat("/", name, "': its header is not what was saved")));
    EXPECT_THAT(error_of([&] { train::verify_checkpoint(folder_ / "step-2"); }), HasSubstr("its header is not"));
    folder_.write(std::string("step-2/") + name, file);
  }
  EXPECT_EQ(refusal(), "no error");
}

// As those of before were written, which had neither.
TEST_F(CheckpointFiles, TheFormatBeforeIsRead) {
  save_on_one_rank();
  auto about = nlohmann::ordered_json::parse(bytes("run.json"));
  about["format"] = 1;
  about.erase("headers");
  about.erase("check");
  folder_.write("step-2/run.json", about.dump(2));
  EXPECT_EQ(refusal(), "no error");
}

}  // namespace
}  // namespace shardgrad
