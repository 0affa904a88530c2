// Greedy generation by a GPT-2 of 124 million parameters with numbers of a formula, for bench/compare_generation:
//
//     generation THREADS ROWS PROMPT DTYPE
//
// reads "check N" and "run N" lines; both generate N tokens for each of ROWS prompts of PROMPT tokens. It answers with
// the first row's tokens, or with the seconds of the prompt and of the tokens after the first.
//
//     generation load THREADS FOLDER
//
// makes FOLDER a Hugging Face folder of that model, loads it several times, and prints the seconds of each time.

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <shardgrad/core/context.h>
#include <shardgrad/nn/gpt2.h>
#include <shardgrad/train/generate.h>
#include <shardgrad/train/hf/layout.h>
#include <shardgrad/train/hf/tensor_files.h>
#include <shardgrad/train/weights.h>

namespace shardgrad {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// As numbers_of in torch_generation.py.
std::vector<float> numbers_of(int64_t count, uint32_t seed, double mean, double deviation) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint32_t h = uint32_t(i) * 0x9E3779B1u + seed * 0x85EBCA6Bu;
    h = (h ^ (h >> 15)) * 0x85EBCA77u;
    h = (h ^ (h >> 13)) * 0xC2B2AE3Du;
    h ^= h >> 16;
    numbers[i] = float(mean + (double(h) * 0x1p-32 - 0.5) * std::sqrt(12.0) * deviation);
  }
  return numbers;
}

void fill(nn::Module& model) {
  uint32_t seed = 0;
  for (const auto& [name, tensor] : model.named_parameters()) {
    bool gain = name.find("ln_") != std::string::npos && name.ends_with("weight");
    copy_into(tensor, from_vector(numbers_of(tensor.numel(), ++seed, gain ? 1 : 0, 0.02), tensor.shape()));
  }
}

int run(int threads, int64_t rows, int64_t length, const std::string& dtype) {
  Context context({.threads = threads});
  auto model = nn::make<nn::Gpt2>(nn::Gpt2Options{.vocab_size = 50257, .vocab_multiple = 64});
  model->materialize();
  fill(*model);
  if (dtype != "f32") model->to(dtype == "bf16" ? DType::bf16 : DType::f16);
  std::vector<train::Tokens> prompts{static_cast<size_t>(rows), train::Tokens(static_cast<size_t>(length))};
  for (size_t r = 0; r < prompts.size(); ++r)
    for (size_t i = 0; i < prompts[r].size(); ++i) prompts[r][i] = int64_t(i * 7919 + r * 104729) % 50257;
  std::string word;
  int64_t tokens = 0;
  while (std::cin >> word >> tokens) {
    auto begin = Clock::now(), first = begin;
    bool begun = false;
    auto note_first = [&](int64_t, int64_t) {
      if (!std::exchange(begun, true)) first = Clock::now();
    };
    auto texts = train::generate(model, prompts, {.tokens = tokens, .sampling = {.temperature = 0}}, note_first);
    if (word == "check")
      for (int64_t token : texts[0]) std::cout << token << ' ';
    else
      std::cout << seconds(begin, first) << ' ' << seconds(first, Clock::now());
    std::cout << std::endl;
  }
  return 0;
}

void make_folder(const std::string& folder) {
  NoGrad no_grad;
  nn::Gpt2Options options;
  auto model = nn::make<nn::Gpt2>(options);
  model->materialize();
  fill(*model);
  std::map<std::string, Tensor> state;
  train::hf::Layout layout = train::hf::layout_of(options);
  for (const auto& [name, tensor] : model->named_parameters()) {
    const train::hf::Part& part = layout.at(name).front();
    state[part.name] = part.transposed ? permute(tensor.detach(), {1, 0}) : tensor.detach();
  }
  std::filesystem::create_directories(folder);
  train::save_safetensors(folder + "/" + train::hf::kTensorFile, state);
  std::ofstream(folder + "/" + train::hf::kConfigFile) << train::hf::model_config_text(options, DType::f32);
}

// As a program does that has nothing of the model yet.
int load(int threads, const std::string& folder) {
  Context context({.threads = threads});
  make_folder(folder);
  for (int i = 0; i < 6; ++i) {
    auto begin = Clock::now();
    auto model = train::hf::make_model(train::hf::read_model_config(folder));
    train::load_model(folder, *model);
    std::cout << seconds(begin, Clock::now()) << ' ';
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace
}  // namespace shardgrad

int main(int argc, char** argv) {
  if (argc == 4 && argv[1] == std::string("load")) return shardgrad::load(std::stoi(argv[2]), argv[3]);
  if (argc != 5) return std::cerr << "generation THREADS ROWS PROMPT DTYPE, or generation load THREADS FOLDER\n", 2;
  return shardgrad::run(std::stoi(argv[1]), std::stoi(argv[2]), std::stoi(argv[3]), argv[4]);
}
