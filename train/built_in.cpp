#include <shardgrad/train/built_in.h>

#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/tasks/mlp.h>
#include <shardgrad/train/tasks/supervised.h>

namespace shardgrad::train {
namespace {

using data::FashionMnist;

struct FashionMnistOptions {
  std::string dir = FashionMnist::kDebianFolder;
  void list(OptionList& options) { options.add("dir", dir, "the folder with its files"); }
};

data::Splits open_fashion_mnist(const FashionMnistOptions& options, uint64_t) {
  return {std::make_shared<FashionMnist>(options.dir, FashionMnist::Split::train),
          std::make_shared<FashionMnist>(options.dir, FashionMnist::Split::test)};
}

}  // namespace

void register_built_in(Registry& registry) {
  registry.add_data<FashionMnistOptions>("fashion_mnist", "pictures of clothes in ten classes", open_fashion_mnist,
                                         FashionMnist::known_fields());
  registry.add_model<MlpOptions>("mlp", "linear layers with an activation between them", make_mlp);
  registry.add_task<Classification::Options>("classification", "one of some classes",
                                             [](const Classification::Options& options, const Model& model) {
                                               return std::make_unique<Classification>(options, model);
                                             });
  registry.add_task("regression", "numbers, by the mean squared error",
                    [](const Model& model) { return std::make_unique<Regression>(model); });
}

}  // namespace shardgrad::train
