// shardgrad tokenizer train | encode | decode

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>

#include <shardgrad/core/context.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/data/data_file.h>
#include <shardgrad/train/data/npy_file.h>
#include <shardgrad/train/data/token_file.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/text/bpe_trainer.h>

namespace shardgrad::cli {
namespace {

struct TokenizerOptions {
  std::string tokenizer, input, output;
  std::vector<std::string> inputs;
  text::BpeTraining training;
  text::EncodeOptions encode;
  bool keep_special = false;
};

int train_tokenizer(const TokenizerOptions& options) {
  text::BpeTrainer trainer(options.training);
  size_t bytes = 0;
  for (const std::string& path : options.inputs) {
    std::string text = data::read_whole(path);
    SG_CHECK(!text.empty(), "'", path, "' is empty; it must hold a text");
    bytes += text.size();
    trainer.add(text);
  }
  text::NewBpe bpe = trainer.train();
  train::replace_file(options.output, text::bpe_json(bpe));
  int64_t learned = std::ssize(bpe.tokens) - 256, all = std::ssize(bpe.tokens) + std::ssize(bpe.special);
  if (all < options.training.vocab_size)
    std::cout << "no pair stands twice any more: " << all << " tokens instead of " << options.training.vocab_size
              << "\n";
  std::cout << "wrote " << all << " tokens (256 bytes, " << learned << " learned from " << bytes << " bytes, "
            << bpe.special.size() << " special) to '" << options.output << "'\n";
  return 0;
}

std::string read_input(const std::string& path) {
  if (!path.empty()) return data::read_whole(path);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::string decimal(std::span<const int64_t> ids) {
  std::string text;
  for (int64_t id : ids) text.append(text.empty() ? "" : " ").append(std::to_string(id));
  return text + "\n";
}

template <class T> std::string raw(std::span<const int64_t> ids) {
  std::vector<T> narrow(ids.begin(), ids.end());
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(T)};
}

// What the data `tokens` reads.
void write_ids(const std::string& path, const std::vector<int64_t>& ids, int64_t vocabulary) {
  if (path.ends_with(".npy")) {
    Context context;
    return data::write_npy(path, from_vector(ids, {std::ssize(ids)}, {DType::i64, kCpu}).to(DType::i32));
  }
  if (!path.ends_with(".bin")) return train::write_file(path, decimal(ids));
  bool narrow = vocabulary <= 1 << 16;
  train::write_file(path, narrow ? raw<uint16_t>(ids) : data::llmc_header(std::ssize(ids)) + raw<uint32_t>(ids));
}

int encode_text(const TokenizerOptions& options) {
  auto tokenizer = text::load_tokenizer(options.tokenizer);
  std::string text = read_input(options.input);
  std::vector<int64_t> ids = tokenizer->encode(text, options.encode);
  if (options.output.empty()) {
    std::cout << decimal(ids);
    return 0;
  }
  write_ids(options.output, ids, tokenizer->vocab_size());
  std::cout << "wrote " << ids.size() << " tokens of " << text.size() << " bytes to '" << options.output << "'\n";
  return 0;
}

std::vector<int64_t> parse_ids(std::string_view text, const std::string& name) {
  std::vector<int64_t> ids;
  constexpr std::string_view kBetween = " \t\r\n,[]";
  for (size_t at = 0; (at = text.find_first_not_of(kBetween, at)) != std::string_view::npos;) {
    std::string_view word = text.substr(at, text.find_first_of(kBetween, at) - at);
    auto [end, error] = std::from_chars(word.begin(), word.end(), ids.emplace_back());
    SG_CHECK(error == std::errc() && end == word.end(), name, ": '", train::shortened(std::string(word)),
             "' is no number of a token");
    at += word.size();
  }
  return ids;
}

std::vector<int64_t> read_ids(const std::string& path) {
  if (!path.ends_with(".bin") && !path.ends_with(".npy"))
    return parse_ids(read_input(path), path.empty() ? "standard input" : "'" + path + "'");
  Context context;
  std::shared_ptr<const data::TokenSource> tokens = data::open_tokens(path, 2);
  std::vector<int64_t> ids(size_t(tokens->size()));
  tokens->read(0, ids);
  return ids;
}

int decode_ids(const TokenizerOptions& options) {
  auto tokenizer = text::load_tokenizer(options.tokenizer);
  std::string text = tokenizer->decode(read_ids(options.input), !options.keep_special);
  if (options.output.empty())
    std::cout << text;
  else
    train::write_file(options.output, text);
  return 0;
}

}  // namespace

void add_tokenizer(CLI::App& app, std::function<int()>& chosen) {
  auto options = std::make_shared<TokenizerOptions>();
  CLI::App* all =
      app.add_subcommand("tokenizer", "Learn a tokenizer from texts; texts to the numbers of tokens, and back");
  all->require_subcommand(1);
  auto add = [&](const char* name, const char* meaning, int (*call)(const TokenizerOptions&)) {
    CLI::App* command = all->add_subcommand(name, meaning);
    command->callback([options, call, &chosen] { chosen = [options, call] { return call(*options); }; });
    return command;
  };
  CLI::App* train = add("train", "Learn a byte-level BPE, and write it as a tokenizer.json", train_tokenizer);
  train->add_option("--input", options->inputs, "a text; may be given several times")
      ->required()
      ->allow_extra_args(false);
  train->add_option("--vocab-size", options->training.vocab_size, "tokens, bytes and special ones included")
      ->required();
  train->add_option("--output", options->output, "the file to write")->required();
  train->add_option("--special", options->training.special, "special tokens; by default <|endoftext|>")
      ->allow_extra_args(false);
  CLI::App* encode = add("encode", "A text as the numbers of its tokens", encode_text);
  CLI::App* decode = add("decode", "The text of tokens", decode_ids);
  for (CLI::App* command : {encode, decode})
    command->add_option("tokenizer", options->tokenizer, "bytes, a tokenizer.json, or a folder that holds one")
        ->required();
  encode->add_option("--input", options->input, "the text; by default standard input");
  encode->add_option("--output", options->output,
                     "a .bin or .npy file, for data.name=tokens, or another, in decimal; by default standard output");
  encode->add_flag("--parse-special", options->encode.parse_special, "special tokens in the text are not letters");
  encode->add_flag("--add-special", options->encode.add_special, "with the tokens around a text, if there are any");
  decode->add_option("--input", options->input, "a .bin or .npy file, or numbers; by default standard input");
  decode->add_option("--output", options->output, "the file to write; by default standard output");
  decode->add_flag("--keep-special", options->keep_special, "with the names of special tokens");
}

}  // namespace shardgrad::cli
