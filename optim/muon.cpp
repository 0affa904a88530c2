#include <shardgrad/optim/muon.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::optim {
namespace {

constexpr const char* kScales[] = {"original", "match_rms_adamw", "spectral_unclamped"};

double scale_of(MuonScale scale, const Shape& shape) {
  auto rows = double(shape[0]), columns = double(shape[1]);
  if (scale == MuonScale::match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(scale == MuonScale::original ? std::max(1.0, rows / columns) : rows / columns);
}

// Multiplications of one step of the iteration, but for a factor.
double cost_of(const Shape& shape) {
  auto shorter = double(std::min(shape[0], shape[1])), longer = double(std::max(shape[0], shape[1]));
  return shorter * shorter * (2 * longer + shorter);
}

void multiply_into(const Out& to, const Tensor& x, double factor) { launch(kernels::affine, x, to, x, factor, 0.0); }
void multiply_into(const Tensor& to, const Tensor& x, double factor) { multiply_into(out(to), x, factor); }

// sum = sum + a · b
void add_product(const Tensor& sum, const Tensor& a, const Tensor& b) {
  launch(kernels::matmul, a, out(sum, 1), unwanted(), a, b, Tensor(), kernels::MatmulArgs{});
}

}  // namespace

const char* name_of(MuonScale scale) { return kScales[int(scale)]; }

MuonScale parse_muon_scale(std::string_view name) {
  for (int i = 0; i < 3; ++i)
    if (name == kScales[i]) return MuonScale(i);
  fail("Muon: adjust_lr_fn = '", name, "' is none of original, match_rms_adamw, spectral_unclamped");
}

Tensor orthogonalized(Tensor u, const MuonOptions& options) {
  NoGrad no_grad;
  Autocast off({});
  auto [a, b, c] = options.ns_coefficients;
  bool tall = u.shape()[0] > u.shape()[1];
  Tensor x = u / clamp(norm(u), options.eps, std::numeric_limits<double>::infinity());
  u = Tensor();  // its memory is for the products
  for (int step = 0; step < options.ns_steps; ++step) {
    Tensor gram = matmul(x, x, tall, !tall), factor = gram * b;
    add_product(factor, gram * c, gram);
    gram = Tensor();
    Tensor next = x * a;
    tall ? add_product(next, x, factor) : add_product(next, factor, x);
    x = next;
  }
  return x;
}

Muon::Muon(std::vector<NamedParameter> parameters, MuonOptions options, Rules rules)
    : Optimizer("Muon", std::move(parameters), options.lr, options.weight_decay, std::move(rules), {"momentum_buffer"}),
      options_(options) {
  check_option("Muon", "momentum", options.momentum, options.momentum >= 0 && options.momentum < 1);
  check_option("Muon", "eps", options.eps, options.eps > 0);
  check_option("Muon", "ns_steps", options.ns_steps, options.ns_steps >= 0 && options.ns_steps < 100);
  for (double coefficient : options.ns_coefficients) check_option("Muon", "ns_coefficients", coefficient, true);
  for (const NamedParameter& parameter : this->parameters()) {
    SG_CHECK(parameter.tensor.ndim() == 2, "Muon: '", parameter.name, "' is ", parameter.tensor.shape(),
             " and no matrix; give parameters that do not have two dimensions to an optimizer of their own, such as ",
             "AdamW (optim/muon.h has the loop)");
    SG_CHECK(parameter.part.extent == 0, "Muon: '", parameter.name,
             "' is a part of a larger matrix, whose step needs the whole; train ",
             "what is split over a mesh's axis with AdamW");
  }
}

void Muon::update(Run& run) {
  average_into(run.states[0], run);
  if (run.weight_decay != 0) multiply_into(run.values, run.values, 1 - run.lr * run.weight_decay);
  run.take_copy();  // finish() writes it
}

// momentum · momentum_buffer + (1 - momentum) · grad
void Muon::average_into(const Tensor& average, const Run& run) const {
  multiply_into(average, run.states[0], options_.momentum);
  multiply_into(out(average, 1), run.grad, run.grad_scale * (1 - options_.momentum));
}

Tensor Muon::direction(const Run& run) const {
  if (!options_.nesterov) return run.states[0];
  Tensor direction = empty_like(run.states[0]);
  average_into(direction, run);
  return direction;
}

/// The parameters that a step updates, of which this rank has a run or nothing.
class Muon::Steps final : public WholeWork {
 public:
  Steps(const Muon& muon, std::span<const Piece> pieces, double grad_scale) : muon_(muon) {
    for (const Piece& piece : pieces) {
      SG_ASSERT(piece.part == 0, "Muon: a rank holds two ranges of '", muon.parameters()[piece.index].name, "'");
      if (piece.range.count > 0) runs_.emplace(piece.index, muon.run_of(piece, grad_scale));
    }
  }
  Tensor part(size_t i) override { return muon_.direction(runs_.at(i)); }
  Tensor compute(size_t i, Tensor whole) override {
    const Shape& shape = shape_of(i);
    Tensor matrix = std::exchange(whole, Tensor()).view(shape);
    return orthogonalized(std::move(matrix), muon_.options_).view({shape.numel()});
  }
  void take(size_t i, const Tensor& part) override {
    const Run& run = runs_.at(i);
    double rate = run.lr * scale_of(muon_.options_.adjust_lr, shape_of(i));
    multiply_into(out(run.values, 1), part.to(run.values.device()), -rate);
    if (run.copy.defined()) launch(kernels::cast, run.values, out(run.copy), run.values);
  }

 private:
  const Shape& shape_of(size_t i) const { return muon_.parameters()[i].tensor.shape(); }
  const Muon& muon_;
  std::map<size_t, Run> runs_;
};

void Muon::finish(std::span<const Piece> pieces, double grad_scale) {
  NoGrad no_grad;
  Steps steps(*this, pieces, grad_scale);
  std::vector<WholeTensor> updated;
  for (size_t i = 0; i < parameters().size(); ++i)
    if (const Shape& shape = parameters()[i].tensor.shape(); is_updated(i) && shape.numel() > 0)
      updated.push_back({i, spread_of(i), cost_of(shape)});
  compute_whole(updated, steps);
}

}  // namespace shardgrad::optim
