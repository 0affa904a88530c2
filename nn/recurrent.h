#pragma once
// Layers whose step sees the step before: LSTM and GRU, with PyTorch's names, order of gates and results.
//
//     auto lstm = nn::make<nn::LSTM>(28, 64, nn::RecurrentOptions{.layers = 2});
//     auto [y, h, c] = lstm(x);            // x (places, samples, 28): y (places, samples, 64), h and c (2, samples,
//     64) auto [next, h2, c2] = lstm(x2, h, c);
//
// What a layer makes of its input is one product for all places; the products with the state before are one a place.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

struct RecurrentOptions {
  int64_t layers = 1;  ///< each reads what the one before it puts out
  bool bias = true;
  bool batch_first = false;  ///< x and y are (samples, places, …); h and c stay as they are
  double dropout = 0;        ///< probability, below 1, that what goes from layer to layer is zeroed in training
  bool bidirectional = false;
};

/// y is (places, samples, hidden), twice as wide where bidirectional: first the forward direction, then the backward
/// one. h, and c, are (layers · directions, samples, hidden): the states after the last place of each direction.
struct LSTMResult {
  Tensor y, h, c;
};
struct GRUResult {
  Tensor y, h;
};

/// What LSTM and GRU share. Parameters of layer l are weight_ih_l<l> (gates · hidden, in), weight_hh_l<l> (gates ·
/// hidden, hidden), bias_ih_l<l> and bias_hh_l<l> (gates · hidden), and the same with `_reverse`; all begin uniform in
/// ±1/√hidden, as PyTorch's.
class Recurrent : public Module {
 public:
  /// The member that is this parameter, undefined without one; null for other names.
  Tensor* parameter(std::string_view name);

 protected:
  /// Throws Error(input) for sizes below 1 and a dropout outside of [0, 1).
  Recurrent(const char* name, int64_t gates, int64_t in, int64_t hidden, const RecurrentOptions& options);
  /// One place: what its input gave, and what the state before gave (samples, gates · hidden each); changes the state,
  /// whose first tensor is the output.
  virtual void step(const Tensor& of_input, const Tensor& of_state, std::span<Tensor> state) const = 0;
  /// y, then the states at the end, of which each is given as in the results, or undefined: zeros. Throws Error(input)
  /// for an input that is not (places, samples, in) or (places, in), or a state that does not fit.
  std::vector<Tensor> run(const Tensor& x, std::span<const Tensor> states);

 private:
  struct Direction {
    Tensor weight_ih, weight_hh, bias_ih, bias_hh;
  };
  std::string suffix_of(size_t i) const;
  Tensor run_direction(size_t i, const Tensor& x, std::vector<Tensor>& state) const;
  Tensor run_layer(int64_t layer, const Tensor& x, std::vector<std::vector<Tensor>>& states);
  std::vector<std::vector<Tensor>> begin(const Tensor& x, std::span<const Tensor> states) const;
  void check_input(const Tensor& x) const;

  int64_t in_, hidden_;
  RecurrentOptions options_;
  std::vector<Direction> directions_;  // of layer 0, of layer 1, …
};

/// Long short-term memory (Hochreiter and Schmidhuber, 1997), gates in the order i, f, g, o:
///
///     c = σ(f) · c + σ(i) · tanh(g)
///     h = σ(o) · tanh(c)
class LSTM : public Recurrent {
 public:
  LSTM(int64_t in, int64_t hidden, const RecurrentOptions& options = {}) : Recurrent("LSTM", 4, in, hidden, options) {}
  LSTMResult forward(const Tensor& x, const Tensor& h = Tensor(), const Tensor& c = Tensor());

 private:
  void step(const Tensor& of_input, const Tensor& of_state, std::span<Tensor> state) const override;
};

/// Gated recurrent unit (arXiv 1406.1078, in PyTorch's form), gates in the order r, z, n:
///
///     n = tanh(n of the input + σ(r) · n of the state)
///     h = (1 - σ(z)) · n + σ(z) · h
class GRU : public Recurrent {
 public:
  GRU(int64_t in, int64_t hidden, const RecurrentOptions& options = {}) : Recurrent("GRU", 3, in, hidden, options) {}
  GRUResult forward(const Tensor& x, const Tensor& h = Tensor());

 private:
  void step(const Tensor& of_input, const Tensor& of_state, std::span<Tensor> state) const override;
};

}  // namespace shardgrad::nn
