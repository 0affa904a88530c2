#include <barrier>
#include <thread>

#include <gtest/gtest.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/core/context.h>
#include <shardgrad/nn/nn.h>

namespace shardgrad {
namespace {

using Names = std::vector<std::string>;

Names names_of(const std::vector<NamedParameter>& list) {
  Names names;
  for (const NamedParameter& each : list) names.push_back(each.name);
  return names;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Block : nn::Module {
  nn::Child<nn::Linear> up = child<nn::Linear>("up", 4, 8);
  nn::Child<nn::Linear> down = child<nn::Linear>("down", 8, 4);
  Tensor forward(const Tensor& x) { return down(relu(up(x))); }
};

struct Stack : nn::Module {
  Tensor scale = param("scale", {4}, nn::init::ones());
  nn::Child<nn::ModuleList<Block>> layers = child<nn::ModuleList<Block>>("layers");
  nn::Child<nn::Linear> head = child<nn::Linear>("head", 4, 3, false);
  Stack() {
    for (int i = 0; i < 2; ++i) layers->add();
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x * scale;
    for (const auto& layer : *layers) y = layer(y);
    return head(y);
  }
};

// --- names ---------------------------------------------------------------------------------------------------------

TEST(Module, NamesFollowRegistrationFromTheRoot) {
  Context context;
  auto model = nn::make<Stack>();
  EXPECT_EQ(
      names_of(model->named_parameters()),
      (Names{"scale", "layers.0.up.weight", "layers.0.up.bias", "layers.0.down.weight", "layers.0.down.bias",
             "layers.1.up.weight", "layers.1.up.bias", "layers.1.down.weight", "layers.1.down.bias", "head.weight"}));
  Names tensors;
  for (const Tensor& parameter : model->parameters()) tensors.push_back(parameter.name());
  EXPECT_EQ(tensors, names_of(model->named_parameters()));
  EXPECT_EQ((*model->layers)[1]->up->weight.name(), "layers.1.up.weight");
  EXPECT_EQ((*model->layers)[1]->up->full_name(), "layers.1.up");
  EXPECT_EQ(names_of((*model->layers)[1]->named_parameters()),
            (Names{"up.weight", "up.bias", "down.weight", "down.bias"}));
}

TEST(Module, WalksModulesBeforeTheirChildrenAndKnowsTheirTypes) {
  Context context;
  auto model = nn::make<Stack>();
  Names names, types;
  for (auto& [name, module] : model->named_modules()) {
    names.push_back(name);
    types.push_back(module->type_name());
  }
  EXPECT_EQ(names, (Names{"", "layers", "layers.0", "layers.0.up", "layers.0.down", "layers.1", "layers.1.up",
                          "layers.1.down", "head"}));
  EXPECT_EQ(types[0], "Stack");
  EXPECT_EQ(types[2], "Block");
  EXPECT_EQ(types[3], "Linear");
}

TEST(Module, RefusesNamesThatAreTakenOrHaveDots) {
  struct Twice : nn::Module {
    Twice() {
      param("w", {1}, nn::init::zeros());
      buffer("w", {1});
    }
  };
  struct Dotted : nn::Module {
    Tensor w = param("a.b", {1}, nn::init::zeros());
  };
  Context context;
  EXPECT_EQ(error_of([] { nn::make<Twice>(); }), "Twice: there are two things named 'w'; rename one");
  EXPECT_EQ(error_of([] { nn::make<Dotted>(); }),
            "Dotted: 'a.b' cannot be a name within a module; use a word without dots");
}

// --- signatures and hooks ------------------------------------------------------------------------------------------

struct TwoIn : nn::Module {
  nn::Child<nn::Linear> left = child<nn::Linear>("left", 4, 2);
  nn::Child<nn::Linear> right = child<nn::Linear>("right", 3, 2);
  std::map<std::string, Tensor> forward(const Tensor& a, const Tensor& b, bool add) {
    Tensor l = left(a), r = right(b);
    return {{"left", l}, {"mixed", add ? l + r : l - r}};
  }
};

struct TwoOut : nn::Module {
  nn::Child<nn::Linear> fc = child<nn::Linear>("fc", 4, 4);
  std::pair<Tensor, Tensor> forward(const Tensor& x) { return {fc(x), x * 2.0}; }
};

TEST(Module, HooksSeeEveryTensorOfArgumentsAndResults) {
  Context context;
  auto model = nn::make<TwoIn>();
  std::vector<Shape> in;
  std::vector<std::string> nodes;
  model->add_forward_pre_hook([&](nn::Module& module, std::span<Tensor> inputs) {
    EXPECT_EQ(&module, &model.module());
    for (const Tensor& each : inputs) in.push_back(each.shape());
  });
  model->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) {
    for (const Tensor& each : outputs) nodes.push_back(node_of(each)->name());
  });
  auto result = model(ones({5, 4}), ones({5, 3}), true);
  EXPECT_EQ(in, (std::vector<Shape>{{5, 4}, {5, 3}}));
  EXPECT_EQ(nodes, (Names{"linear", "add"}));
  EXPECT_EQ(result.at("mixed").shape(), Shape({5, 2}));
}

TEST(Module, HooksMayAddHooksWhichRunFromTheNextCallOn) {
  Context context;
  auto model = nn::make<TwoOut>();
  int late = 0;
  bool added = false;
  model->fc->add_forward_hook([&](nn::Module& module, std::span<const Tensor>) {
    if (std::exchange(added, true)) return;
    for (int i = 0; i < 100; ++i) module.add_forward_hook([&](nn::Module&, std::span<const Tensor>) { ++late; });
    EXPECT_FALSE(std::string(module.full_name()).empty()) << "this hook is still where it was";
  });
  model(ones({1, 4}));
  EXPECT_EQ(late, 0);
  model(ones({1, 4}));
  EXPECT_EQ(late, 100);
}

TEST(Module, HooksOnASubmoduleRunForEveryCallOfItsHandle) {
  Context context;
  auto model = nn::make<TwoOut>();
  int before = 0, after = 0;
  model->fc->add_forward_pre_hook([&](nn::Module&, std::span<Tensor>) { ++before; });
  model->fc->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) { after += int(outputs.size()); });
  auto [y, twice] = model(ones({1, 4}));
  model(y);
  EXPECT_EQ(before, 2);
  EXPECT_EQ(after, 2);
  EXPECT_EQ(twice.to_vector<float>()[0], 2);
}

TEST(Module, APreHookMayReplaceTensorsWithoutTouchingTheCallers) {
  Context context;
  auto model = nn::make<TwoOut>();
  model->add_forward_pre_hook([](nn::Module&, std::span<Tensor> inputs) { inputs[0] = inputs[0] * 10.0; });
  Tensor x = ones({1, 4});
  EXPECT_EQ(model(x).second.to_vector<float>()[0], 20);
  EXPECT_EQ(x.to_vector<float>()[0], 1);
}

struct Passing : nn::Module {
  Tensor forward(const Tensor& x) { return x * 1.0; }
};

TEST(Module, HooksMayReplaceWhatGoesThroughAModuleOfOneTensor) {
  Context context;
  auto model = nn::make<Passing>();
  model->add_forward_pre_hook([](nn::Module&, std::span<Tensor> inputs) { inputs[0] = inputs[0] * 10.0; });
  model->add_forward_hook([](nn::Module&, std::span<Tensor> outputs) { outputs[0] = outputs[0] + 1.0; });
  Tensor x = ones({1, 4});
  for (bool again : {false, true}) {
    model->set_recompute(again ? std::optional(RecomputeOptions()) : std::nullopt);
    EXPECT_EQ(model(x).to_vector<float>()[0], 11);
    EXPECT_EQ(x.to_vector<float>()[0], 1);
    EXPECT_EQ(model(x * 2.0).to_vector<float>()[0], 21) << "an argument that is moved";
  }
}

// Frees what it was given before it returns.
struct Forgetful : nn::Module {
  int64_t bytes_left = 0;
  Tensor forward(Tensor x) {
    x = sum(x);
    bytes_left = context().ledger().current();
    return x;
  }
};

TEST(Module, AnArgumentThatIsMovedIntoACallIsForwardsToFree) {
  Context context;
  auto model = nn::make<Forgetful>();
  NoGrad no_grad;
  Tensor kept = ones({1000});
  model(kept);
  EXPECT_EQ(model->bytes_left, 4004);
  model(std::move(kept));
  EXPECT_EQ(model->bytes_left, 4);
}

TEST(Module, AHookOnAnOutputsNodeRunsBeforeTheModulesBackward) {
  Context context;
  auto model = nn::make<TwoOut>();
  Names order;
  model->fc->add_forward_hook([&](nn::Module&, std::span<const Tensor> outputs) {
    node_of(outputs[0])->add_pre_hook([&] { order.push_back("before backward"); });
  });
  auto [y, twice] = model(ones({1, 4}));
  leaf_of(model->fc->weight).add_ready_hook([&] { order.push_back("gradient ready"); });
  sum(y).backward();
  EXPECT_EQ(order, (Names{"before backward", "gradient ready"}));
}

TEST(Module, HooksOfAParameterStayWhenItsDTypeChanges) {
  Context context;
  auto model = nn::make<nn::Linear>(2, 2);
  model->materialize();
  std::vector<DType> seen;
  int ready = 0;
  model->weight.register_hook([&](const Tensor& gradient) {
    seen.push_back(gradient.dtype());
    return gradient * 0;
  });
  leaf_of(model->weight).add_ready_hook([&] { ++ready; });
  sum(model(ones({1, 2}))).backward();
  model->to(DType::f64);
  sum(model(ones({1, 2}, DType::f64))).backward();
  EXPECT_EQ(seen, (std::vector{DType::f32, DType::f64}));
  EXPECT_EQ(ready, 2);
  EXPECT_EQ(model->weight.grad().to_vector<double>(), std::vector<double>(4, 0));
}

TEST(Module, AnEmptyHandleSaysSo) {
  nn::Child<nn::ReLU> empty;
  EXPECT_EQ(error_of([&] { empty->eval(); }),
            "use of an empty module handle; make one with child<M>(…) or nn::make<M>(…)");
}

// --- shared modules and tied parameters ----------------------------------------------------------------------------

struct Siamese : nn::Module {
  nn::Child<nn::Linear> encoder = child<nn::Linear>("encoder", 4, 4);
  nn::Child<nn::Linear> again = share("again", encoder);
  Tensor forward(const Tensor& a, const Tensor& b) { return encoder(a) - again(b); }
};

struct TiedModel : nn::Module {
  nn::Child<nn::Embedding> embed = child<nn::Embedding>("embed", 7, 4);
  nn::Child<nn::Linear> head = child<nn::Linear>("head", 4, 7, false);
  TiedModel() { tie(embed->weight, head->weight); }
  Tensor forward(const Tensor& ids) { return head(embed(ids)); }
};

TEST(Module, ASharedModuleIsSeenOnceUnderItsFirstName) {
  Context context;
  auto model = nn::make<Siamese>();
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"encoder.weight", "encoder.bias"}));
  EXPECT_EQ(model->named_modules().size(), 2u);
  EXPECT_EQ(model->aliases().at("again.weight"), "encoder.weight");
  Tensor x = ones({2, 4});
  EXPECT_EQ(model(x, x).to_vector<float>(), std::vector<float>(8, 0));
}

TEST(Module, TiedParametersAreOneParameterWithOneGradient) {
  Context context;
  auto model = nn::make<TiedModel>();
  EXPECT_EQ(names_of(model->named_parameters()), Names{"embed.weight"});
  EXPECT_EQ(model->aliases(), (std::map<std::string, std::string>{{"head.weight", "embed.weight"}}));
  EXPECT_TRUE(model->head->weight.same_as(model->embed->weight));
  Tensor ids = from_vector<int64_t>({3}, {1});
  sum(model(ids)).backward();
  // d/dw of Σ_j w_j · w_3: every row gets w_3, row 3 also Σ_j w_j.
  std::vector<float> w = model->embed->weight.to_vector<float>(), g = model->embed->weight.grad().to_vector<float>();
  for (int c = 0; c < 4; ++c) {
    float column = 0;
    for (int row = 0; row < 7; ++row) column += w[size_t(row * 4 + c)];
    EXPECT_FLOAT_EQ(g[size_t(c)], w[size_t(12 + c)]);
    EXPECT_NEAR(g[size_t(12 + c)], w[size_t(12 + c)] + column, 1e-5);
  }
}

TEST(Module, TieRefusesStrangersAndOtherShapes) {
  struct Wrong : nn::Module {
    nn::Child<nn::Linear> a = child<nn::Linear>("a", 4, 2);
    nn::Child<nn::Linear> b = child<nn::Linear>("b", 4, 3);
    Wrong(bool stranger) {
      Tensor other = ones({2, 4});
      tie(a->weight, stranger ? other : b->weight);
    }
  };
  Context context;
  EXPECT_EQ(error_of([] { nn::make<Wrong>(false); }), "Wrong: tie: 'weight' has shape [2, 4], 'weight' has [3, 4]");
  EXPECT_NE(error_of([] { nn::make<Wrong>(true); }).find("is not a parameter of this module"), std::string::npos);
}

TEST(Module, AParameterMayBecomeTheSameAsOneOfAnotherTree) {
  Context context;
  auto table = nn::make<nn::Embedding>(7, 4);
  auto head = nn::make<nn::Linear>(4, 7, false);
  const std::shared_ptr<nn::Parameter>& first = table->own_parameters()[0].object;
  head->tie(first, head->weight);
  EXPECT_TRUE(head->weight.same_as(table->weight) && head->own_parameters()[0].object == first);
  head(ones({1, 4}));  // fills the one that there is
  EXPECT_EQ(head->weight.to_vector<float>(), table->weight.to_vector<float>());
  Tensor stranger = ones({7, 4});
  EXPECT_EQ(error_of([&] { head->tie(first, stranger); }), "Linear: tie: '' is not a parameter of this model");
}

TEST(Module, AParameterTakesTheMemoryOfATensorOfAnotherDtype) {
  Context context;
  auto layer = nn::make<nn::Linear>(2, 2, false);
  layer->materialize();
  Tensor values = full({2, 2}, 0.5, DType::f64);
  layer->own_parameters()[0].object->take(values);
  EXPECT_EQ(layer->weight.storage(), values.storage());
  sum(layer(ones({1, 2}).to(DType::f64))).backward();
  EXPECT_EQ(layer->weight.grad().to_vector<double>(), std::vector<double>(4, 1));
}

TEST(Module, AModuleMayHaveThePartsOfAnother) {
  struct Second : nn::Module {
    explicit Second(const nn::Module& other) { share_parts(other); }
  };
  Context context;
  auto model = nn::make<TiedModel>();
  auto second = nn::make<Second>(*model);
  EXPECT_EQ(names_of(second->named_parameters()), names_of(model->named_parameters()));
  EXPECT_TRUE(second->named_parameters()[0].tensor.same_as(model->embed->weight));
}

TEST(Module, AParameterGivesWayToAnotherAndSaysSo) {
  Context context;
  auto model = nn::make<Block>();
  nn::Linear& up = *model->up;
  std::shared_ptr<nn::Parameter> before = up.own_parameters()[0].object, tied = model->down->own_parameters()[1].object;
  auto other = std::make_shared<nn::Parameter>(nn::Parameter{.tensor = ones({8, 4}), .initialised = true});
  up.set_parameter("weight", other);
  EXPECT_TRUE(before->replaced);
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"up.weight", "up.bias", "down.weight", "down.bias"}));
  EXPECT_TRUE(model->named_parameters()[0].tensor.same_as(other->tensor));
  up.set_parameter("weight", before);
  EXPECT_TRUE(other->replaced && !before->replaced);
  up.set_parameter("bias", tied);
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"up.weight", "up.bias", "down.weight"}));
  up.set_parameter("bias", nullptr);
  EXPECT_FALSE(tied->replaced) << "for it is the other module's as before";
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"up.weight", "down.weight", "down.bias"}));
  model->seal();
  EXPECT_NE(error_of([&] { up.set_parameter("weight", other); }).find("build the whole model first"),
            std::string::npos);
}

TEST(Module, ModulesThatWereDroppedAreRootsOfTheirOwn) {
  Context context;
  auto model = nn::make<Block>();
  nn::Child<nn::Linear> up = model->up;
  model->drop_children();
  EXPECT_TRUE(model->children().empty());
  EXPECT_EQ(up->parent(), nullptr);
  model->seal();
  EXPECT_NE(error_of([&] { model->drop_children(); }).find("build the whole model first"), std::string::npos);
}

TEST(Module, CannotContainItself) {
  struct Ring : nn::Module {
    void close(const nn::Child<Ring>& self) { share("self", self); }
  };
  Context context;
  auto ring = nn::make<Ring>();
  EXPECT_EQ(error_of([&] { ring->close(ring); }), "Ring: 'self' would contain itself");
  auto within = nn::make<Ring>();
  ring->close(within);
  EXPECT_EQ(error_of([&] { within->close(ring); }), "Ring: 'self' would contain itself") << "further down, too";
}

// --- values --------------------------------------------------------------------------------------------------------

TEST(Module, IsBuiltWithoutMemoryAndFilledByTheFirstCall) {
  Context context;
  auto model = nn::make<Stack>();
  EXPECT_EQ(context.ledger().peak(), 0);
  EXPECT_EQ(
      error_of([&] { model->head->weight.to_vector<float>(); }),
      "'head.weight' is not in memory: it has no values yet; call the model once, call materialize(), or shard it");
  model(ones({2, 4}));
  int64_t numel = 0;
  for (const NamedParameter& each : model->named_parameters()) numel += each.tensor.numel();
  EXPECT_EQ(context.ledger().current(Category::parameter_shard), numel * 4);
}

// So many that threads which fill them at once meet.
struct ManyParts : nn::Module {
  ManyParts() {
    for (int i = 0; i < 1000; ++i) param(std::to_string(i), {4}, nn::init::ones());
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (const Tensor& each : parameters()) y = y + each;
    return y;
  }
};

TEST(Module, IsFilledOnceWhereTwoThreadsMakeTheFirstCallAtOnce) {
  Context context({.threads = 1});
  for (int round = 0; round < 20; ++round) {
    auto model = nn::make<ManyParts>();
    std::barrier start(2);
    std::string errors[2];
    std::vector<float> results[2];
    auto call = [&](int number) {
      ContextScope scope(context);
      Tensor x = zeros({4});
      start.arrive_and_wait();
      errors[number] = error_of([&] { results[number] = model(x).to_vector<float>(); });
    };
    std::thread other(call, 1);
    call(0);
    other.join();
    for (const std::string& error : errors) ASSERT_EQ(error, "no error");
    for (const std::vector<float>& result : results) ASSERT_EQ(result, std::vector<float>(4, 1000));
  }
}

TEST(Module, DeferredValuesEqualThoseFilledInPieces) {
  Context context;
  auto model = nn::make<Stack>(), pieces = nn::make<Stack>();
  model->materialize();
  nn::Module& block = *pieces->layers->children()[1].object->children()[0].object;
  const nn::Parameter& weight = *block.own_parameters()[0].object;
  EXPECT_EQ(weight.full_name, "layers.1.up.weight");
  std::vector<float> whole = (*model->layers)[1]->up->weight.to_vector<float>(), joined;
  for (int64_t begin = 0, end; begin < 32; begin = end) {
    end = std::min<int64_t>(begin + 5, 32);
    Tensor part = empty({end - begin});
    weight.fill_range(begin, part);
    for (float value : part.to_vector<float>()) joined.push_back(value);
  }
  EXPECT_EQ(whole, joined);
}

TEST(Module, ASubmoduleFilledByItselfHasTheValuesOfTheWholeModel) {
  Context context;
  auto model = nn::make<Stack>(), part = nn::make<Stack>();
  model->materialize();
  (*part->layers)[1]->up->materialize();
  EXPECT_EQ((*model->layers)[1]->up->weight.to_vector<float>(), (*part->layers)[1]->up->weight.to_vector<float>());
}

TEST(Module, AModuleMadeByItselfMayBecomePartOfAModel) {
  struct Uses : nn::Module {
    nn::Child<nn::Linear> fc;
    explicit Uses(const nn::Child<nn::Linear>& made) : fc(share("fc", made)) {}
    Tensor forward(const Tensor& x) { return fc(x); }
  };
  Context context;
  auto model = nn::make<Uses>(nn::make<nn::Linear>(2, 2));
  EXPECT_EQ(names_of(model->named_parameters()), (Names{"fc.weight", "fc.bias"}));
  model(ones({1, 2}));
  EXPECT_EQ(model->fc->weight.name(), "fc.weight");
}

TEST(Module, ValuesDependOnSeedAndNameOnly) {
  auto weights = [](uint64_t seed) {
    Context context({.seed = seed});
    auto model = nn::make<Stack>();
    model->materialize();
    return (*model->layers)[0]->up->weight.to_vector<float>();
  };
  EXPECT_EQ(weights(1), weights(1));
  EXPECT_NE(weights(1), weights(2));
  Context context;
  auto model = nn::make<Stack>();
  model->materialize();
  EXPECT_NE((*model->layers)[0]->up->weight.to_vector<float>(), (*model->layers)[1]->up->weight.to_vector<float>());
}

TEST(Module, MovesToADtypeAndADeviceWithItsValuesAndGradients) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(DType::f64);
  Tensor y = model(ones({2, 4}, DType::f64));
  EXPECT_EQ(y.dtype(), DType::f64);
  sum(y).backward();
  std::map<std::string, std::vector<double>> values, gradients;
  for (auto& [name, tensor] : model->named_parameters()) {
    values[name] = tensor.detach().to_vector<double>();
    gradients[name] = tensor.grad().to_vector<double>();
  }
  auto wide = [](const Tensor& t) { return t.detach().to(DType::f64).to(kCpu).to_vector<double>(); };
  for (auto [device, dtype, error] :
       {std::tuple(kAcc, DType::f64, 0.0), {kAcc, DType::f32, 1e-6}, {kCpu, DType::f32, 1e-6}}) {
    model->to(device);
    model->to(dtype);
    for (auto& [name, tensor] : model->named_parameters()) {
      EXPECT_EQ(tensor.device(), device);
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(tensor.grad().dtype(), dtype);
      for (size_t i = 0; i < values[name].size(); ++i) {
        EXPECT_NEAR(wide(tensor)[i], values[name][i], error) << name;
        EXPECT_NEAR(wide(tensor.grad())[i], gradients[name][i], 10 * error) << name;
      }
    }
    Tensor again = model(ones({2, 4}, {dtype, device}));
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(wide(again)[i], wide(y)[i], 10 * error);
    sum(again).backward();  // into the new storage
    for (auto& [name, tensor] : model->named_parameters()) gradients[name] = wide(tensor.grad());
  }
}

TEST(Module, AGraphOfBeforeAMoveIsRefused) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f64}) {
    auto model = nn::make<nn::Linear>(64, 64);
    Tensor y = model(randn({2, 64}, "x").set_requires_grad());
    model->to(dtype);
    EXPECT_NE(error_of([&] { sum(y).backward(); }).find("changed in place"), std::string::npos) << dtype;
  }
}

TEST(Module, BuffersMoveWithTheirValuesAndStatisticsOfA16BitModelStayInF32) {
  Context context;
  auto norm = nn::make<nn::BatchNorm1d>(3);
  norm(randn({8, 3}, "x"));
  std::vector<float> mean = norm->running_mean.to_vector<float>();
  norm->to(DType::bf16);
  norm->to(kAcc);
  EXPECT_EQ(norm->weight.dtype(), DType::bf16);
  EXPECT_EQ(norm->running_mean.dtype(), DType::f32);
  EXPECT_EQ(norm->running_mean.device(), kAcc);
  EXPECT_EQ(norm->running_mean.to(kCpu).to_vector<float>(), mean);
}

TEST(Module, OtherBuffersAreConvertedUnlessTheyAreOfIntegers) {
  struct Scaled : nn::Module {
    nn::Child<nn::BatchNorm1d> norm = child<nn::BatchNorm1d>("norm", 3);
    Tensor scale = buffer("scale", {3}, DType::f32, 0.75), seen = buffer("seen", {1}, DType::i64, 5);
    Tensor forward(const Tensor& x) { return norm(x) * scale; }
  };
  Context context;
  auto model = nn::make<Scaled>();
  model->materialize();
  model->to(DType::f16);
  EXPECT_EQ(model->scale.dtype(), DType::f16);
  EXPECT_EQ(model->scale.to(DType::f32).to_vector<float>(), std::vector<float>(3, 0.75f));
  EXPECT_EQ(model->seen.dtype(), DType::i64);
  EXPECT_EQ(model->norm->running_mean.dtype(), DType::f32);
  EXPECT_EQ(model(randn({4, 3}, "x", DType::f16)).dtype(), DType::f16);
  model->to(DType::f64);
  EXPECT_EQ(model->norm->running_var.dtype(), DType::f64);
}

TEST(Module, AModelWithoutValuesOnMetaCannotGetThemFromThere) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(kMeta);
  model(ones({2, 4}, kMeta));
  EXPECT_NE(error_of([&] { model->to(kCpu); }).find("has no values to copy"), std::string::npos);
}

TEST(Module, MovesToADevice) {
  Context context;
  auto model = nn::make<Stack>();
  model->to(kMeta);
  EXPECT_EQ(model(ones({2, 4}, kMeta)).shape(), Shape({2, 3}));
}

TEST(Module, TrainAndEvalReachEveryModule) {
  Context context;
  auto model = nn::make<Stack>();
  model->eval();
  for (auto& [name, module] : model->named_modules()) EXPECT_FALSE(module->training()) << name;
  model->train();
  for (auto& [name, module] : model->named_modules()) EXPECT_TRUE(module->training()) << name;
}

TEST(Module, StateDictCarriesAModelToAnotherOne) {
  Context context({.seed = 1});
  auto model = nn::make<nn::Sequential>();
  model->add<nn::Linear>(3, 4).add<nn::BatchNorm1d>(4).add<nn::ReLU>().add_named<nn::Linear>("head", 4, 2);
  Tensor x = randn({6, 3}, "x");
  model(x);
  model->eval();
  Context other_context({.seed = 2});
  auto other = nn::make<nn::Sequential>();
  other->add<nn::Linear>(3, 4).add<nn::BatchNorm1d>(4).add<nn::ReLU>().add_named<nn::Linear>("head", 4, 2);
  other->eval();
  nn::StateDict state = model->state_dict();
  EXPECT_EQ(state.size(), 8u);
  EXPECT_TRUE(state.contains("1.running_var"));
  EXPECT_NE(model(x).to_vector<float>(), other(x).to_vector<float>());
  other->load_state_dict(state);
  EXPECT_EQ(model(x).to_vector<float>(), other(x).to_vector<float>());
}

TEST(Module, AWrongStateDictIsRefusedWithEveryFaultAndChangesNothing) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.bias").to_vector<float>();
  nn::StateDict wrong{{"fc.bias", zeros({5})}, {"extra", zeros({1})}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(wrong); }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.bias' is f32[4] here, but f32[5] was given"
            "\n  missing: 'fc.weight', f32[4, 4]"
            "\n  unknown: 'extra', f32[1]");
  EXPECT_EQ(model->fc->bias.to_vector<float>(), before);
}

// The one that cannot be loaded is the last in order.
TEST(Module, AStateWithATensorThatHasNoValuesIsRefusedBeforeAnythingChanges) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.bias").to_vector<float>();
  nn::StateDict state{{"fc.bias", ones({4})}, {"fc.weight", ones({4, 4}, kMeta)}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.weight' was given on device meta, where it has no values");
  EXPECT_EQ(model->fc->bias.to_vector<float>(), before);
}

TEST(Module, WhatAStateAndAModelShareIsLoadedAndTheOtherNamesAreGiven) {
  Context context;
  auto model = nn::make<TwoOut>();
  std::vector<float> before = model->state_dict().at("fc.weight").to_vector<float>();
  nn::OtherNames others = model->load_known({{"fc.bias", ones({4})}, {"extra", zeros({1})}});
  EXPECT_EQ(others.missing, Names{"fc.weight"});
  EXPECT_EQ(others.unexpected, Names{"extra"});
  EXPECT_EQ(model->fc->bias.to_vector<float>(), std::vector<float>(4, 1));
  EXPECT_EQ(model->fc->weight.to_vector<float>(), before);
  EXPECT_EQ(error_of([&] {
              model->load_known({{"fc.bias", zeros({5})}});
            }),
            "load_state_dict: this is not a state of TwoOut; nothing was loaded:"
            "\n  'fc.bias' is f32[4] here, but f32[5] was given");
  auto tied = nn::make<TiedModel>();
  EXPECT_EQ(tied->load_known({{"head.weight", ones({7, 4})}}).missing, Names{});
  EXPECT_EQ(tied->embed->weight.to_vector<float>(), std::vector<float>(28, 1)) << "by its second name";
}

TEST(Module, ABufferThatIsNotPersistentIsInNoState) {
  Context context;
  auto model = nn::make<nn::BatchNorm1d>(4);
  model->own_buffers()[0].object->persistent = false;
  EXPECT_EQ(model->named_buffers().size(), 2u);
  EXPECT_EQ(names_of(model->saved_buffers()), Names{"running_var"});
  nn::StateDict state = model->state_dict();
  EXPECT_FALSE(state.contains("running_mean"));
  model->load_state_dict(state);
}

TEST(Module, AStateDictMayListTiedParametersUnderBothNames) {
  Context context;
  auto model = nn::make<TiedModel>();
  nn::StateDict state{{"embed.weight", ones({7, 4})}, {"head.weight", ones({7, 4})}};
  model->load_state_dict(state);
  EXPECT_EQ(model->head->weight.to_vector<float>(), std::vector<float>(28, 1));
  state["head.weight"] = state["embed.weight"];
  model->load_state_dict(state);
}

// The state of a model that does not tie them: one of the two would be lost.
TEST(Module, TiedParametersOfDifferentValuesAreRefused) {
  Context context;
  auto model = nn::make<TiedModel>();
  model->materialize();
  std::vector<float> before = model->embed->weight.to_vector<float>();
  nn::StateDict state{{"embed.weight", ones({7, 4})}, {"head.weight", zeros({7, 4})}};
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TiedModel; nothing was loaded:"
            "\n  'head.weight' was given other values than 'embed.weight', to which it is tied");
  state["head.weight"] = ones({7, 5});
  EXPECT_EQ(error_of([&] { model->load_state_dict(state); }),
            "load_state_dict: this is not a state of TiedModel; nothing was loaded:"
            "\n  'head.weight' is f32[7, 4] here, but f32[7, 5] was given");
  EXPECT_EQ(model->embed->weight.to_vector<float>(), before);
}

TEST(Module, LoadingCountsAsAWriteForBackward) {
  Context context;
  auto model = nn::make<TwoOut>();
  Tensor loss = sum(model(ones({1, 4}).set_requires_grad()).first);
  nn::StateDict state = model->state_dict();
  for (auto& [name, tensor] : state) tensor = clone(tensor.detach());
  model->load_state_dict(state);
  EXPECT_NE(error_of([&] { loss.backward(); }).find("'fc.weight' was changed in place"), std::string::npos);
}

TEST(Module, ACallThatEndsByAnExceptionTellsItsHooks) {
  struct Picky : nn::Module {
    Tensor forward(const Tensor& x) {
      SG_CHECK(x.numel() > 0, "empty");
      return x;
    }
  };
  Context context;
  auto model = nn::make<Picky>();
  int failed = 0, returned = 0;
  model->add_forward_failed_hook([&](nn::Module& module) { failed += &module == &*model; });
  model->add_forward_hook([&](nn::Module&, std::span<const Tensor>) { ++returned; });
  model(ones({1}));
  EXPECT_EQ(std::pair(failed, returned), std::pair(0, 1));
  EXPECT_EQ(error_of([&] { model(ones({0})); }), "empty");
  EXPECT_EQ(std::pair(failed, returned), std::pair(1, 1));
}

struct Overloaded : nn::Module {
  Tensor forward(const Tensor& x) { return x; }
  template <class T> Tensor forward(const Tensor& x, T) { return x; }
};

TEST(Module, ItIsKnownWhichModulesOnlyHoldOthers) {
  struct Group : nn::Module {
    nn::Child<nn::Linear> a = child<nn::Linear>("a", 1, 1);
  };
  struct Derived final : Overloaded {};
  struct All : nn::Module {
    nn::Child<nn::ModuleList<nn::Linear>> list = child<nn::ModuleList<nn::Linear>>("list");
    nn::Child<Group> group = child<Group>("group");
    nn::Child<nn::Sequential> sequence = child<nn::Sequential>("sequence");
    nn::Child<Overloaded> overloaded = child<Overloaded>("overloaded");
    nn::Child<Derived> derived = child<Derived>("derived");
  };
  Context context;
  auto model = nn::make<All>();
  std::vector<std::string> holders;
  for (auto& [name, module] : model->named_modules())
    if (module->only_holds()) holders.push_back(name);
  EXPECT_EQ(holders, (std::vector<std::string>{"", "list", "group"}));
}

}  // namespace
}  // namespace shardgrad
