// Hugging Face folders that are not whole, or are of another model: each is refused in one sentence.

#include <shardgrad/train/hf/folder_weights.h>

#include <sys/stat.h>

#include "hugging_face.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string sentence(const FolderCopy& folder) {
  std::string text = folder.refusal();
  EXPECT_THAT(text, HasSubstr(folder.path()));
  EXPECT_THAT(text, Not(HasSubstr("\n"))) << "one sentence";
  return text;
}

TEST(HuggingFaceFolder, TensorsOfAnotherModelAreListed) {
  FolderCopy deeper("gpt2"), flatter("gpt2"), wider("gpt2");
  deeper.configure("\"n_layer\": 2", "\"n_layer\": 3");
  EXPECT_THAT(sentence(deeper),
              HasSubstr("its tensors are not those of the gpt2 model of its config.json; missing are "
                        "'transformer.h.2.attn.c_attn.bias', 'transformer.h.2.attn.c_attn.weight', "));
  EXPECT_THAT(sentence(deeper), HasSubstr("'transformer.h.2.ln_2.weight' and 4 more"));
  flatter.configure("\"n_layer\": 2", "\"n_layer\": 1");
  EXPECT_THAT(sentence(flatter), HasSubstr("; not expected are 'transformer.h.1.attn.c_attn.bias', "));
  wider.configure("\"n_inner\": null", "\"n_inner\": 16");
  EXPECT_THAT(sentence(wider), HasSubstr("; of another form are 'transformer.h.0.mlp.c_fc.bias' (f32[32], not "
                                         "floating[16]), 'transformer.h.0.mlp.c_fc.weight' (f32[8, 32], not"));
}

TEST(HuggingFaceFolder, AHeadThatIsNotTheTableItIsTiedToIsRefused) {
  FolderCopy folder("gpt2");
  rewrite(folder, [](State& state) { state["lm_head.weight"] = state["transformer.wte.weight"]; });
  EXPECT_EQ(folder.refusal(), "no error");
  rewrite(folder, [](State& state) { state["lm_head.weight"] = state["lm_head.weight"] * 2; });
  EXPECT_THAT(sentence(folder), HasSubstr("lm_head.weight is not wte.weight, with which config.json ties it; set "
                                          "tie_word_embeddings there to false"));
  FolderCopy untied("gpt2");
  untied.configure("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
  EXPECT_THAT(sentence(untied), HasSubstr("missing are 'lm_head.weight'"));
}

// Of a table that is the head, too, either name will do.
TEST(HuggingFaceFolder, ATiedTableMayHaveTheHeadsNameAlone) {
  for (auto [name, table] :
       {std::pair("gpt2", "transformer.wte.weight"), {"llama_grouped", "model.embed_tokens.weight"}}) {
    FolderCopy folder(name);
    rewrite(folder, [&, &key = table](State& state) {
      ASSERT_TRUE(state.contains(key));
      state["lm_head.weight"] = state.extract(key).mapped();
    });
    EXPECT_EQ(folder.refusal(), "no error");
    Context context;
    auto numbers_of = [](const std::string& path) {
      auto model = train::hf::make_model(train::hf::read_model_config(path));
      train::load_model(path, *model);
      return numbers(model->named_parameters()[0].tensor);
    };
    EXPECT_EQ(numbers_of(folder.path()), numbers_of(hugging_face_folder(name)));
    rewrite(folder, [](State& state) { state["lm_head.weight"] = state["lm_head.weight"].rows(0, 3); });
    EXPECT_THAT(sentence(folder), HasSubstr("; of another form are 'lm_head.weight' (f32[3, "));
  }
}

// The masks in gpt2_old have a dtype that no tensor here has, and nobody asks for them.
TEST(HuggingFaceFolder, ATensorOfAnUnknownDTypeIsRefusedWhereItIsNeeded) {
  EXPECT_EQ(FolderCopy("gpt2_old").refusal(), "no error");
  FolderCopy folder("gpt2");
  std::string bytes = read_file(folder.path() + "/model.safetensors"),
              begin = "\"transformer.ln_f.bias\":{\"dtype\":\"";
  size_t at = bytes.find(begin);
  ASSERT_NE(at, std::string::npos);
  folder.write("model.safetensors", bytes.replace(at + begin.size(), 3, "C64"));
  EXPECT_THAT(sentence(folder), HasSubstr("; of another form are 'transformer.ln_f.bias' (its dtype is C64)"));
  FolderCopy integers("gpt2");
  rewrite(integers,
          [](State& state) { state["transformer.ln_f.bias"] = state["transformer.ln_f.bias"].to(DType::i32); });
  EXPECT_THAT(sentence(integers), HasSubstr("'transformer.ln_f.bias' (i32[8], not floating[8])"));
}

TEST(HuggingFaceFolder, FilesThatAreMissingOrDamagedAreNamed) {
  FolderCopy cut("gpt2"), none("gpt2"), pickled("gpt2");
  std::string bytes = read_file(cut.path() + "/model.safetensors");
  cut.write("model.safetensors", bytes.substr(0, bytes.size() - 1));
  EXPECT_THAT(sentence(cut), HasSubstr("/model.safetensors' is not a whole safetensors file: "));
  fs::remove(none.path() + "/model.safetensors");
  EXPECT_THAT(sentence(none), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  fs::rename(pickled.path() + "/model.safetensors", pickled.path() + "/pytorch_model.bin");
  EXPECT_THAT(sentence(pickled), HasSubstr("; pytorch_model.bin cannot be read: save the model with transformers"));
}

TEST(HuggingFaceFolder, AnIndexThatIsWrongIsRefused) {
  const std::string index = "model.safetensors.index.json";
  FolderCopy whole("llama_head_dim");
  std::string text = read_file(whole.path() + "/" + index);
  auto with = [&](const std::string& old, const std::string& now) {
    std::string changed = text;
    size_t at = changed.find(old);
    EXPECT_NE(at, std::string::npos) << old;
    return changed.replace(at, old.size(), now);
  };
  const std::string first = "\"model-00001-of-";
  for (auto [content, words] : std::vector<std::pair<std::string, std::string>>{
           {with(first, "\"model-00009-of-"), "cannot open '" + whole.path() + "/model-00009-of-"},
           {with(first, "\"../model-00001-of-"), "which is no name of a file in that folder"},
           {with("\"lm_head.weight\"", "\"head.weight\""), "'head.weight' is in 'model-"},
           {"{}", index + ": it has no weight_map"},
           {R"({"weight_map": 3})", index + ": it has no weight_map"},
           {R"({"weight_map": {"a": 3}})", "weight_map.a is 3; it must be a text"},
           {"{", index + ":1: "}}) {
    whole.write(index, content);
    EXPECT_THAT(sentence(whole), HasSubstr(words));
  }
  whole.write(index, text);
  EXPECT_EQ(whole.refusal(), "no error");
  std::string shard;
  for (const auto& entry : fs::directory_iterator(whole.path()))
    if (entry.path().filename().string().starts_with("model-00001-of-")) shard = entry.path();
  fs::copy_file(shard, whole.path() + "/twice.safetensors");
  whole.write(index, with(first, "\"twice.safetensors\", \"x\": \"model-00001-of-"));
  EXPECT_THAT(sentence(whole), HasSubstr(", too"));
}

TEST(HuggingFaceFolder, APipeAndAFolderAreNoFilesOfTensors) {
  FolderCopy pipe("gpt2"), folder("gpt2");
  for (FolderCopy* each : {&pipe, &folder}) fs::remove(each->path() + "/model.safetensors");
  ASSERT_EQ(mkfifo((pipe.path() + "/model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(sentence(pipe), HasSubstr("/model.safetensors': it is no regular file"));
  fs::create_directory(folder.path() + "/model.safetensors");
  EXPECT_THAT(sentence(folder), HasSubstr("/model.safetensors': it is a folder"));
}

TEST(HuggingFaceFolder, ARunsFolderIsNone) {
  TemporaryFolder run;
  run.write("config.json", R"({"name": "run", "model": {"name": "gpt2"}})");
  EXPECT_FALSE(train::hf::is_model_folder(run.path()));
  EXPECT_FALSE(train::hf::is_model_folder(run / "nothing"));
  EXPECT_TRUE(train::hf::is_model_folder(hugging_face_folder("llama")));
}

}  // namespace
}  // namespace shardgrad
