#pragma once
// A model with dropout whose parts are computed again in backward: units inside of regions, around them, and both.

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {

/// What is computed again in backward.
enum class Where { nothing, inside_units, around_units, nested, everything };
inline constexpr Where kChoices[] = {Where::inside_units, Where::around_units, Where::nested, Where::everything};

struct Block : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 9, 11), down = child<nn::Linear>("down", 11, 9);
  nn::Child<nn::LayerNorm> norm = child<nn::LayerNorm>("norm", 9);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.25);
  Tensor forward(const Tensor& x) { return tanh(x + drop(down(tanh(up(norm(x)))))); }
};

/// A unit with one parameter, which its last operation needs no saved value for.
struct Shift : nn::Module {
  Tensor shift = param("shift", {9}, nn::init::normal(0, 0.1));
  Tensor forward(const Tensor& x) { return x + shift; }
};

/// Around the blocks' units: two of them and a shift make one region.
struct Half : nn::Module {
  nn::Child<Block> a = child<Block>("a"), b = child<Block>("b");
  nn::Child<Shift> c = child<Shift>("c");
  Tensor forward(const Tensor& x) { return c(b(a(x))); }
};

template <Where where> struct Net : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 9), out = child<nn::Linear>("out", 9, 5);
  nn::Child<Half> first = child<Half>("first"), second = child<Half>("second");
  Tensor gain = param("gain", {5}, nn::init::ones());
  Net() {
    if (where == Where::inside_units || where == Where::nested) nn::recompute_by_type(*this, {"Block"});
    if (where == Where::around_units || where == Where::nested)
      for (auto* half : {&first, &second}) nn::recompute(**half, {.offload_inputs = half == &second});
    if (where == Where::everything) nn::recompute(*this);
  }
  Tensor forward(const Tensor& x) { return out(second(first(in(x)))) * gain; }
};

// Units: the root, in, out, and every block and shift.
inline const WrapPolicy kWrap = [](const nn::Module& module, const std::string&, int64_t) {
  return module.type_name() == "Block" || module.type_name() == "Shift" || module.full_name() == "in" ||
         module.full_name() == "out";
};

inline Outcome train_with(Where where, const TrainingRun& setup) {
  switch (where) {
    case Where::nothing:
      return train<Net<Where::nothing>>(setup);
    case Where::inside_units:
      return train<Net<Where::inside_units>>(setup);
    case Where::around_units:
      return train<Net<Where::around_units>>(setup);
    case Where::nested:
      return train<Net<Where::nested>>(setup);
    case Where::everything:
      return train<Net<Where::everything>>(setup);
  }
  return {};
}

}  // namespace shardgrad::fsdp::testing
