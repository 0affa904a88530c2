// ZeRO-3 by hand: a rank keeps 1/W of each layer, and the whole of a layer is in memory only while it computes.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

using sg::Tensor;
using sg::dist::ProcessGroup;
namespace Category = sg::Category;

/// A layer's width x width weights and width biases end to end, and zeros up to a multiple of the ranks.
struct Layer {
  Tensor shard;  // this rank's part: always in memory, and what the optimizer trains
  Tensor full;   // all parts: in memory while the layer computes
  Tensor x, y;   // this step's input and output
  int64_t width;
};

class Trainer {
 public:
  /// For a model of square linear layers with a relu, whose first values it takes.
  Trainer(ProcessGroup& world, const sg::nn::Child<sg::nn::Sequential>& model) : world_(world) {
    std::vector<sg::NamedParameter> parameters = model->named_parameters(), trained;
    for (size_t i = 0; i < parameters.size(); i += 2) {
      layers_.push_back(flat(parameters[i].tensor.detach(), parameters[i + 1].tensor.detach()));
      Layer& layer = layers_.back();
      sg::TagScope owner(Category::parameter_shard);
      layer.shard = sg::clone(my_part(layer.full.detach())).set_requires_grad();
      release(layer);
      trained.push_back({parameters[i].name, layer.shard});
    }
    optimizer_ = std::make_unique<sg::optim::AdamW>(trained, sg::optim::AdamOptions{.lr = 0.01});
  }

  /// One step on this rank's samples; `count` is of the elements of all ranks' targets.
  void step(Tensor x, const Tensor& target, double count) {
    for (Layer& layer : layers_) {
      // TODO(you): the whole layer is in memory for its forward: what comes before it,
      // end of TODO
      x = forward(layer, x);
      // TODO(you): and what after it?
      // end of TODO
    }
    Tensor last = x.detach().set_requires_grad();
    sg::mse_loss(last, target, count).backward();
    Tensor dy = last.grad();
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      // TODO(you): backward reads the layer's weights.
      // end of TODO
      dy = backward(*layer, dy);
      reduce(*layer);
      // TODO(you): nobody reads them any more.
      // end of TODO
    }
    optimizer_->step();
    optimizer_->zero_grad();
  }

  /// The whole of each layer, for who wants to look.
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    for (Layer& layer : layers_) {
      gather(layer);
      all.push_back(layer.full.to_vector<float>());
      release(layer);
    }
    return all;
  }

 private:
  Layer flat(const Tensor& weight, const Tensor& bias) const {
    sg::TagScope owner(Category::named<"gathered_parameter">);
    Tensor zeros = sg::zeros({padding(weight.numel() + bias.numel())});
    Tensor all = sg::cat(std::vector<Tensor>{weight.view({weight.numel()}), bias, zeros}, 0);
    return {.full = all.set_requires_grad(), .width = bias.numel()};
  }
  // TODO(you): how many zeros stand behind n elements, so that all ranks have parts of one size?
  int64_t padding(int64_t n) const { return 0 * n; }
  // end of TODO
  Tensor my_part(const Tensor& full) const {
    int64_t size = full.numel() / world_.size();
    return full.rows(world_.rank() * size, (world_.rank() + 1) * size);
  }
  Tensor forward(Layer& layer, const Tensor& x) const {
    int64_t width = layer.width, weights = width * width;
    layer.x = x.detach().set_requires_grad();  // a graph of its own, so that backward can stop between layers
    Tensor weight = layer.full.rows(0, weights).view({width, width}), bias = layer.full.rows(weights, weights + width);
    return layer.y = linear(layer.x, weight, bias, sg::Activation::relu);
  }
  Tensor backward(Layer& layer, const Tensor& dy) const {
    sg::TagScope owner(Category::named<"full_gradient">);
    layer.full.set_grad(sg::zeros(layer.full.shape()));  // one buffer, to which backward adds
    layer.y.backward(dy);
    Tensor dx = layer.x.grad();
    layer.x = layer.y = Tensor();
    return dx;
  }
  void gather(Layer& layer) {
    sg::dist::CollectiveOptions options;
    // TODO(you): memory for the whole, and all ranks' parts in it. What backward has saved comes back as it was, so
    // this is to be no write that backward must refuse.
    // end of TODO
  }
  // TODO(you): the whole's memory goes, and its tensors stay.
  void release(Layer&) {}
  // end of TODO
  void reduce(Layer& layer) {
    sg::TagScope owner(Category::named<"gradient_shard">);
    // TODO(you): this rank's part of the sum becomes its shard's gradient, and the whole gradient goes.
    // end of TODO
  }

  ProcessGroup& world_;
  std::vector<Layer> layers_;
  std::unique_ptr<sg::optim::AdamW> optimizer_;
};
