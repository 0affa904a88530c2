#pragma once
// A model of which ranks hold parts, trained on a mesh, and its state.

#include <map>
#include <optional>

#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/parallel/mesh.h>

#include "tests/parallel/split_linear.h"

namespace shardgrad::parallel::testing {

using dist::ProcessGroup;
using fsdp::StateDict;
using fsdp::StateSlice;

/// 6 → 5 → 4 behind a scale that all ranks have: 5 is uneven on 2 and on 4 ranks, and so are the flat shards.
struct SplitMlp : nn::Module {
  Tensor scale = param("scale", {6}, nn::init::normal(1, 0.1));
  nn::Child<ColumnParallelLinear> up;
  nn::Child<RowParallelLinear> down;
  explicit SplitMlp(ProcessGroup& model)
      : up(child<ColumnParallelLinear>("up", 6, 5, model)), down(child<RowParallelLinear>("down", 5, 4, model)) {}
  Tensor forward(const Tensor& x) { return down(relu(up(x * scale))); }
};

struct PlainMlp : nn::Module {
  Tensor scale = param("scale", {6}, nn::init::normal(1, 0.1));
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 6, 5), down = child<nn::Linear>("down", 5, 4);
  Tensor forward(const Tensor& x) { return down(relu(up(x * scale))); }
};

inline constexpr int64_t kBatch = 8;

/// Rows of whole numbers from -3 to 3.
inline Tensor batch(int step, int64_t begin, int64_t end) {
  std::vector<float> values;
  for (int64_t i = begin * 6; i < end * 6; ++i) values.push_back(float((i * 5 + step * 11) % 7 - 3));
  return from_vector(values, {end - begin, 6});
}

template <class Model> void step(const Model& model, optim::Optimizer& optimizer, int n, int64_t begin, int64_t end) {
  mse_loss(model(batch(n, begin, end)), zeros({end - begin, 4}), kBatch * 4).backward();
  optimizer.step();
  optimizer.zero_grad();
}

/// A state that outlives the ranks it was saved on.
struct Values {
  Shape shape;
  std::vector<double> values;
  DType dtype;
  bool operator==(const Values&) const = default;
};
using Saved = std::map<std::string, Values>;

inline Saved saved(const StateDict& state) {
  Saved all;
  for (const auto& [name, tensor] : state) {
    all[name] = {tensor.shape(), tensor.to(DType::f64).to_vector<double>(), tensor.dtype()};
  }
  return all;
}

inline StateDict tensors_of(const Saved& saved) {
  StateDict state;
  for (const auto& [name, whole] : saved)
    state[name] = from_vector(whole.values, whole.shape, {DType::f64, kCpu}).to(whole.dtype);
  return state;
}

/// Model and optimizer on a mesh, sharded over its data axis, or each rank's parts as they are.
struct MeshRun {
  Mesh mesh;
  nn::Child<SplitMlp> model;
  std::shared_ptr<fsdp::Sharded> sharded;
  optim::AdamW optimizer;
  MeshRun(ProcessGroup& world, int data, std::optional<fsdp::Config> config)
      : mesh(world, {{"data", data}, {"model", world.size() / data}}),
        model(nn::make<SplitMlp>(mesh.group("model"))),
        sharded(config ? fsdp::fully_shard(model.module(), mesh, "data", *config) : nullptr),
        optimizer(model->named_parameters(), {.lr = 0.0625}) {}
  void train(int step_number) {
    int64_t rows = kBatch / mesh.size("data"), begin = rows * mesh.coordinate("data");
    step(model, optimizer, step_number, begin, begin + rows);
  }
  StateDict parameters(bool rank0_only = false) {
    return sharded ? full_state_dict(*sharded, rank0_only)
                   : fsdp::full_state_dict(model.module(), mesh.world(), rank0_only);
  }
  StateDict states(bool rank0_only = false) {
    return sharded ? full_optim_state_dict(*sharded, optimizer, rank0_only)
                   : fsdp::full_optim_state_dict(optimizer, mesh.world(), rank0_only);
  }
  void load(const StateDict& parameters, const StateDict& states) {
    if (sharded) {
      load_full_state_dict(*sharded, parameters);
      load_full_optim_state_dict(*sharded, optimizer, states);
    } else {
      fsdp::load_full_state_dict(model.module(), mesh.world(), parameters);
      fsdp::load_full_optim_state_dict(optimizer, mesh.world(), states);
    }
  }
};

}  // namespace shardgrad::parallel::testing
