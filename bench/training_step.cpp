// A training step as a server for bench/compare_pytorch.py: the driver lets this program and PyTorch run in turn and
// compares. Arguments: THREADS, a strategy or `alone`, then what is trained:
//
//     mlp BATCH SIZE SIZE [SIZE…]                                 all of a step, with SGD
//     attention BATCH LENGTH HEADS KV_HEADS DEPTH DROPOUT         the operation, forward and backward
//     lenet BATCH                                                 pictures of 3 x 32 x 32, forward and backward
//     residual BATCH CHANNELS SIDE                                a block of a ResNet-18, forward and backward
//     gpt2 BATCH LENGTH LAYERS WIDTH HEADS VOCABULARY DROPOUT     all of a step, with AdamW and clipping
//
// Under a strategy it is started by mpirun: a rank has BATCH rows of its own, and what is compared is of all.
//
// Protocol, on rank 0: "check" prints the norms of what three steps from fixed values give; "run N" prints the seconds
// that N steps took, until the slowest rank was through.

#include <chrono>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/launch/job.h>
#include <shardgrad/fsdp/clip.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/sgd.h>

using namespace shardgrad;

namespace {

using Step = std::function<Tensor()>;  // gives what is compared: the loss, or a gradient
using Words = std::vector<std::string>;

/// Who trains: the ranks of a group, or one alone.
struct Ranks {
  dist::ProcessGroup* world = nullptr;
  fsdp::Strategy strategy = fsdp::Strategy::ddp;

  int64_t size() const { return world ? world->size() : 1; }
  Tensor own_rows(const Tensor& all) const {
    int64_t rows = all.size(0) / size(), first = world ? world->rank() * rows : 0;
    return clone(all.rows(first, first + rows));
  }
  std::shared_ptr<fsdp::Sharded> shard(nn::Module& model) const {
    return world ? fsdp::fully_shard(model, *world, {.strategy = strategy}) : nullptr;
  }
  /// The sum over the ranks.
  double total(double value) const {
    if (!world) return value;
    Tensor sum = from_vector<double>({value}, {1});
    world->all_reduce(sum).host_wait();
    return sum.item();
  }
};

struct Mlp : nn::Module {
  std::vector<nn::Child<nn::Linear>> layers;
  explicit Mlp(const std::vector<int64_t>& sizes) {
    for (size_t i = 0; i + 1 < sizes.size(); ++i)
      layers.push_back(child<nn::Linear>("layer" + std::to_string(i), sizes[i], sizes[i + 1], true,
                                         i + 2 < sizes.size() ? Activation::relu : Activation::none));
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x;
  }
};

// Values that both sides compute alike: sin(i · step) · scale.
Tensor wave(const Shape& shape, double step, double scale) {
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(std::sin(double(i) * step) * scale);
  return from_vector(values, shape);
}

// The same without a pattern, uniform in ±scale: a matrix of waves has rank 2, and most of its gradients are rounding.
Tensor noise(const Shape& shape, double scale) {
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    double large = std::sin(double(i) * 12.9898) * 43758.5453;
    values[i] = float((large - std::floor(large) - 0.5) * 2 * scale);
  }
  return from_vector(values, shape);
}

Step mlp(const Words& words, const Ranks& ranks) {
  std::vector<int64_t> sizes;
  for (const std::string& word : words) sizes.push_back(std::stoll(word));
  int64_t batch = sizes.front();
  sizes.erase(sizes.begin());
  auto model = nn::make<Mlp>(sizes);
  model->materialize();
  for (const NamedParameter& p : model->named_parameters())
    copy_into(p.tensor.detach(), wave(p.tensor.shape(), 0.7, 1 / std::sqrt(double(p.tensor.size(-1)))));
  auto sharded = ranks.shard(model.module());
  auto optimizer =
      std::make_shared<optim::SGD>(model->named_parameters(), optim::SgdOptions{.lr = 0.01, .momentum = 0.9});
  int64_t rows = batch * ranks.size();
  Tensor x = ranks.own_rows(wave({rows, sizes.front()}, 0.3, 1));
  Tensor target = ranks.own_rows(wave({rows, sizes.back()}, 0.11, 1));
  return [=, count = double(rows * sizes.back())] {
    Tensor loss = mse_loss(model(x), target, count);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss;
  };
}

// With dropout its gradients differ from PyTorch's, whose masks are others.
Step attention_alone(const Words& words, const Ranks& ranks) {
  SG_CHECK(!ranks.world, "attention is timed alone");
  int64_t batch = std::stoll(words.at(0)), length = std::stoll(words.at(1)), depth = std::stoll(words.at(4));
  AttentionOptions options{.heads = std::stoll(words.at(2)),
                           .kv_heads = std::stoll(words.at(3)),
                           .dropout = std::stod(words.at(5)),
                           .seed = 1};
  Tensor qkv = wave({batch, length, (options.heads + 2 * options.kv_heads) * depth}, 0.7, 1).set_requires_grad();
  Tensor dy = wave({batch, length, options.heads * depth}, 0.3, 1);
  return [=] {
    qkv.zero_grad();
    attention(qkv, Tensor(), options).backward(dy);
    return qkv.grad();
  };
}

struct LeNet : nn::Module {
  nn::Child<nn::Conv2d> first = child<nn::Conv2d>("first", 3, 6, 5), second = child<nn::Conv2d>("second", 6, 16, 5);
  nn::Child<nn::Linear> wide = child<nn::Linear>("wide", 400, 120, true, Activation::relu);
  nn::Child<nn::Linear> narrow = child<nn::Linear>("narrow", 120, 84, true, Activation::relu);
  nn::Child<nn::Linear> last = child<nn::Linear>("last", 84, 10);
  Tensor forward(const Tensor& x) {
    Tensor y = max_pool2d(relu(first(x)), 2);
    return last(narrow(wide(flatten(max_pool2d(relu(second(y)), 2), 1))));
  }
};

struct Residual : nn::Module {
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  explicit Residual(int64_t channels) {
    conv1 = child<nn::Conv2d>("conv1", channels, channels, 3, ConvOptions{.padding = 1}, false);
    bn1 = child<nn::BatchNorm2d>("bn1", channels);
    conv2 = child<nn::Conv2d>("conv2", channels, channels, 3, ConvOptions{.padding = 1}, false);
    bn2 = child<nn::BatchNorm2d>("bn2", channels);
  }
  Tensor forward(const Tensor& x) { return relu(bn2(conv2(relu(bn1(conv1(x))))) + x); }
};

// What is compared is the gradient of the pictures.
template <class Model, class... Sizes> Step of_pictures(const Ranks& ranks, const Shape& shape, Sizes... sizes) {
  SG_CHECK(!ranks.world, "models of pictures are timed alone");
  auto model = nn::make<Model>(sizes...);
  model->materialize();
  for (const NamedParameter& p : model->named_parameters())
    if (p.tensor.ndim() > 1) {
      double fan_in = double(p.tensor.numel() / p.tensor.size(0));
      copy_into(p.tensor.detach(), noise(p.tensor.shape(), 1 / std::sqrt(fan_in)));
    } else {
      fill_(p.tensor.detach(), p.name.starts_with("bn") && p.name.ends_with("weight") ? 1 : 0);
    }
  Tensor x = noise(shape, 1).set_requires_grad(), dy;
  return [=]() mutable {
    x.zero_grad();
    for (const NamedParameter& p : model->named_parameters()) p.tensor.zero_grad();
    Tensor y = model(x);
    if (!dy.defined()) dy = wave(y.shape(), 0.3, 1);
    y.backward(dy);
    return x.grad();
  };
}

Step lenet(const Words& words, const Ranks& ranks) {
  return of_pictures<LeNet>(ranks, {std::stoll(words.at(0)), 3, 32, 32});
}
Step residual(const Words& words, const Ranks& ranks) {
  int64_t channels = std::stoll(words.at(1)), side = std::stoll(words.at(2));
  return of_pictures<Residual>(ranks, {std::stoll(words.at(0)), channels, side, side}, channels);
}

// Ids that both sides compute alike.
Tensor ids_from(int64_t first, int64_t batch, int64_t length, int64_t vocabulary) {
  std::vector<int64_t> ids(size_t(batch * length));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = (int64_t(i) + first) * 7919 % 1009 % vocabulary;
  return from_vector(ids, {batch, length});
}

// As its users train it: no decay of vectors, the norm clipped. Steps are small, so that rounding stays small, too.
Step gpt2(const Words& words, const Ranks& ranks) {
  int64_t batch = std::stoll(words.at(0)), length = std::stoll(words.at(1)), vocabulary = std::stoll(words.at(5));
  double dropout = std::stod(words.at(6));
  auto model = nn::make<nn::Gpt2>(nn::Gpt2Options{.vocab_size = vocabulary,
                                                  .n_positions = length,
                                                  .n_embd = std::stoll(words.at(3)),
                                                  .n_layer = std::stoll(words.at(2)),
                                                  .n_head = std::stoll(words.at(4)),
                                                  .embd_pdrop = dropout,
                                                  .attn_pdrop = dropout,
                                                  .resid_pdrop = dropout});
  model->materialize();
  optim::Rules no_decay;
  for (const NamedParameter& p : model->named_parameters()) {
    bool gain = p.name.find("ln_") != std::string::npos && p.name.ends_with("weight");
    if (p.tensor.ndim() == 2) {
      copy_into(p.tensor.detach(), noise(p.tensor.shape(), 0.035));
    } else {
      fill_(p.tensor.detach(), gain ? 1 : 0);
      no_decay.push_back({p.name, {.weight_decay = 0}});
    }
  }
  auto sharded = ranks.shard(model.module());
  optim::AdamOptions adam{.lr = 1e-4, .beta2 = 0.95, .weight_decay = 0.1};
  auto optimizer = std::make_shared<optim::AdamW>(model->named_parameters(), adam, no_decay);
  int64_t rows = batch * ranks.size();
  Tensor ids = ranks.own_rows(ids_from(0, rows, length, vocabulary));
  Tensor labels = ranks.own_rows(ids_from(1, rows, length, vocabulary));
  return [=, step = uint64_t(0)]() mutable {
    progress() = {step++, 0};
    Tensor loss = model(ids, nn::TextCall{.labels = labels, .loss = {.count = double(rows * length)}});
    loss.backward();
    Tensor power = sharded ? fsdp::grad_power(*sharded) : optim::grad_power(optimizer->parameters());
    optimizer->step(optim::clip_scale(power, 1));
    optimizer->zero_grad();
    return loss;
  };
}

Step make(const std::string& kind, const Words& words, const Ranks& ranks) {
  if (kind == "mlp") return mlp(words, ranks);
  if (kind == "lenet") return lenet(words, ranks);
  if (kind == "residual") return residual(words, ranks);
  if (kind == "attention") return attention_alone(words, ranks);
  if (kind == "gpt2") return gpt2(words, ranks);
  throw Error(ErrorKind::input, concat("'", kind, "' is none of mlp, lenet, residual, attention and gpt2"));
}

/// The number of the next line's steps, 0 for "check", -1 at the end; rank 0 reads and tells the others.
double next_count(const Ranks& ranks) {
  double count = -1;
  std::string word;
  if (!ranks.world || ranks.world->rank() == 0) {
    if (std::cin >> word) count = 0;
    if (word == "run") std::cin >> count;
  }
  return ranks.total(ranks.world && ranks.world->rank() != 0 ? 0 : count);
}

int serve(const Step& step, const Ranks& ranks) {
  bool prints = !ranks.world || ranks.world->rank() == 0;
  for (double count; (count = next_count(ranks)) >= 0;) {
    if (count == 0) {
      for (int i = 0; i < 3; ++i) {
        double value = ranks.total(norm(step().to(DType::f64)).item());
        if (prints) std::cout << value << ' ';
      }
    } else {
      auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < int(count); ++i) step();
      if (ranks.world) ranks.world->barrier();
      if (prints) std::cout << std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    if (prints) std::cout << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return std::cerr << "usage: training_step THREADS alone|STRATEGY mlp|attention|gpt2 WHAT…\n", 2;
  int threads = std::atoi(argv[1]);
  std::string strategy = argv[2], kind = argv[3];
  Words words(argv + 4, argv + argc);
  if (strategy == "alone") {
    Context context({.threads = threads});
    return serve(make(kind, words, {}), {});
  }
  auto configure = [&](const dist::Bootstrap&) { return dist::JobOptions{.context = {.threads = threads}}; };
  auto body = [&](dist::Job& job) {
    Ranks ranks{&job.world(), fsdp::parse_strategy(strategy)};
    return serve(make(kind, words, ranks), ranks);
  };
  return dist::run_job(body, configure);
}
