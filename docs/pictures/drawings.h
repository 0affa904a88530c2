#pragma once
// The pictures of README and docs. Each is drawn from a run of the engine or from what architecture.md's tests hold to
// the sources, and is the same on every machine: times are of queueing and costs (picture/replay.h), not of a clock.

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include <shardgrad/core/ledger_history.h>
#include <shardgrad/core/recorder.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

namespace drawings {

namespace sg = shardgrad;

using Pictures = std::map<std::string, std::string>;  // by the file's name without .svg

constexpr int kRanks = 4;

/// Square layers with a relu and AdamW, sharded over the ranks.
class Training {
 public:
  Training(sg::dist::ProcessGroup& world, int layers, int64_t width, sg::fsdp::Config config);
  /// `mark` is called with what begins: forward, backward, step.
  void step(const std::function<void(const char*)>& mark = [](const char*) {});
  sg::fsdp::Sharded& sharded() { return *sharded_; }

 private:
  sg::nn::Child<sg::nn::Sequential> model_ = sg::nn::make<sg::nn::Sequential>();
  std::shared_ptr<sg::fsdp::Sharded> sharded_;
  std::unique_ptr<sg::optim::AdamW> optimizer_;
  sg::Tensor x_;
};
constexpr int64_t kBatch = 64;  // samples of each rank

void draw_memory(Pictures& all);    // of one step, under each strategy, and what zero3 sends
void draw_schedule(Pictures& all);  // what is gathered, computed and reduced when, and what moves
void draw_route(Pictures& all);     // of one gradient
void draw_rooms(Pictures& all, const std::filesystem::path& architecture_page);

}  // namespace drawings
