// Ranks that do different things, and passes that fail halfway: an error or the right numbers, never a silent mix.

#include <gtest/gtest.h>

#include <mutex>

#include <shardgrad/autograd/launch.h>

#include "tests/fsdp/training.h"

namespace shardgrad::fsdp::testing {
namespace {

/// Two paths through one unit.
struct Fork : nn::Module {
  Tensor left = param("left", {5, 7}, nn::init::normal(0, 0.5)),
         right = param("right", {5, 7}, nn::init::normal(0, 0.5));
  bool both = true;
  Tensor forward(const Tensor& x) {
    Tensor y = matmul(x, left, false, true);
    return both ? y + matmul(x, right, false, true) : y;
  }
};

template <class Model> Tensor loss_number(nn::Child<Model>& model, int number) {
  Tensor x = rows_of_batch("x", number, 0, 4, 7, DType::f32);
  return mse_loss(model(x).to(DType::f32), rows_of_batch("t", number, 0, 4, 5, DType::f32), 20);
}

// What each rank's error says when rank 0 does `different`.
std::vector<std::string> errors_when(const Config& config, int world,
                                     const std::function<void(nn::Child<Fork>&)>& different) {
  std::vector<std::string> errors(static_cast<size_t>(world));
  auto body = [&](dist::ProcessGroup& group) {
    auto model = nn::make<Fork>();
    auto sharded = fully_shard(*model, group, config);
    try {
      loss_number(model, 0).backward();
      if (group.rank() == 0) different(model);
      loss_number(model, 1).backward();
      grad_norm(*sharded);
    } catch (const Error& error) {
      errors[size_t(group.rank())] = error.what();
      throw;
    }
  };
  EXPECT_THROW(dist::run_ranks(world, body), Error);
  return errors;
}

TEST(Failures, I23_RanksThatUseDifferentParametersOfAUnitAreToldSo) {
  for (const Config& config : strategies(4))
    for (const std::string& error : errors_when(config, 4, [](auto& model) { model->both = false; })) {
      EXPECT_TRUE(contains(error, "diverged") && contains(error, "unit 'root'")) << error;
      EXPECT_TRUE(contains(error, "gradients 32") && contains(error, "gradients 33")) << error;
    }
}

/// One of two parameters of one shape, each of which may be alone in its bucket.
struct Either : nn::Module {
  Tensor left = param("left", {5, 7}, nn::init::normal(0, 0.5)),
         right = param("right", {5, 7}, nn::init::normal(0, 0.5));
  bool swapped = false;
  Tensor forward(const Tensor& x) { return matmul(x, swapped ? right : left, false, true); }
};

// As many gradients of as many elements, of one unit: only the names part the ranks.
TEST(Failures, I23_RanksThatUseDifferentPartsOfAUnitAreToldSo) {
  for (Config config :
       {Config{.strategy = Strategy::ddp, .bucket_bytes = 1}, Config{.strategy = Strategy::zero1, .bucket_bytes = 1},
        Config{.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 1}}) {
    std::string what = message_of([&] {
      dist::run_ranks(2, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Either>();
        auto sharded = fully_shard(*model, group, config);
        model->swapped = group.rank() == 1;
        loss_number(model, 0).backward();
        group.barrier();
      });
    });
    EXPECT_TRUE(contains(what, "diverged") && contains(what, "from left on") && contains(what, "from right on"))
        << name_of(config.strategy) << ": " << what;
  }
}

TEST(Failures, I23_ARankThatFreezesOrClearsOneParameterAloneIsToldSo) {
  for (auto alone : {+[](nn::Child<Fork>& model) { model->right.set_requires_grad(false); },
                     +[](nn::Child<Fork>& model) { model->right.zero_grad(); }})
    for (const std::string& error : errors_when({}, 2, alone)) EXPECT_TRUE(contains(error, "gradients 33")) << error;
}

using Weights = std::map<std::string, std::vector<double>>;

/// A Chain whose backward fails on demand: after the last unit was reduced, in the midst of the one before it.
struct Fragile {
  nn::Child<Chain> model = nn::make<Chain>();
  std::shared_ptr<Sharded> sharded;
  optim::SGD optimizer;
  bool armed = false;
  Fragile(dist::ProcessGroup& group, const Config& config)
      : sharded(fully_shard(*model, group, config)), optimizer(model->named_parameters(), {.lr = 0.1}) {
    leaf_of(model->b->bias).add_ready_hook([this] {
      if (armed) fail("boom");
    });
  }
  void failing(const Tensor& loss) {
    armed = true;
    EXPECT_TRUE(contains(message_of([&] { loss.backward(); }), "boom"));
    armed = false;
  }
  Weights good_step() {
    loss_number(model, 1).backward();
    optimizer.step();
    optimizer.zero_grad();
    Weights weights;
    for (auto& [name, tensor] : full_state_dict(*sharded, false)) weights[name] = values_of(tensor);
    EXPECT_EQ(context().ledger().current(Category::full_gradient), 0);
    return weights;
  }
};

void after_a_failure(const std::function<void(Fragile&)>& use) {
  for (int world : {1, 2, 4})
    for (Device device : {kCpu, kAcc})
      for (const Config& config : strategies(world)) {
        SCOPED_TRACE(concat(name_of(config.strategy), " W=", world, " on ", device));
        auto body = [&](dist::ProcessGroup& group) {
          Weights expected = Fragile(group, config).good_step();
          Fragile run(group, config);
          use(run);
          EXPECT_TRUE(contains(message_of([&] { run.optimizer.step(); }), "failed halfway"));
          for (const NamedParameter& parameter : run.model->named_parameters())
            if (parameter.name != "c.bias") parameter.tensor.zero_grad();
          EXPECT_TRUE(contains(message_of([&] { run.optimizer.step(); }), "failed halfway")) << "one is not all";
          run.optimizer.zero_grad();
          EXPECT_EQ(run.good_step(), expected);
        };
        dist::run_ranks(world, body, {.device = device, .threads = 1});
      }
}

TEST(Failures, I33_GradientsOfAFailedBackwardAreRefusedUntilAllAreZeroed) {
  after_a_failure([](Fragile& run) {
    run.failing(loss_number(run.model, 0));
    NoGrad no_grad;
    loss_number(run.model, 0);
    if (run.sharded->config().strategy == Strategy::zero3 && run.sharded->mesh().parts() > 1) {
      EXPECT_EQ(context().ledger().current(Category::full_gradient), 0) << "the next pass gives up what was sent";
    }
  });
}

// At once, and also to who would update only units whose gradients were complete.
TEST(Failures, I33_NoGradientOfAFailedBackwardIsShownOrUsed) {
  after_a_failure([](Fragile& run) {
    std::vector<NamedParameter> head;
    for (const NamedParameter& p : run.model->named_parameters())
      if (p.name.starts_with("c.")) head.push_back(p);
    optim::SGD of_head(head, {.lr = 0.1});
    loss_number(run.model, 0).backward();
    run.failing(loss_number(run.model, 0));
    EXPECT_TRUE(contains(message_of([&] { of_head.step(); }), "failed halfway"));
    EXPECT_TRUE(contains(message_of([&] { run.optimizer.step(); }), "failed halfway")) << "and not NoSync";
    EXPECT_TRUE(contains(message_of([&] { clip_grad_norm(*run.sharded, 1); }), "failed halfway"));
    if (run.sharded->mesh().parts() == 1) {
      EXPECT_TRUE(contains(message_of([&] { run.model->c->bias.grad(); }), "failed halfway"));
    }
  });
}

TEST(Failures, I33_AfterAFailedBackwardAnotherOneNeedsNoForward) {
  after_a_failure([](Fragile& run) {
    Tensor first = loss_number(run.model, 0), second = loss_number(run.model, 0);
    run.failing(first);
    second.backward();
    EXPECT_EQ(context().ledger().current(Category::gathered_parameter), 0);
  });
}

TEST(Failures, I33_ZeroGradMayComeRightAfterAFailedBackward) {
  for (Device device : {kCpu, kAcc})
    for (const Config& config : strategies(2)) {
      SCOPED_TRACE(concat(name_of(config.strategy), " on ", device));
      auto body = [&](dist::ProcessGroup& group) {
        Weights expected = Fragile(group, config).good_step();
        Fragile run(group, config);
        run.failing(loss_number(run.model, 0));
        run.optimizer.zero_grad();
        EXPECT_EQ(context().ledger().current(Category::gradient_shard), 0);
        EXPECT_TRUE(contains(message_of([&] { run.optimizer.step(); }), "no parameter has a gradient"));
        EXPECT_EQ(run.good_step(), expected);
      };
      dist::run_ranks(2, body, {.device = device, .threads = 1});
    }
}

// What a program adds to the model's loss is newer than all units: its gradients are written before backward comes to
// one.
TEST(Failures, I33_APassThatFailsBeforeItComesToAUnitIsNotSteppedOn) {
  for (int world : {1, 2})
    for (const Config& config : strategies(world)) {
      SCOPED_TRACE(concat(name_of(config.strategy), " W=", world));
      dist::run_ranks(world, [&](dist::ProcessGroup& group) {
        auto model = nn::make<Fork>();
        auto sharded = fully_shard(*model, group, config);
        optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
        auto penalised = [&](const Tensor& more) {
          Tensor loss = loss_number(model, 0) + more;
          return loss + sum(model->left * model->left);
        };
        auto gradients = [&] {
          penalised(zeros({})).backward();
          std::vector<std::vector<double>> values;
          for (const FlatParam* flat : sharded->flats()) values.push_back(values_of(flat->grad()));
          optimizer.zero_grad();
          return values;
        };
        auto expected = gradients();
        Tensor breaks = zeros({});
        breaks.set_requires_grad();
        leaf_of(breaks).add_ready_hook([] { fail("boom"); });
        EXPECT_TRUE(contains(message_of([&] { penalised(breaks).backward(); }), "boom"));
        penalised(zeros({})).backward();
        EXPECT_TRUE(contains(message_of([&] { optimizer.step(); }), "failed halfway"));
        optimizer.zero_grad();
        EXPECT_EQ(gradients(), expected);
      });
    }
}

void fail_in_forward(Fragile& run) {
  run.model->b->add_forward_pre_hook([armed = true](nn::Module&, std::span<Tensor>) mutable {
    if (std::exchange(armed, false)) fail("boom");
  });
  EXPECT_TRUE(contains(message_of([&] { loss_number(run.model, 0); }), "boom"));
}
void fail_in_backward(Fragile& run) { run.failing(loss_number(run.model, 0)); }

// What training gives when `next` comes after a step whose gradients are kept, and when `failing` comes between the
// two: a pass that fails while the unit after the one that fails is gathered ahead.
void after_a_failed_pass(void (*failing)(Fragile&), const std::function<void(Fragile&)>& next) {
  std::vector<Config> configs = strategies(2);
  configs.push_back({.move_params_to_cpu = true});
  configs.push_back({.strategy = Strategy::zero1, .bucket_bytes = 0, .param_dtype = DType::bf16});
  for (Device device : {kCpu, kAcc})
    for (const Config& config : configs) {
      SCOPED_TRACE(concat(name_of(config.strategy), " on ", device));
      auto body = [&](dist::ProcessGroup& group) {
        std::vector<Weights> weights;
        for (bool fails : {false, true}) {
          Fragile run(group, config);
          loss_number(run.model, 0).backward();
          run.optimizer.step();
          if (fails) {
            failing(run);
            auto gathering = [](const auto& unit) { return unit->state() == UnitState::gathering; };
            bool ahead = std::ranges::any_of(run.sharded->units(), gathering);
            EXPECT_EQ(ahead, run.sharded->mesh().parts() > 1 &&
                                 (failing == fail_in_forward || config.reshards_after_forward()));
          }
          next(run);
          run.optimizer.zero_grad();
          weights.push_back(run.good_step());
        }
        EXPECT_EQ(weights[0], weights[1]);
      };
      dist::VirtualOptions options{.device = device, .threads = 1};
      options.group.delay = dist::fixed_delay(std::chrono::milliseconds(1));
      dist::run_ranks(2, body, options);
    }
}

TEST(Failures, TheOptimizerMayStepAfterAForwardThatFailed) {
  after_a_failed_pass(fail_in_forward, [](Fragile& run) { run.optimizer.step(); });
}

TEST(Failures, StateMayBeReadAndLoadedAfterAPassThatFailed) {
  for (auto failing : {fail_in_forward, fail_in_backward})
    after_a_failed_pass(failing, [](Fragile& run) {
      NoGrad no_grad;
      auto state = full_state_dict(*run.sharded, false);
      for (auto& [name, tensor] : state) tensor = tensor * 0.5;
      load_full_state_dict(*run.sharded, state);
    });
}

TEST(Failures, ParametersMayBeEditedAfterAPassThatFailed) {
  for (auto failing : {fail_in_forward, fail_in_backward})
    after_a_failed_pass(failing, [](Fragile& run) {
      SummonFullParams scope(*run.sharded, true);
      NoGrad no_grad;
      for (const NamedParameter& parameter : run.model->named_parameters())
        copy_into(parameter.tensor, parameter.tensor * 0.5);
    });
}

/// A unit of two flat parameters, one of which is frozen.
struct TwoFlats : nn::Module {
  Tensor trained = param("trained", {40}, nn::init::ones()), frozen = param("frozen", {40}, nn::init::ones());
  TwoFlats() { frozen.set_requires_grad(false); }
  Tensor forward(const Tensor& x) { return sum(trained) + sum(frozen) + sum(x); }
};
/// No memory is left when the second of them is converted for its gather.
struct SecondConversionFails final : LaunchTrial {
  int left = 1;
  void launched(const Call& call) override {
    if (left-- == 0) throw OutOfMemory("no memory left");
    call.run(false);
  }
};
struct AroundTwoFlats : nn::Module {
  nn::Child<TwoFlats> unit = child<TwoFlats>("unit");
  bool fails = false, again = false;
  Tensor forward(const Tensor& x) {
    if (!fails) return unit(x);
    try {
      SecondConversionFails scope;
      return unit(x);
    } catch (const OutOfMemory&) {
      EXPECT_EQ(bytes(Category::gathered_parameter), 0);
      if (!again) throw;
    }
    return unit(x);
  }
};

// The gather of its first flat parameter was never sent.
TEST(Failures, AUnitForWhichNoMemoryIsLeftIsNeitherReadNorSavedHalfGathered) {
  for (Device device : {kCpu, kAcc})
    for (bool again : {true, false}) {
      auto body = [&](dist::ProcessGroup& group) {
        auto model = nn::make<AroundTwoFlats>();
        auto sharded = fully_shard(*model, group, {.param_dtype = DType::bf16});
        Tensor x = zeros({1}).to(DType::bf16);
        NoGrad no_grad;
        model->fails = true;
        model->again = again;
        if (again) {
          EXPECT_EQ(values_of(model(x))[0], 80);
        } else {
          EXPECT_THROW(model(x), OutOfMemory);
        }
        model->fails = false;
        for (auto& [name, tensor] : full_state_dict(*sharded, false))
          EXPECT_EQ(values_of(tensor), std::vector<double>(40, 1)) << name;
        EXPECT_EQ(values_of(model(x))[0], 80);
      };
      dist::run_ranks(2, body, {.device = device, .threads = 1});
    }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
