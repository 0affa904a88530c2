#include "gpu_transformer.h"

#include <shardgrad/fsdp/clip.h>
#include <shardgrad/optim/clip.h>

#include "gpu_bench.h"

namespace shardgrad::bench {
namespace {

constexpr int64_t kWidth = 768, kHeads = 12, kVocabulary = 50257, kPadded = 50304;

int64_t batch() { return tiny ? 2 : 8; }
int64_t places() { return tiny ? 16 : 1024; }

Tensor ids_of(int64_t rows, int64_t columns, int64_t vocabulary, int64_t first) {
  std::vector<int64_t> ids(size_t(rows * columns));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = (int64_t(i) + first) * 7919 % vocabulary;
  return from_vector(ids, {rows, columns});
}

using Operands = std::vector<Tensor>;

Tensor part(const Tensor& x) { return x.to(DType::bf16).detach().set_requires_grad(); }

/// Milliseconds of forward and backward, once the gradient of the first operand is the CPU's; and, where asked, of
/// forward alone. Gradients of the result are drawn; of a loss they are 1.
void timed(Device device, const std::string& what, const Operands& operands, double tolerance, bool forward_alone,
           const std::function<Tensor(const Operands&)>& work) {
  Tensor dy;
  {
    NoGrad no_grad;
    Tensor y = work(operands);
    dy = y.ndim() == 0 ? full({}, 1).to(y.dtype()) : randn(y.shape(), "dy").to(y.dtype());
  }
  auto pass = [&](const Operands& x, const Tensor& gradient) {
    for (const Tensor& each : x)
      if (each.requires_grad()) each.zero_grad();
    work(x).backward(gradient);
  };
  pass(operands, dy);
  Operands host;
  for (const Tensor& each : operands) {
    host.push_back(each.detach().to(kCpu));
    if (each.requires_grad()) host.back().set_requires_grad();
  }
  pass(host, dy.to(kCpu));
  check(what, operands[0].grad(), host[0].grad(), tolerance);
  report(what + ", forward+backward", 1e3 * seconds_of(device, 3, [&] { pass(operands, dy); }), "ms");
  NoGrad no_grad;
  if (forward_alone) report(what + ", forward", 1e3 * seconds_of(device, 3, [&] { work(operands); }), "ms");
}

void attention_row(Device device) {
  const int64_t heads = tiny ? 2 : kHeads;
  Tensor qkv = part(randn({batch(), places(), 3 * heads * 64}, "qkv"));
  timed(device, "attention of gpt2 bf16", {qkv}, 2e-2, true,
        [&](const Operands& x) { return attention(x[0], Tensor(), {.heads = heads, .kv_heads = heads}); });
}

void layer_norm_row(Device device) {
  Tensor x = part(randn({batch() * places(), kWidth}, "x")), weight = part(rand({kWidth}, "w"));
  timed(device, "layer_norm of gpt2 bf16", {x, weight, part(rand({kWidth}, "b"))}, 2e-2, true,
        [](const Operands& x) { return layer_norm(x[0], x[1], x[2]); });
}

void head_row(Device device) {
  const int64_t rows = tiny ? 16 : batch() * places() / 8, classes = tiny ? 100 : kVocabulary;
  Tensor x = part(randn({rows, kWidth}, "x")), weight = part(randn({tiny ? 128 : kPadded, kWidth}, "w") * 0.02);
  Tensor labels = ids_of(1, rows, classes, 1).view({rows});
  timed(device, "head and loss of gpt2 bf16", {x, weight, labels}, 3e-2, false, [&](const Operands& x) {
    return linear_cross_entropy(x[0], x[1], x[2], {.count = double(rows), .classes = classes});
  });
}

const std::string kEmbedding = "embedding of gpt2, 65536 tokens", kSkewed = kEmbedding + ", 5 % of them one";

// Ids that are spread evenly, and where every 20th is the same, as the commonest token of a text is.
void embedding_row(Device device, const std::string& what) {
  const int64_t vocabulary = tiny ? 100 : kVocabulary;
  Tensor table = randn({vocabulary, kWidth}, "t").detach().set_requires_grad();
  Tensor ids = ids_of(tiny ? 2 : 64, places(), vocabulary, 0);
  if (what == kSkewed) {
    std::vector<int64_t> values = ids.to_vector<int64_t>();
    for (size_t i = 0; i < values.size(); i += 20) values[i] = 11;
    ids = from_vector(values, ids.shape());
  }
  timed(device, what, {table, ids}, 1e-5, false, [](const Operands& x) { return embedding(x[0], x[1]); });
}

void check_training(Device device) {
  auto losses = [](Device where) {
    Context context({.device = where});
    Gpt2Training training(small_gpt2(), 2, DType::bf16);
    std::vector<float> all;
    for (int i = 0; i < 3; ++i) all.push_back(float(training.step().item()));
    return from_vector(all, {3}).to(kCpu);
  };
  check("the loss of a step of a small GPT-2", losses(device), losses(kCpu), 1e-2);
}

void gpt2_row(Device device) {
  check_training(device);
  Gpt2Training training(measured_gpt2(), measured_samples(), DType::bf16);
  double seconds = seconds_of(device, 2, [&] { training.step(); });
  report("gpt2 124M bf16 step", 1e-3 * double(training.tokens()) / seconds, "Ktoken/s");
}

// What clipping costs a step: the norm of all gradients and the factor, by which the update's kernel then multiplies.
void clipping_row(Device device, const std::string& name) {
  nn::Gpt2Options options = measured_gpt2();
  auto model = nn::make<nn::Gpt2>(options);
  model->materialize();
  Tensor ids = ids_of(1, options.n_positions, options.vocab_size, 0);
  model(ids, nn::TextCall{.labels = ids, .loss = {.count = double(ids.numel())}}).backward();
  std::vector<NamedParameter> parameters = model->named_parameters();
  double bytes = 0, power = 0;
  for (const NamedParameter& parameter : parameters) {
    bytes += double(parameter.tensor.grad().bytes());
    power += std::pow(norm(parameter.tensor.grad().to(kCpu).to(DType::f64)).item(), 2);
  }
  check(name, optim::grad_power(parameters), full({1}, power, {DType::f64, kCpu}), 1e-6);
  auto work = [&] { optim::clip_scale(optim::grad_power(parameters), 1); };
  report(name, 1e-9 * bytes / seconds_of(device, 20, work), "GB/s", "copy by the driver f32");
}

}  // namespace

nn::Gpt2Options small_gpt2() {
  return {.vocab_size = 100, .n_positions = 16, .n_embd = 64, .n_layer = 2, .n_head = 2, .vocab_multiple = 64};
}
nn::Gpt2Options measured_gpt2() { return tiny ? small_gpt2() : nn::Gpt2Options{.vocab_multiple = 64}; }
int64_t measured_samples() { return batch(); }

Gpt2Training::Gpt2Training(const nn::Gpt2Options& options, int64_t rows, std::optional<DType> products,
                           dist::ProcessGroup* group, const fsdp::Config& config)
    : model_(nn::make<nn::Gpt2>(options)), products_(products) {
  if (group)
    sharded_ = fsdp::fully_shard(model_.module(), *group, config);
  else
    model_->materialize();
  optimizer_ = std::make_unique<optim::AdamW>(model_->named_parameters(),
                                              optim::AdamOptions{.lr = 1e-4, .beta2 = 0.95, .weight_decay = 0.1});
  ids_ = ids_of(rows, options.n_positions, options.vocab_size, 0);
  labels_ = ids_of(rows, options.n_positions, options.vocab_size, 1);
}

Tensor Gpt2Training::step() {
  progress() = {steps_++, 0};
  Tensor loss;
  {
    Autocast scope(products_);
    loss = model_(ids_, nn::TextCall{.labels = labels_, .loss = {.count = double(labels_.numel())}});
  }
  loss.backward();
  Tensor power = sharded_ ? fsdp::grad_power(*sharded_) : optim::grad_power(optimizer_->parameters());
  optimizer_->step(optim::clip_scale(power, 1));
  optimizer_->zero_grad();
  return loss;
}

void transformers(Device device) {
  row("attention of gpt2 bf16", [&] { attention_row(device); });
  row("layer_norm of gpt2 bf16", [&] { layer_norm_row(device); });
  row("head and loss of gpt2 bf16", [&] { head_row(device); });
  for (const std::string& what : {kEmbedding, kSkewed}) row(what, [&] { embedding_row(device, what); });
  const std::string clipping = "clipping of gpt2 124M f32";
  row(clipping, [&] { clipping_row(device, clipping); });
  row("gpt2 124M bf16 step", [&] { gpt2_row(device); });
}

}  // namespace shardgrad::bench
