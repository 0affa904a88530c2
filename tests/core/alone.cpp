// A program of core/ alone: tensors that come and go on a device that computes by itself, entered under a category of
// its own. Prints what went wrong, and fails.

#include <cstdio>
#include <vector>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

using namespace shardgrad;

int main() {
  Context context({.threads = 1, .device = kAcc});
  std::vector<float> values{1, 2, 3, 4};
  TagScope owner(Category::named<"alone">);
  Tensor x = from_vector(values, {2, 2}), y = empty({2, 2});
  copy_into(y, x);
  bool right = y.to_vector<float>() == values && context.ledger().current(Category::named<"alone">) == 32;
  std::puts(right ? "core stands alone" : "core alone gives something else");
  return right ? 0 : 1;
}
