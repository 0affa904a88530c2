#include <shardgrad/train/built_in.h>

#include <shardgrad/train/data/csv.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/data/npy.h>
#include <shardgrad/train/data/text_data.h>
#include <shardgrad/train/data/tokens.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/tasks/cnn.h>
#include <shardgrad/train/tasks/language.h>
#include <shardgrad/train/tasks/mlp.h>
#include <shardgrad/train/tasks/next_token.h>
#include <shardgrad/train/tasks/supervised.h>

namespace shardgrad::train {
namespace {

using data::FashionMnist;

struct FashionMnistOptions {
  std::string dir = FashionMnist::kDebianFolder;
  void list(OptionList& options) { options.add("dir", dir, "the folder with its files"); }
};

data::Splits open_fashion_mnist(const FashionMnistOptions& options, uint64_t) {
  return {std::make_shared<FashionMnist>(options.dir, FashionMnist::Split::train),
          std::make_shared<FashionMnist>(options.dir, FashionMnist::Split::test)};
}

struct CsvChoice {
  data::CsvOptions csv;
  std::string kind = "regression", delimiter = ",";
  void list(OptionList& options) {
    options.add("path", csv.path, "the file; its first line names the columns", {.may_be_empty = true});
    options.add("target", csv.target, "the column that the model learns to give", {.may_be_empty = true});
    options.add("kind", kind, "numbers, or labels for the task classification", {.choices = {"regression", "classes"}});
    options.add("delimiter", delimiter, "between cells", {.choices = {",", ";", "\t", " ", "|"}});
    options.add("drop", csv.drop, "columns that are no inputs");
    options.add("test_share", csv.test_share, "of the rows; which ones is a function of seed and row",
                {.low = 0, .high = 1, .above_low = true, .below_high = true});
    options.add("standardise_target", csv.standardise_target,
                "of a regression: targets, and with them rmse, are in units of their deviation");
  }
};

// What must be said: an empty path stands for none.
void check_given(const char* data, const char* key, const std::string& value) {
  SG_CHECK(!value.empty(), "data ", data, " needs data.", key);
}

data::Splits open_csv(const CsvChoice& choice, uint64_t seed) {
  check_given("csv", "path", choice.csv.path);
  check_given("csv", "target", choice.csv.target);
  data::CsvOptions options = choice.csv;
  options.seed = seed;
  options.delimiter = choice.delimiter[0];
  options.kind = choice.kind == "classes" ? data::TargetKind::classes : data::TargetKind::regression;
  data::CsvData read = data::read_csv(options);
  read.splits.classes = std::ssize(read.classes);
  read.splits.class_names = read.classes;
  read.splits.target = read.target;
  return read.splits;
}

struct NpyChoice {
  data::NpyOptions npy;
  std::string standardise = "none";
  void list(OptionList& options) {
    options.add("inputs", npy.inputs, "a file of numpy.save, with a row for each sample", {.may_be_empty = true});
    options.add("targets", npy.targets, "another, row by row; integers are labels", {.may_be_empty = true});
    options.add("test_inputs", npy.test_inputs, "a pair of files for tests; empty: a share of the first pair",
                {.may_be_empty = true});
    options.add("test_targets", npy.test_targets, "see test_inputs", {.may_be_empty = true});
    options.add("test_share", npy.test_share, "of the rows; which ones is a function of seed and row",
                {.low = 0, .high = 1, .above_low = true, .below_high = true});
    options.add("standardise", standardise, "inputs, each column or all by the training rows' mean and deviation",
                {.choices = {"none", "columns", "all"}});
  }
};

data::Splits open_npy(const NpyChoice& choice, uint64_t seed) {
  check_given("npy", "inputs", choice.npy.inputs);
  check_given("npy", "targets", choice.npy.targets);
  data::NpyOptions options = choice.npy;
  options.seed = seed;
  if (choice.standardise == "columns") options.standardise = data::Standardise::columns;
  if (choice.standardise == "all") options.standardise = data::Standardise::all;
  data::NpyData read = data::read_npy(options);
  read.splits.classes = read.classes;
  return read.splits;
}

struct TokenChoice {
  data::TokenOptions tokens;
  void list(OptionList& options) {
    options.add("train", tokens.train, "a file of token ids, as nanoGPT or llm.c write them", {.may_be_empty = true});
    options.add("test", tokens.test, "another for tests; empty: the last samples of the first", {.may_be_empty = true});
    options.add("test_share", tokens.test_share, "of the samples, for tests, without a file of their own",
                {.low = 0, .high = 1, .above_low = true, .below_high = true});
    options.add("length", tokens.length, "tokens of a sample", {.low = 1, .high = 1 << 30});
    options.add("token_bytes", tokens.token_bytes, "2 or 4, in a file without llm.c's header", {.low = 2, .high = 4});
    options.add("vocabulary", tokens.vocabulary, "ids are below; 0: the tokenizer's, or whatever the files have",
                {.low = 0, .high = 1 << 30});
    options.add("tokenizer", tokens.tokenizer, "that the ids are of: bytes, or a tokenizer.json; empty: not known",
                {.may_be_empty = true});
  }
};

data::Splits open_tokens(const TokenChoice& choice, uint64_t) {
  check_given("tokens", "train", choice.tokens.train);
  return data::read_tokens(choice.tokens);
}

struct TextChoice {
  data::TextOptions text;
  void list(OptionList& options) {
    options.add("path", text.path, "a file of text, or several, which follow each other");
    options.add("test", text.test, "others for tests; none: the end of the first");
    options.add("test_share", text.test_share, "of the samples, for tests, without files of their own",
                {.low = 0, .high = 1, .above_low = true, .below_high = true});
    options.add("tokenizer", text.tokenizer, "bytes, a tokenizer.json, or a folder that holds one");
    options.add("parse_special", text.parse_special, "special tokens that stand in a text are these, not letters");
    options.add("length", text.length, "tokens of a sample", {.low = 1, .high = 1 << 30});
  }
};

data::Splits open_text(const TextChoice& choice, uint64_t) {
  SG_CHECK(!choice.text.path.empty(), "data text needs data.path");
  return data::read_text(choice.text);
}

}  // namespace

void register_built_in(Registry& registry) {
  registry.add_data<CsvChoice>("csv", "a table of numbers", open_csv);
  registry.add_data<NpyChoice>("npy", "two arrays of NumPy", open_npy);
  registry.add_data<TextChoice>("text", "texts, by a tokenizer", open_text);
  registry.add_data<TokenChoice>("tokens", "a text as numbers", open_tokens);
  registry.add_data<FashionMnistOptions>("fashion_mnist", "pictures of clothes in ten classes", open_fashion_mnist,
                                         FashionMnist::known_outline());
  registry.add_model<CnnOptions>("cnn", "convolutions and two linear layers, for small pictures",
                                 [](const CnnOptions& options) { return nn::make<Cnn>(options); });
  registry.add_model<Gpt2Choice>("gpt2", "a transformer as GPT-2", make_gpt2);
  registry.add_model<LlamaChoice>("llama", "a transformer as LLaMA", make_llama);
  registry.add_model<MlpOptions>("mlp", "linear layers with an activation between them", make_mlp);
  registry.add_task<Classification::Options>("classification", "one of some classes",
                                             [](const Classification::Options& options, const Model& model) {
                                               return std::make_unique<Classification>(options, model);
                                             });
  registry.add_task<NextToken::Options>("next_token", "the token that follows each one",
                                        [](const NextToken::Options& options, const Model& model) {
                                          return std::make_unique<NextToken>(options, model);
                                        });
  registry.add_task("regression", "numbers, by the mean squared error",
                    [](const Model& model) { return std::make_unique<Regression>(model); });
}

}  // namespace shardgrad::train
