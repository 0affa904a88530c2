// The file of rungs 6 to 9, made a library: fully_shard gathers, releases and reduces by hooks around each layer's
// call, so a training loop does not know of ranks.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

class Trainer {
 public:
  Trainer(sg::dist::ProcessGroup& world, const sg::nn::Child<sg::nn::Sequential>& model) : model_(model) {
    // TODO(you): shard model_.module() over the ranks under zero3, and then make AdamW over the model's named
    // parameters, with a learning rate of 0.01.
    // end of TODO
  }

  /// One step on this rank's samples; `count` is of the elements of all ranks' targets.
  void step(const sg::Tensor& x, const sg::Tensor& target, double count) {
    SG_CHECK(sharded_, "sharded_ is empty: it is what fully_shard returns in the constructor");
    SG_CHECK(optimizer_, "optimizer_ is empty: it is made in the constructor, after fully_shard");
    // TODO(you): as in rung 3: loss, backward, step, zero_grad. The loss is divided by `count`.
    // end of TODO
  }

  /// The whole of each layer, weights and biases, for who wants to look.
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    auto state = sg::fsdp::full_state_dict(*sharded_, false);
    for (size_t layer = 0; layer < state.size() / 2; ++layer) {
      all.push_back(state.at(std::to_string(layer) + ".weight").to_vector<float>());
      for (float bias : state.at(std::to_string(layer) + ".bias").to_vector<float>()) all.back().push_back(bias);
    }
    return all;
  }

 private:
  sg::nn::Child<sg::nn::Sequential> model_;
  std::shared_ptr<sg::fsdp::Sharded> sharded_;
  std::unique_ptr<sg::optim::AdamW> optimizer_;
};
