#pragma once
// More programs like those of user_programs.h: legal, and written seldom enough that each was wrong once.

#include "tests/fsdp/user_programs.h"

namespace shardgrad::fsdp::testing::programs {

/// An embedding that two units use: neither may give it back under the other.
struct Encoder : nn::Module {
  nn::Child<nn::Linear> embed = child<nn::Linear>("embed", 7, 7), out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x) { return tanh(out(tanh(embed(x)))); }
};
struct Decoder : nn::Module {
  nn::Child<nn::Linear> embed, out = child<nn::Linear>("out", 7, 7);
  explicit Decoder(const nn::Child<nn::Linear>& of_encoder) : embed(share("embed", of_encoder)) {}
  Tensor forward(const Tensor& x) { return out(tanh(embed(x))); }
};
struct Translator : nn::Module {
  nn::Child<Encoder> encoder = child<Encoder>("encoder");
  nn::Child<Decoder> decoder = child<Decoder>("decoder", encoder->embed);
  Tensor forward(const Tensor& x) { return decoder(encoder(x)); }
};
inline void shared_by_units(Run& run) {
  auto around = run.make<Translator>(), apart = run.make<Translator>({}, wrap_by_type({"Linear"}));
  AdamW of_around(around->named_parameters(), {.lr = 0.02}), of_apart(apart->named_parameters(), {.lr = 0.02});
  for (int i = 0; i < 3; ++i) {
    Tensor loss = run.loss(around(run.rows("x", i)), i) + run.loss(apart(run.rows("x", i)), i);
    loss.backward();
    step(of_around);
    step(of_apart);
    run.note("loss", loss);
  }
  run.note_weights(around);
  run.note_weights(apart);
}

/// A forward that follows the gradient of its own input, and goes on with the weights of its unit.
struct Energy : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 7, 7), b = child<nn::Linear>("b", 7, 7);
  Tensor scale = param("scale", {7}, nn::init::normal(1, 0.1));
  Energy() {
    a->weight.set_requires_grad(false);
    a->bias.set_requires_grad(false);
  }
  Tensor forward(const Tensor& x) {
    Tensor z = clone(x.detach());
    z.set_requires_grad();
    Tensor energy = sum(tanh(a(z)) * tanh(a(z))), h = b(x);
    energy.backward();
    return (tanh(a(x - z.grad() * 0.1)) + h) * scale;
  }
};
inline void forward_with_a_backward(Run& run) {
  auto model = run.make<Energy>();
  SGD optimizer(model->named_parameters(), {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    Tensor loss = run.loss(model(run.rows("x", i)), i);
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// Each block has a loss of its own, whose backward runs in the block's forward.
struct Greedy : nn::Module {
  struct Block : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7), aux = child<nn::Linear>("aux", 7, 7);
    Tensor scale = param("scale", {7}, nn::init::normal(1, 0.1));
    Tensor forward(const Tensor& x) {
      Tensor h = tanh(in(x.detach())) * scale;
      Run::square(aux(h)).backward();
      return h.detach() * scale;
    }
  };
  nn::Child<Block> a = child<Block>("a"), b = child<Block>("b");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x) { return out(b(a(x))); }
};
inline void local_losses(Run& run) {
  auto blocks = run.make<Greedy>(), layers = run.make<Greedy>({}, wrap_by_type({"Linear"}));
  SGD of_blocks(blocks->named_parameters(), {.lr = 0.1}), of_layers(layers->named_parameters(), {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    Tensor loss = run.loss(blocks(run.rows("x", i)), i) + run.loss(layers(run.rows("x", i)), i);
    loss.backward();
    run.clip(layers, 0.2);
    step(of_blocks);
    step(of_layers);
    run.note("loss", loss);
  }
  run.note_weights(blocks);
  run.note_weights(layers);
}

/// Gradients that are left over from before their parameters were frozen are not in the norm, and clipping leaves them
/// as they are.
inline void frozen_before_clipping(Run& run) {
  auto both = run.make<Both>();
  std::vector<NamedParameter> g = below(*both.module, "g."), d = below(*both.module, "d.");
  SGD of_g(g, {.lr = 0.1}), of_d(d, {.lr = 0.1});
  for (int i = 0; i < 2; ++i) {
    Tensor fake = both->g(run.rows("z", i));
    (Run::square(both->d(run.rows("x", i)) - 1.0) + Run::square(both->d(fake.detach()))).backward();
    of_d.step();
    for (auto& p : d) p.tensor.set_requires_grad(false);
    Run::square(both->d(fake) - 1.0).backward();
    run.clip(both, 0.01);
    step(of_g);
    for (auto& p : d) p.tensor.set_requires_grad(true);
    step(of_d);
  }
  run.note_weights(both);
}

struct Wrapped : nn::Module {
  nn::Child<Mlp> body, head;
  Wrapped() : body(child<Mlp>("body")), head(child<Mlp>("head")) {}
  explicit Wrapped(const nn::Child<Mlp>& given) : body(share("body", given)) {}
  Tensor forward(const Tensor& x) { return head ? head(body(x)) : body(x); }
};
/// Trains twice two steps, the second time in new modules and a new optimizer that load what the first ones saved.
/// `build` makes the model and says which parts of it are sharded.
using Shard = std::function<void(nn::Module&)>;
inline void resume(Run& run, const std::function<nn::Child<Wrapped>(const Shard&)>& build,
                   const std::function<std::vector<NamedParameter>(Wrapped&)>& trained) {
  struct Part {
    nn::Module* module;
    std::shared_ptr<Sharded> sharded;
    StateDict weights = {};
  };
  std::vector<Part> before;
  StateDict state;
  for (int life : {0, 1}) {
    std::vector<Part> parts;
    auto model = build([&](nn::Module& part) { parts.push_back({&part, run.shard(part)}); });
    AdamW optimizer(trained(*model), {.lr = 0.02});
    for (size_t i = 0; i < before.size(); ++i) Run::load(*parts[i].module, parts[i].sharded, before[i].weights);
    if (life == 1) Run::load(optimizer, parts[0].sharded, state);
    for (int i : {0, 1}) {
      Tensor loss = run.loss(model(run.rows("x", i)), i);
      loss.backward();
      step(optimizer);
      run.note("loss", loss);
    }
    for (Part& part : parts) run.note(part.weights = Run::weights(*part.module, part.sharded));
    run.note(state = Run::state_of(optimizer, parts[0].sharded));
    before.clear();
    for (Part& part : parts) before.push_back({nullptr, nullptr, part.weights});
  }
}

/// An optimizer of one child of the sharded model, and of a sharded child of a larger one: names are those that it was
/// given.
inline void optimizer_of_a_child(Run& run) {
  for (bool whole : {true, false})
    resume(
        run,
        [&](const Shard& shard) {
          auto model = nn::make<Wrapped>();
          model->to(DType::f64);
          whole ? shard(*model) : shard(*model->body);
          return model;
        },
        [](Wrapped& model) { return model.body->named_parameters(); });
}

/// A sharded model within another one, whose names the optimizer has; and two of them with one optimizer.
inline void optimizer_of_a_parent(Run& run) {
  auto within = [](const Shard& shard) {
    auto body = nn::make<Mlp>();
    body->to(DType::f64);
    shard(*body);
    return nn::make<Wrapped>(body);
  };
  auto two = [](const Shard& shard) {
    auto model = nn::make<Wrapped>();
    model->to(DType::f64);
    shard(*model->body);
    shard(*model->head);
    return model;
  };
  auto of_body = [](Wrapped& model) { return below(model, "body."); };
  resume(run, within, of_body);
  resume(run, two, [](Wrapped& model) { return model.named_parameters(); });
}

struct Forgiving : nn::Module {
  struct Block : nn::Module {
    nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 7), aux = child<nn::Linear>("aux", 7, 7);
    Tensor scale = param("scale", {7}, nn::init::normal(1, 0.1));
    bool fails = false;
    Tensor forward(const Tensor& x) {
      Tensor h = tanh(in(x)) * scale;
      for (int attempt : {0, 1}) {
        try {
          Run::square(aux(h.detach() * scale)).backward();
        } catch (const Error&) {
          h = h * (1.5 + attempt);
        }
      }
      return tanh(h) * scale;
    }
  };
  nn::Child<Block> a = child<Block>("a"), b = child<Block>("b");
  nn::Child<nn::Linear> out = child<nn::Linear>("out", 7, 7);
  Tensor forward(const Tensor& x) { return out(b(a(x))); }
};
/// The same, where a block's own backward fails and its forward goes on.
inline void failed_local_loss(Run& run) {
  auto model = run.make<Forgiving>();
  SGD optimizer(model->named_parameters(), {.lr = 0.1});
  leaf_of(model->a->scale).add_ready_hook([fails = &model->a->fails] {
    if (*fails) fail("boom");
  });
  for (int i = 0; i < 4; ++i) {
    model->a->fails = i % 2 == 0;
    Tensor loss = run.loss(model(run.rows("x", i)), i);
    model->a->fails = false;
    optimizer.zero_grad();
    loss.backward();
    step(optimizer);
    run.note("loss", loss);
  }
  run.note_weights(model);
}

/// State of a parameter that is frozen where it is saved, and where it is loaded.
inline void frozen_while_saved(Run& run) {
  StateDict weights, state;
  for (int life : {0, 1}) {
    auto model = run.make<Mlp>();
    AdamW optimizer(model->named_parameters(), {.lr = 0.02});
    auto train = [&](int i) {
      Tensor loss = run.loss(model(run.rows("x", i)), i);
      loss.backward();
      step(optimizer);
      run.note("loss", loss);
    };
    if (life == 1) {
      model->a->weight.set_requires_grad(false);
      run.load(model, weights);
      Run::load(optimizer, model.sharded, state);
      model->a->weight.set_requires_grad(true);
    }
    train(0);
    train(1);
    model->a->weight.set_requires_grad(false);
    train(2);
    run.note(weights = run.weights(model));
    run.note(state = Run::state_of(optimizer, model.sharded));
  }
}

}  // namespace shardgrad::fsdp::testing::programs
