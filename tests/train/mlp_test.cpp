// The multi-layer perceptron of the program.

#include <shardgrad/train/tasks/mlp.h>

#include <gtest/gtest.h>

#include <map>

#include <shardgrad/core/context.h>

namespace shardgrad {
namespace {

TEST(Mlp, HasTheActivationThatItIsAskedFor) {
  Context context;
  for (const auto& [name, type] :
       std::map<std::string, std::string>{{"gelu", "GELU"}, {"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}}) {
    auto mlp = train::make_mlp({.layers = {4, 3, 2}, .activation = name});
    ASSERT_EQ(mlp->children().size(), 3u);
    EXPECT_EQ(mlp->children()[1].object->type_name(), type);
  }
}

}  // namespace
}  // namespace shardgrad
