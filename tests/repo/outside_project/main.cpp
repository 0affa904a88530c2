#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>
#include <cstdio>

int main() {
  sg::Context context;
  sg::Tensor x = sg::from_vector<float>({1, 2, 3, 4}, {2, 2});
  std::printf("%s\n", sg::to_string(x).c_str());
  return x.numel() == 4 ? 0 : 1;
}
