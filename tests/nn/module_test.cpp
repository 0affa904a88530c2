// The tree of a module's parts: their names, modules that are shared, parameters that are tied, replaced or dropped.

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include <shardgrad/core/context.h>
#include <tests/nn/module_examples.h>

namespace shardgrad {
namespace {

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

// --- shared modules and tied parameters ----------------------------------------------------------------------------

struct Siamese : nn::Module {
  nn::Child<nn::Linear> encoder = child<nn::Linear>("encoder", 4, 4);
  nn::Child<nn::Linear> again = share("again", encoder);
  Tensor forward(const Tensor& a, const Tensor& b) { return encoder(a) - again(b); }
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

}  // namespace
}  // namespace shardgrad
