#pragma once

#include <array>

#include <shardgrad/optim/optimizer.h>

namespace shardgrad::optim {

/// What the learning rate of a matrix with A rows and B columns is multiplied by, that all may share one.
enum class MuonScale : uint8_t {
  original,         ///< √max(1, A / B), Keller Jordan's
  match_rms_adamw,  ///< 0.2 · √max(A, B): steps as large as AdamW's, whose rate and decay fit then (arXiv 2502.16982)
  spectral_unclamped,  ///< √(A / B)
};
const char* name_of(MuonScale scale);
/// Throws Error(input) listing the names above.
MuonScale parse_muon_scale(std::string_view name);

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  double eps = 1e-7;
  int ns_steps = 5;
  MuonScale adjust_lr = MuonScale::original;
};

/// Muon (Keller Jordan, 2024), as PyTorch has it: the step of a matrix is its momentum with all singular values near 1.
///
///     momentum_buffer = momentum · momentum_buffer + (1 - momentum) · grad
///     u = momentum · momentum_buffer + (1 - momentum) · grad      with nesterov; else momentum_buffer
///     X = u / max(‖u‖, eps), then ns_steps times, with (a, b, c) = ns_coefficients:
///         G = X · Xᵀ,  X = a · X + (b · G + c · G · G) · X         Xᵀ · X where there are more rows than columns
///     p = p - lr · weight_decay · p - lr · scale(A, B) · X
///
/// The products are of the dtype of the state, f32, or f64 for f64 parameters; PyTorch's are of bf16.
///
/// It is for the matrices inside of a model. Everything else (biases, norms, kernels of convolutions, and by custom
/// embeddings and the head) has an optimizer of its own, in the same loop:
///
///     std::vector<NamedParameter> matrices, others;
///     for (const NamedParameter& p : model->named_parameters())
///       (p.tensor.ndim() == 2 ? matrices : others).push_back(p);
///     optim::Muon muon(matrices, {.lr = 0.02});
///     optim::AdamW adamw(others, {.lr = 3e-4});
///     for (…) { loss.backward(); muon.step(); adamw.step(); muon.zero_grad(); adamw.zero_grad(); }
///
/// A checkpoint takes both (docs/checkpoints.md).
///
/// Sharded, momentum and decay are updated where the elements are, and each matrix is then brought together on one of
/// the ranks, which computes X and sends every rank its elements: docs/zero.md has what that sends and what memory it
/// takes. No bit depends on the strategy. A step counts for all matrices before X is computed of the first.
///
/// State: momentum_buffer (f32; f64 for f64 parameters). Throws Error(input) for options that make no sense, for a
/// parameter that is no matrix, and for one that is a part of a larger matrix (Part), whose X needs the whole.
class Muon : public Optimizer {
 public:
  using Options = MuonOptions;
  Muon(std::vector<NamedParameter> parameters, MuonOptions options, Rules rules = {});

 private:
  class Steps;
  void update(Run& run) override;
  void finish(std::span<const Piece> pieces, double grad_scale) override;
  void average_into(const Tensor& average, const Run& run) const;
  Tensor direction(const Run& run) const;
  MuonOptions options_;
};

/// X of the formula above, of a matrix u.
Tensor orthogonalized(Tensor u, const MuonOptions& options);

}  // namespace shardgrad::optim
