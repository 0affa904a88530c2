#pragma once
// A small stand-in for Fashion-MNIST, and runs on it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/train/data/dataset.h>
#include <shardgrad/train/trainer.h>

#include "temporary_folder.h"

namespace shardgrad {

using train::Config;

// Pictures whose bright row tells the class.
inline void write_pictures(const TemporaryFolder& folder, const std::string& stem, int count) {
  auto big_endian = [](int value) {
    return std::string{char(value >> 24), char(value >> 16), char(value >> 8), char(value)};
  };
  std::string images = std::string{0, 0, 8, 3} + big_endian(count) + big_endian(28) + big_endian(28);
  std::string labels = std::string{0, 0, 8, 1} + big_endian(count);
  for (int i = 0; i < count; ++i) {
    int label = int(philox(5, stream_of(stem), uint64_t(i))[0] % 10);
    labels += char(label);
    for (int p = 0; p < 784; ++p)
      images += char(p / 28 == 2 * label ? 200 : philox(7, uint64_t(i), uint64_t(p))[0] % 100);
  }
  folder.write(stem + "-images-idx3-ubyte.gz", images);
  folder.write(stem + "-labels-idx1-ubyte.gz", labels);
}

// Four inputs and a target in each.
inline std::shared_ptr<data::TensorDataset> rows_of_numbers(int64_t rows) {
  std::vector<float> x, y;
  for (int64_t i = 0; i < rows; ++i) {
    x.insert(x.end(), {float(i % 7) / 7, float(i % 11) / 11, float(i % 5) / 5, 1});
    y.push_back(float(i % 13) / 13);
  }
  return std::make_shared<data::TensorDataset>(
      std::vector<Tensor>{from_vector<float>(x, {rows, 4}), from_vector<float>(y, {rows, 1})});
}

// Passes on what is written; asks the run to stop, or kills the process, once that holds a text.
class StopAt : public std::streambuf {
 public:
  StopAt(std::string text, std::string end, dist::Control& control, std::streambuf* to)
      : text_(text), end_(end), control_(control), to_(to) {}

 protected:
  int overflow(int c) override {
    seen_ += char(c);
    if (!text_.empty() && seen_.ends_with(text_)) control_.request_stop();
    if (!end_.empty() && seen_.ends_with(end_)) raise(SIGKILL);
    return to_->sputc(char(c));
  }

 private:
  std::string text_, end_, seen_;
  dist::Control& control_;
  std::streambuf* to_;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    write_pictures(folder_, "train", 301);  // the last batch is uneven on every number of ranks
    write_pictures(folder_, "t10k", 101);
    config_.data.options["dir"] = nlohmann::json(folder_.path()).dump();
    config_.runs = folder_ / "runs";
    config_.model.options["layers"] = "[784, 24, 10]";
    config_.optimizer.name = "adamw";
    config_.optimizer.lr = 0.01;
    config_.batch = 32;
    config_.epochs = 3;
    config_.log_interval = 4;
  }
  train::Result train(int ranks, bool stop = false) {
    out_.str("");
    train::Result result;
    dist::run_ranks(ranks,
                    [&](dist::ProcessGroup& world) {
                      if (stop) world.control().request_stop();
                      StopAt buffer(stop_at_, kill_at_, world.control(), out_.rdbuf());
                      std::ostream out(&buffer);
                      auto mine = train::train(config_, world, out, terminal_);
                      if (world.rank() == 0) result = mine;
                    },
                    {.seed = uint64_t(config_.seed), .threads = 1});
    return result;
  }
  std::vector<nlohmann::json> metrics(const train::Result& result) {
    std::vector<nlohmann::json> lines;
    std::istringstream file(read_file(result.folder + "/metrics.jsonl"));
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  // What the plan had said of each owner's peak on rank 0, and what the run has met; without owners of which a step's
  // batch says nothing.
  std::pair<nlohmann::json, nlohmann::json> peaks(const train::Result& result) {
    nlohmann::json planned = nlohmann::json::parse(read_file(result.folder + "/about.json"))["plan"]["peaks"], measured;
    auto ledger = nlohmann::json::parse(read_file(result.folder + "/ledger.json"));
    for (const auto& [owner, bytes] : ledger["categories"].items()) measured[owner] = bytes["peak"];
    for (nlohmann::json* part : {&planned, &measured})
      for (const char* owner : {"data", "workspace", "other"}) part->erase(owner);
    return {planned, measured};
  }

  TemporaryFolder folder_;
  Config config_;
  std::string stop_at_;  // what rank 0 prints when the run is asked to stop
  std::string kill_at_;  // … when the process is killed
  train::Terminal terminal_;
  std::ostringstream out_;
};

}  // namespace shardgrad
