#pragma once
// Small models that exercise every shape of wrapping. All map (batch, 7) to (batch, 5); call them by output_of.

#include <cxxabi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad::fsdp::testing {

/// A model's (batch, 5) of x. Models that take or return more than one tensor say in output() how they are called.
template <class Model> Tensor output_of(const nn::Child<Model>& model, const Tensor& x) {
  if constexpr (requires { Model::output(model, x); })
    return Model::output(model, x);
  else
    return model(x);
}

/// A model whose type is forgotten, so that what trains it is compiled once and not for every model.
struct AnyModel {
  nn::Module& module;  ///< lives as long as `output`
  std::function<Tensor(const Tensor& x)> output;
};
struct MakeModel {
  const char* type;
  AnyModel (*make)();
  AnyModel operator()() const { return make(); }
};
template <class Model> AnyModel make_any() {
  nn::Child<Model> model = nn::make<Model>();
  return {*model, [model](const Tensor& x) { return output_of(model, x); }};
}
template <class Model> inline const MakeModel any_model{typeid(Model).name(), make_any<Model>};

/// Such as "WithinTwoIn".
inline std::string name_of(const MakeModel& model) {
  std::unique_ptr<char, void (*)(void*)> whole(abi::__cxa_demangle(model.type, nullptr, nullptr, nullptr), std::free);
  std::string name = whole.get(), letters;
  for (size_t scope; (scope = name.rfind("shardgrad::fsdp::testing::")) != std::string::npos;) name.erase(scope, 26);
  std::ranges::copy_if(name, std::back_inserter(letters), [](unsigned char c) { return std::isalnum(c); });
  return letters;
}
inline void PrintTo(const MakeModel& model, std::ostream* out) { *out << name_of(model); }

/// Models that the tests of a suite run with: INSTANTIATE_TEST_SUITE_P(Models, Suite, List::values(), List::title).
template <class... Models> struct ModelList {
  static auto values() { return ::testing::ValuesIn(std::vector<MakeModel>{any_model<Models>...}); }
  /// Such as "3_Twice": scripts/test chooses some of them by their number.
  static std::string title(const ::testing::TestParamInfo<MakeModel>& info) {
    return concat(info.index, "_", name_of(info.param));
  }
};

/// Sizes that nothing divides: 7 → 13 → 3 → 5, each layer a unit; the root has no parameters.
struct Chain : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 13), b = child<nn::Linear>("b", 13, 3),
                        c = child<nn::Linear>("c", 3, 5);
  Tensor forward(const Tensor& x) { return c(relu(b(relu(a(x))))); }
};

/// The root owns a scale and a shift of its own, around three blocks.
struct Rooted : nn::Module {
  Tensor scale = param("scale", {7}, nn::init::normal(1, 0.1)), shift = param("shift", {5}, nn::init::zeros());
  nn::Child<nn::Linear> b0 = child<nn::Linear>("b0", 7, 9), b1 = child<nn::Linear>("b1", 9, 9),
                        b2 = child<nn::Linear>("b2", 9, 5);
  Tensor forward(const Tensor& x) { return b2(tanh(b1(tanh(b0(x * scale))))) + shift; }
};

/// One unit: the root holds everything.
struct Flat : nn::Module {
  Tensor weight = param("weight", {5, 7}, nn::init::normal(0, 0.5)), bias = param("bias", {5}, nn::init::zeros());
  Tensor forward(const Tensor& x) { return linear(x, weight, bias); }
};

/// `mix` runs twice in a step, with other units between its uses.
struct Twice : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 6), mix = child<nn::Linear>("mix", 6, 6),
                        out = child<nn::Linear>("out", 6, 5);
  Tensor forward(const Tensor& x) { return out(mix(relu(mix(tanh(in(x)))))); }
};

/// `spare` is a unit that no step uses; `lucky.extra` is an unused parameter of a used unit.
struct Unused : nn::Module {
  struct Lucky : nn::Module {
    Tensor weight = param("weight", {6, 7}, nn::init::normal(0, 0.4)),
           extra = param("extra", {11}, nn::init::normal(0, 1));
    Tensor forward(const Tensor& x) { return matmul(x, weight, false, true); }
  };
  nn::Child<Lucky> lucky = child<Lucky>("lucky");
  nn::Child<nn::Linear> spare = child<nn::Linear>("spare", 4, 4), out = child<nn::Linear>("out", 6, 5);
  Tensor forward(const Tensor& x) { return out(tanh(lucky(x))); }
};

/// A frozen unit between two trainable ones, and a frozen bias in a trainable unit.
struct Frozen : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 8), b = child<nn::Linear>("b", 8, 8),
                        c = child<nn::Linear>("c", 8, 5);
  Frozen() {
    b->weight.set_requires_grad(false);
    b->bias.set_requires_grad(false);
    c->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) { return c(tanh(b(tanh(a(x))))); }
};

/// One weight used by two layers of the same unit.
struct Tied : nn::Module {
  struct Pair : nn::Module {
    nn::Child<nn::Linear> first = child<nn::Linear>("first", 7, 7), second = child<nn::Linear>("second", 7, 7);
    Pair() { tie(first->weight, second->weight); }
    Tensor forward(const Tensor& x) { return second(tanh(first(x))); }
  };
  nn::Child<Pair> pair = child<Pair>("pair");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
  Tensor forward(const Tensor& x) { return out(pair(x)); }
};

/// The same weight in two different units: it belongs to the unit around both, the root.
struct TiedAcross : nn::Module {
  nn::Child<nn::Linear> first = child<nn::Linear>("first", 7, 7), second = child<nn::Linear>("second", 7, 7),
                        out = child<nn::Linear>("out", 7, 5);
  TiedAcross() { tie(first->weight, second->weight); }
  Tensor forward(const Tensor& x) { return out(second(tanh(first(x)))); }
};

/// The root's own weight is also that of a layer inside a unit.
struct TiedToParent : nn::Module {
  Tensor weight = param("weight", {7, 7}, nn::init::normal(0, 0.4));
  nn::Child<nn::Linear> inner = child<nn::Linear>("inner", 7, 7), out = child<nn::Linear>("out", 7, 5);
  TiedToParent() { tie(weight, inner->weight); }
  Tensor forward(const Tensor& x) { return out(tanh(inner(tanh(matmul(x, weight, false, true))))); }
};

/// Parameters smaller than the number of ranks.
struct Tiny : nn::Module {
  Tensor gain = param("gain", {1}, nn::init::ones());
  struct Scale : nn::Module {
    Tensor s = param("s", {2}, nn::init::normal(1, 0.1));
    Tensor forward(const Tensor& x) { return x * sum(s); }
  };
  nn::Child<Scale> scale = child<Scale>("scale");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 5);
  Tensor forward(const Tensor& x) { return out(scale(x)) * gain; }
};

/// Dropout between two units: its mask must follow the global sample, not the rank.
struct Dropping : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 16);
  nn::Child<nn::Dropout> drop = child<nn::Dropout>("drop", 0.3);
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 16, 5);
  Tensor forward(const Tensor& x) { return out(drop(tanh(in(x)))); }
};

/// Parameters large enough to be cut at several places, in a unit with small ones.
struct Wide : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 61), out = child<nn::Linear>("out", 61, 5);
  Tensor gain = param("gain", {1}, nn::init::ones());
  Tensor forward(const Tensor& x) { return out(tanh(in(x))) * gain; }
};

/// A frozen weight that backward reads last, around a unit, beside a bias whose gradient comes first.
struct FrozenAround : nn::Module {
  struct Around : nn::Module {
    Tensor first = param("first", {8, 8}, nn::init::normal(0, 0.4)), last = param("last", {8}, nn::init::zeros());
    nn::Child<nn::Linear> inner = child<nn::Linear>("inner", 8, 8);
    Around() { first.set_requires_grad(false); }
    Tensor forward(const Tensor& x) { return tanh(inner(tanh(matmul(x, first, false, true)))) + last; }
  };
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 8);
  nn::Child<Around> around = child<Around>("around");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 8, 5);
  Tensor forward(const Tensor& x) { return out(around(in(x))); }
};

/// Two inputs and a choice, and a map of named results; nobody reads one of them.
struct TwoIn : nn::Module {
  Tensor gain = param("gain", {5}, nn::init::normal(1, 0.1));
  nn::Child<nn::Linear> left = child<nn::Linear>("left", 7, 5), right = child<nn::Linear>("right", 7, 5);
  std::map<std::string, Tensor> forward(const Tensor& a, const Tensor& b, bool add) {
    Tensor l = left(a) * gain, r = right(b);
    return {{"left", l}, {"mixed", add ? l + r : l - r}, {"unread", r * 2.0}};
  }
  static Tensor output(const nn::Child<TwoIn>& model, const Tensor& x) {
    auto named = model(x, tanh(x), false);
    return named.at("mixed") * tanh(named.at("left"));
  }
};

/// Two outputs, of different units; backward may come to either first.
struct TwoOut : nn::Module {
  Tensor scale = param("scale", {7}, nn::init::normal(1, 0.1));
  nn::Child<nn::Linear> first = child<nn::Linear>("first", 7, 5), second = child<nn::Linear>("second", 7, 5);
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {first(x * scale), tanh(second(x * scale))}; }
  static Tensor output(const nn::Child<TwoOut>& model, const Tensor& x) {
    auto [a, b] = model(x);
    return a * b;
  }
};

/// One submodule under two names, called by both.
struct Siamese : nn::Module {
  nn::Child<nn::Linear> encoder = child<nn::Linear>("encoder", 7, 9), again = share("again", encoder),
                        out = child<nn::Linear>("out", 9, 5);
  Tensor forward(const Tensor& a, const Tensor& b) { return out(tanh(encoder(a)) - again(b)); }
  static Tensor output(const nn::Child<Siamese>& model, const Tensor& x) { return model(x, tanh(x)); }
};

/// A model as a unit of another, between a layer and the root's own parameter.
template <class Inner> struct Within : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
  nn::Child<Inner> inner = child<Inner>("inner");
  Tensor shift = param("shift", {5}, nn::init::zeros());
  Tensor forward(const Tensor& x) { return output_of(inner, in(x)) + shift; }
};

}  // namespace shardgrad::fsdp::testing
