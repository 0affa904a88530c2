#include <shardgrad/shardgrad.h>

#include <cstdio>

using namespace sg;

// What everybody calls a part of a model is a name that the library leaves alone.
struct Block : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", 2, 2);
  Tensor forward(const Tensor& x) { return linear(x); }
};
struct Model : nn::Module {
  nn::Child<Block> block = child<Block>("block");
  Tensor forward(const Tensor& x) { return block(x); }
};

int main() {
  sg::Context context;
  sg::Tensor x = sg::from_vector<float>({1, 2, 3, 4}, {2, 2});
  std::printf("%s\n", sg::to_string(x).c_str());
  return x.numel() == 4 ? 0 : 1;
}
