#pragma once
// Training programs as their users write them. Each runs on one plain rank and, with the same code, sharded; what it
// notes on the way (losses of the whole batch, weights) must be the same but for rounding. Models are in f64, so that a
// difference is a fault and not the order of a sum.

#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/nn/recompute.h>

#include <gtest/gtest.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {

/// One run of a program: the plain one has no group.
class Run {
 public:
  static constexpr int64_t kBatch = 12;  // rows of a global batch; each rank has as many
  static constexpr double kRows = double(kBatch);

  explicit Run(dist::ProcessGroup* group = nullptr, Config config = {}) : group(group), config(std::move(config)) {}

  /// A model, sharded by `wrap` if there is a group.
  template <class M> struct Model {
    nn::Child<M> module;
    std::shared_ptr<Sharded> sharded;
    M* operator->() const { return module.operator->(); }
    template <class... Args> auto operator()(Args&&... args) const { return module(std::forward<Args>(args)...); }
  };
  template <class M> Model<M> make(const std::function<void(M&)>& prepare = nullptr, WrapPolicy wrap = {}) {
    Model<M> model{nn::make<M>(), nullptr};
    model->to(DType::f64);
    if (prepare) prepare(*model.module);
    model.sharded = shard(*model.module, std::move(wrap));
    return model;
  }
  /// Null on a plain rank.
  std::shared_ptr<Sharded> shard(nn::Module& module, WrapPolicy wrap = {}) const {
    Config own = config;
    own.wrap = std::move(wrap);
    if (group) return fully_shard(module, *group, own);
    module.materialize();  // the root may never be called
    return nullptr;
  }
  /// This rank's rows of a global batch.
  Tensor rows(const char* what, int number, int64_t columns = 7) const {
    int64_t rank = group ? group->rank() : 0, world = group ? group->size() : 1;
    return rows_of_batch(what, number, kBatch * rank / world, kBatch * (rank + 1) / world, columns, DType::f64);
  }
  /// Σ y² over this rank's rows, as a part of the mean over all.
  static Tensor square(const Tensor& y) { return sum(y * y) * (1 / kRows); }
  Tensor loss(const Tensor& y, int number) const { return square(y - rows("t", number, y.size(1))); }

  void note(const std::string& what, const Tensor& part) {
    Tensor whole = clone(part.detach());
    if (group) group->all_reduce(whole).host_wait();
    notes[concat(what, '#', notes.size())] = values_of(whole);
  }
  static StateDict copies(const StateDict& state) {
    StateDict copied;
    for (auto& [name, tensor] : state) copied[name] = clone(tensor.detach()).to(kCpu);
    return copied;
  }
  static StateDict weights(nn::Module& module, const std::shared_ptr<Sharded>& sharded) {
    return sharded ? full_state_dict(*sharded, false) : copies(module.state_dict());
  }
  static void load(nn::Module& module, const std::shared_ptr<Sharded>& sharded, const StateDict& state) {
    if (sharded)
      load_full_state_dict(*sharded, state);
    else
      module.load_state_dict(state);
  }
  template <class M> StateDict weights(const Model<M>& model) const { return weights(*model.module, model.sharded); }
  template <class M> void load(const Model<M>& model, const StateDict& state) const {
    load(*model.module, model.sharded, state);
  }
  static StateDict state_of(optim::Optimizer& optimizer, const std::shared_ptr<Sharded>& sharded) {
    return sharded ? full_optim_state_dict(*sharded, optimizer, false) : copies(optimizer.state_dict());
  }
  static void load(optim::Optimizer& optimizer, const std::shared_ptr<Sharded>& sharded, const StateDict& state) {
    if (sharded)
      load_full_optim_state_dict(*sharded, optimizer, state);
    else
      optimizer.load_state_dict(state);
  }
  void note(const StateDict& state) {
    for (auto& [name, tensor] : state)
      notes[concat(name, '#', notes.size())] =
          tensor.dtype() == DType::i64 ? std::vector<double>{tensor.item()} : values_of(tensor);
  }
  template <class M> void note_weights(const Model<M>& model) { note(weights(model)); }
  template <class M> std::unique_ptr<NoSync> no_sync(const Model<M>& model) const {
    return model.sharded ? std::make_unique<NoSync>(*model.sharded) : nullptr;
  }

  /// The norm before.
  template <class M> void clip(const Model<M>& model, double most) {
    double norm =
        model.sharded ? clip_grad_norm(*model.sharded, most) : optim::clip_grad_norm(model->named_parameters(), most);
    notes[concat("norm#", notes.size())] = {norm};
  }

  dist::ProcessGroup* group;
  Config config;
  std::map<std::string, std::vector<double>> notes;
};

namespace programs {

using optim::AdamW;
using optim::SGD;

struct Mlp : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 9), b = child<nn::Linear>("b", 9, 9),
                        c = child<nn::Linear>("c", 9, 7);
  Tensor forward(const Tensor& x) { return c(tanh(b(tanh(a(x))))); }
};

inline void step(optim::Optimizer& optimizer) {
  optimizer.step();
  optimizer.zero_grad();
}

/// Two models and two optimizers: the discriminator is stepped between the generator's forward and backward.
inline void gan(Run& run) {
  auto g = run.make<Mlp>(), d = run.make<Mlp>();
  AdamW of_g(g->named_parameters(), {.lr = 0.02}), of_d(d->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor fake = g(run.rows("z", i));
    Tensor judged = Run::square(d(run.rows("x", i)) - 1.0) + Run::square(d(fake.detach()));
    judged.backward();
    step(of_d);
    Tensor fooled = Run::square(d(fake) - 1.0);
    fooled.backward();
    step(of_g);
    of_d.zero_grad();
    run.note("d", judged);
    run.note("g", fooled);
  }
  run.note_weights(g);
  run.note_weights(d);
}

/// The same below one root that only holds both, the discriminator frozen while the generator learns.
struct Both : nn::Module {
  nn::Child<Mlp> g = child<Mlp>("g"), d = child<Mlp>("d");
};
inline std::vector<NamedParameter> below(nn::Module& root, const std::string& prefix) {
  std::vector<NamedParameter> found;
  for (const NamedParameter& p : root.named_parameters())
    if (p.name.starts_with(prefix)) found.push_back(p);
  return found;
}
inline void gan_of_one_root(Run& run) {
  auto both = run.make<Both>();
  AdamW of_g(below(*both.module, "g."), {.lr = 0.02}), of_d(below(*both.module, "d."), {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor fake = both->g(run.rows("z", i));
    Tensor judged = Run::square(both->d(run.rows("x", i)) - 1.0) + Run::square(both->d(fake.detach()));
    judged.backward();
    step(of_d);
    for (auto& p : below(*both.module, "d.")) p.tensor.set_requires_grad(false);
    Tensor fooled = Run::square(both->d(fake) - 1.0);
    fooled.backward();
    step(of_g);
    for (auto& p : below(*both.module, "d.")) p.tensor.set_requires_grad(true);
    run.note("d", judged);
    run.note("g", fooled);
  }
  run.note_weights(both);
}

/// Units in another order every step, one left out, one called many times.
struct Shuffled : nn::Module {
  nn::Child<nn::ModuleList<nn::Linear>> layers = child<nn::ModuleList<nn::Linear>>("layers");
  Shuffled() {
    for (int i = 0; i < 4; ++i) layers->add(7, 7);
  }
  Tensor forward(const Tensor& x, int turn) {
    Tensor h = x;
    for (size_t i = 0; i < 3; ++i) h = tanh((*layers)[(i * size_t(turn + 1) + size_t(turn)) % 4](h));
    for (int i = 0; i < turn; ++i) h = h + tanh((*layers)[1](h)) * 0.1;
    return h;
  }
};
inline void changing_order(Run& run) {
  auto model = run.make<Shuffled>();
  AdamW optimizer(model->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 6; ++i) {
    Tensor loss = run.loss(model(run.rows("x", i), i), i);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// An average of the weights, kept outside and evaluated in a model of its own.
inline void moving_average(Run& run) {
  auto model = run.make<Mlp>(), averaged = run.make<Mlp>();
  SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
  StateDict average = run.weights(model);
  for (int i = 0; i < 4; ++i) {
    run.loss(model(run.rows("x", i)), i).backward();
    step(optimizer);
    for (auto& [name, tensor] : run.weights(model)) average[name] = average[name] * 0.7 + tensor * 0.3;
    run.load(averaged, average);
    NoGrad no_grad;
    run.note("average", run.loss(averaged(run.rows("x", i)), i));
  }
  run.note_weights(averaged);
}

/// A student that learns from its own output without noise, computed without grad inside its forward.
struct Student : nn::Module {
  nn::Child<Mlp> body = child<Mlp>("body");
  nn::Child<nn::Linear> head = child<nn::Linear>("head", 7, 7);
  Tensor forward(const Tensor& x, const Tensor& noise) {
    Tensor target;
    {
      NoGrad teacher;
      target = body(x);
    }
    return head(body(x + noise)) - target;
  }
};
inline void teacher(Run& run) {
  auto model = run.make<Student>({}, wrap_by_type({"Linear"}));
  AdamW optimizer(model->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor loss = Run::square(model(run.rows("x", i), run.rows("noise", i)));
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// A loss of what a unit keeps in a member: balance of experts, feature taps.
struct Expert : nn::Module {
  nn::Child<nn::Linear> gate = child<nn::Linear>("gate", 7, 7), up = child<nn::Linear>("up", 7, 7);
  Tensor aux;
  Tensor forward(const Tensor& x) {
    Tensor weights = sigmoid(gate(x));
    Tensor y = tanh(up(x)) * weights;
    aux = sum(tanh(gate(weights))) * (1 / Run::kRows);  // read by nobody here; newer than y
    return y;
  }
};
struct Experts : nn::Module {
  nn::Child<Expert> first = child<Expert>("first"), second = child<Expert>("second");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x) { return out(second(first(x))); }
};
inline void kept_in_a_member(Run& run) {
  auto model = run.make<Experts>();
  AdamW optimizer(model->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor y = model(run.rows("x", i));
    Tensor loss = run.loss(y, i) + model->first->aux * 0.5 + model->second->aux;
    if (i == 2) loss = model->first->aux;  // a pass that goes through no output of the unit
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  model->first->aux = model->second->aux = Tensor();
  run.note_weights(model);
}

/// A module that calls itself, as trees do.
struct Tree : nn::Module {
  nn::Child<nn::Linear> leaf = child<nn::Linear>("leaf", 7, 7), join = child<nn::Linear>("join", 14, 7);
  nn::Child<Tree> self() { return nn::Child<Tree>(std::shared_ptr<Tree>(std::shared_ptr<Tree>(), this)); }
  Tensor forward(const Tensor& x, int depth) {
    if (depth == 0) return tanh(leaf(x));
    Tensor left = self()(x, depth - 1), right = self()(x * 0.5, depth - 1);
    Tensor both[] = {left, right};
    return tanh(join(cat(both, 1)));
  }
};
struct Forest : nn::Module {
  nn::Child<Tree> tree = child<Tree>("tree");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x, int depth) { return out(tree(x, depth)); }
};
inline void recursion(Run& run) {
  auto forest = run.make<Forest>();
  auto root = run.make<Tree>({}, wrap_by_size(1'000'000));  // the root itself
  AdamW optimizer(forest->named_parameters(), {.lr = 0.02}), of_root(root->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor loss = run.loss(forest(run.rows("x", i), i % 3), i) + run.loss(root(run.rows("x", i), 2), i);
    loss.backward();
    step(optimizer);
    step(of_root);
    run.note("loss", loss);
  }
  run.note_weights(forest);
  run.note_weights(root);
}

/// Forwards that fail: in the model, caught inside of it, and of a child that is called alone.
struct Fallible : nn::Module {
  struct Layer : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7);
    Tensor forward(const Tensor& x, bool fails) {
      Tensor y = tanh(in(x));
      if (fails) fail("boom");
      return y;
    }
  };
  nn::Child<Layer> a = child<Layer>("a"), b = child<Layer>("b"), c = child<Layer>("c");
  Tensor forward(const Tensor& x, bool inside, bool outside) {
    Tensor h = a(x, false);
    try {
      h = h + b(h, inside);
    } catch (const Error&) {
      h = h * 2.0;
    }
    return c(h, outside);
  }
};
inline void exceptions(Run& run) {
  auto model = run.make<Fallible>();
  AdamW optimizer(model->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 6; ++i) {
    Tensor before = run.loss(model(run.rows("x", i), false, false), i);
    EXPECT_THROW(model(run.rows("x", i), i % 2 == 0, true), Error);
    EXPECT_THROW(model->b(run.rows("x", i), true), Error);
    if (i == 1) {
      NoGrad no_grad;
      EXPECT_THROW(model(run.rows("x", i), true, true), Error);
    }
    Tensor loss = before + run.loss(model(run.rows("x", i), i % 2 == 1, false), i);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// Passes without sync, other weights loaded in between, and a pass with sync.
inline void load_between_passes(Run& run) {
  auto model = run.make<Mlp>();
  SGD optimizer(model->named_parameters(), {.lr = 0.1, .momentum = 0.9});
  StateDict first = run.weights(model);
  for (int i = 0; i < 3; ++i) {
    {
      auto local = run.no_sync(model);
      run.loss(model(run.rows("x", 3 * i)), 3 * i).backward();
      run.load(model, first);
      run.loss(model(run.rows("x", 3 * i + 1)), 3 * i + 1).backward();
    }
    Tensor loss = run.loss(model(run.rows("x", 3 * i + 2)), 3 * i + 2);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// Frozen, tied across units, recomputed, and, where the strategy lets shards wait in host memory, offloaded.
struct Woven : nn::Module {
  nn::Child<Mlp> a = child<Mlp>("a"), b = child<Mlp>("b");
  nn::Child<nn::Linear> first = child<nn::Linear>("first", 7, 7), second = child<nn::Linear>("second", 7, 7);
  Woven() {
    tie(first->weight, second->weight);
    b->a->weight.set_requires_grad(false);
    first->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) { return second(b(tanh(first(a(x))))); }
};
inline void woven(Run& run) {
  Run offloaded = run;
  offloaded.config.move_params_to_cpu = !run.config.keeps_params();
  auto model = offloaded.make<Woven>([](Woven& m) { nn::recompute_by_name(m, {"a", "b", "first"}); });
  AdamW optimizer(model->named_parameters(), {.lr = 0.02}, {{"*.bias", {.weight_decay = 0, .lr_scale = 3}}});
  for (int i = 0; i < 5; ++i) {
    if (i == 2) model->b->a->weight.set_requires_grad(true);
    if (i == 3) model->a->b->bias.set_requires_grad(false);
    Tensor loss = run.loss(model(run.rows("x", i)), i);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// Small trainable factors beside frozen weights, all in one unit each, and merged at the end.
struct LowRank : nn::Module {
  Tensor weight = param("weight", {7, 7}, nn::init::normal(0, 0.3)),
         down = param("down", {2, 7}, nn::init::normal(0, 1)), up = param("up", {7, 2}, nn::init::normal(0, 0.2));
  LowRank() { weight.set_requires_grad(false); }
  Tensor forward(const Tensor& x) {
    return matmul(x, weight, false, true) + matmul(matmul(x, down, false, true), up, false, true);
  }
};
struct Adapted : nn::Module {
  nn::Child<LowRank> a = child<LowRank>("a"), b = child<LowRank>("b");
  Tensor forward(const Tensor& x) { return b(tanh(a(x))); }
};
inline void low_rank(Run& run) {
  auto model = run.make<Adapted>();
  std::vector<NamedParameter> trainable;
  for (const NamedParameter& p : model->named_parameters())
    if (p.tensor.requires_grad()) trainable.push_back(p);
  AdamW optimizer(trainable, {.lr = 0.02});
  for (int i = 0; i < 4; ++i) {
    Tensor loss = run.loss(model(run.rows("x", i)), i);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  StateDict state = run.weights(model);
  for (std::string name : {"a", "b"}) {
    state[name + ".weight"] = state[name + ".weight"] + matmul(state[name + ".up"], state[name + ".down"]);
    state[name + ".up"] = zeros({7, 2}, {DType::f64, kCpu});
  }
  run.load(model, state);
  NoGrad no_grad;
  run.note("merged", run.loss(model(run.rows("x", 0)), 0));
  run.note_weights(model);
}

/// Several models one after the other and through each other, an evaluation and a thrown-away forward in between.
inline void several_models(Run& run) {
  auto encoder = run.make<Mlp>(), decoder = run.make<Mlp>();
  AdamW of_encoder(encoder->named_parameters(), {.lr = 0.02}), of_decoder(decoder->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 3; ++i) {
    auto extra = run.make<Mlp>();
    Tensor code = encoder(run.rows("x", i));
    Tensor first = run.loss(decoder(code), i), second = run.loss(extra(decoder(tanh(code))), i + 1);
    {
      NoGrad no_grad;
      run.note("evaluation", run.loss(decoder(encoder(run.rows("x", i + 7))), i));
    }
    decoder(code.detach());
    (first + second).backward();
    step(of_decoder);
    if (i > 0) step(of_encoder);
    run.note("loss", first + second);
  }
  run.note_weights(encoder);
  run.note_weights(decoder);
}

/// Children are called, the root never; two graphs at once, one gone through twice, a norm and a clip in between.
struct Parts : nn::Module {
  nn::Child<nn::ModuleList<nn::Linear>> layers = child<nn::ModuleList<nn::Linear>>("layers");
  Parts() {
    for (int i = 0; i < 3; ++i) layers->add(7, 7);
  }
};
inline void children_alone(Run& run) {
  auto parts = run.make<Parts>();
  SGD optimizer(parts->named_parameters(), {.lr = 0.05});
  auto through = [&](const Tensor& x) {
    Tensor h = x;
    for (const auto& layer : *parts->layers) h = tanh(layer(h));
    return h;
  };
  for (int i = 0; i < 4; ++i) {
    Tensor first = run.loss(through(run.rows("x", i)), i), second = run.loss(through(run.rows("x", i + 9)), i);
    second.backward();
    first.backward({}, true);
    first.backward();
    run.clip(parts, 0.5);
    step(optimizer);
    run.note("loss", first + second);
  }
  run.note_weights(parts);
}

}  // namespace programs
}  // namespace shardgrad::fsdp::testing
