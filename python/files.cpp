// Tensors on disk: safetensors files, and checkpoints of which each rank writes its part.

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <filesystem>
#include <variant>

#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/config.h>

#include <shardgrad/python/bind.h>

namespace shardgrad::python {
namespace {

using State = std::map<std::string, Tensor>;

State load(const std::filesystem::path& path) {
  train::SafetensorsFile file(path.string(), train::SafetensorsFile::Access::read);
  for (const auto& [name, why] : file.unreadable())
    fail("load: tensor '", name, "' of '", path.string(), "' cannot be read: ", why);
  State state;
  for (const auto& [name, entry] : file.tensors()) {
    Tensor values = empty({entry.spec.shape.numel()}, {entry.spec.dtype, kCpu}, "load");
    file.read(name, 0, values);
    state.emplace(name, values.alias(entry.spec.shape));
  }
  return state;
}

using Handle = std::shared_ptr<fsdp::Sharded>;

// One optimizer, or a list of them.
using Some = std::variant<optim::Optimizer*, std::vector<optim::Optimizer*>>;
train::SavedOptimizers optimizers_of(const Some& some) {
  if (auto* one = std::get_if<optim::Optimizer*>(&some)) return **one;
  const auto& all = std::get<std::vector<optim::Optimizer*>>(some);
  SG_CHECK(std::ranges::count(all, nullptr) == 0, "checkpoint: one of the optimizers is None");
  return all;
}

std::string save_checkpoint(const std::filesystem::path& run, nn::Module& model, const Handle& sharded,
                            const Some& optimizer, int64_t step, int64_t samples, int64_t keep) {
  std::filesystem::create_directories(run);
  return train::save_checkpoint(run.string(), train::Config(), {.step = step, .samples = samples},
                                {model, *sharded, optimizers_of(optimizer)}, {.count = keep});
}

std::optional<std::map<std::string, int64_t>> load_checkpoint(const std::filesystem::path& run, nn::Module& model,
                                                              const Handle& sharded, const Some& optimizer) {
  std::optional<std::string> folder = train::latest_checkpoint(run.string());
  if (!folder) return std::nullopt;
  train::Manifest manifest =
      train::load_checkpoint(*folder, train::Config(), {model, *sharded, optimizers_of(optimizer)});
  return std::map<std::string, int64_t>{{"step", manifest.reached.step}, {"samples", manifest.reached.samples}};
}

}  // namespace

void bind_files(nb::module_& m) {
  m.def(
      "_save",
      [](const State& state, const std::filesystem::path& path) { train::save_safetensors(path.string(), state); },
      "state"_a, "path"_a, Waits(),
      "Writes tensors by name into a safetensors file, which many programs open. It takes its name when it is whole.");
  m.def("_load", load, "path"_a, Waits(), "The tensors of a safetensors file, on the cpu.");
  m.def("save_checkpoint", save_checkpoint, "run"_a, "model"_a, "sharded"_a, "optimizer"_a, nb::kw_only(), "step"_a,
        "samples"_a = 0, "keep"_a = 1, Waits(),
        "Writes run/step-N: each rank the parts of model and optimizer, or a list of optimizers, that it owns. The "
        "newest `keep` stay, 1 or more. A crash at any moment leaves the last one whole. A collective; returns a hash "
        "of what was saved.");
  m.def("load_checkpoint", load_checkpoint, "run"_a, "model"_a, "sharded"_a, "optimizer"_a, Waits(),
        "Fills model and optimizer from the last checkpoint in the folder, on any number of ranks, and returns "
        "{'step': …, 'samples': …}; None, having changed nothing, where there is none. A collective.");
}

}  // namespace shardgrad::python
