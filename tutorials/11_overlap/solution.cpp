// ZeRO-3 by hand, where layers travel while others compute: the file of rung 9, in which a stream waits for an event
// where the host waited for a collective.

#include <shardgrad/autograd/ops.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

namespace Category = sg::Category;

/// A layer's width x width weights and width biases end to end, and zeros up to a multiple of the ranks.
struct Layer {
  std::string name;
  Tensor shard;  // this rank's part: always in memory, and what the optimizer trains
  Tensor full;   // all parts: in memory from the gather that brings them to the layer's last use
  Tensor x, y;   // this step's input and output
  int64_t width;
  Work gathered, reduced;  // queued on the group's stream
};

class Trainer {
 public:
  /// For a model of square linear layers with a relu, whose first values it takes. `prefetch`: layers that are gathered
  /// ahead of the one that computes.
  Trainer(ProcessGroup& world, const sg::nn::Child<sg::nn::Sequential>& model, int prefetch, Compute& compute)
      : world_(world), compute_(compute), prefetch_(prefetch) {
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

  /// Queues a step on this rank's samples; `count` is of the elements of all ranks' targets.
  void step(Tensor x, const Tensor& target, double count) {
    const int last = int(layers_.size()) - 1;
    for (int i = 0; i <= last; ++i) {
      // TODO(you): begin to gather this layer, if nobody has, and the next prefetch_ ones.
      for (int next = i; next <= std::min(i + prefetch_, last); ++next) start_gather(at(next), "forward");
      // end of TODO
      compute_.wait_for(at(i).gathered);
      x = forward(at(i), x);
      if (i != last) release(at(i));  // backward begins with the last one
    }
    Tensor output = x.detach().set_requires_grad();
    sg::mse_loss(output, target, count).backward();
    Tensor dy = output.grad();
    for (int i = last; i >= 0; --i) {
      // TODO(you): the same, where the next ones are those before it; and wait for what was gathered. Nothing is on its
      // way for the last layer, which is in memory.
      for (int next = i; next >= std::max(i - prefetch_, 0); --next) start_gather(at(next), "backward");
      if (i != last) compute_.wait_for(at(i).gathered);
      // end of TODO
      dy = backward(at(i), dy);
      release(at(i));
      start_reduce(at(i));
      if (i != last) compute_.wait_for(at(i + 1).reduced);  // so that at most two whole gradients are in memory
    }
    compute_.wait_for(at(0).reduced);
    optimizer_->step();
    optimizer_->zero_grad();
  }

  /// The whole of each layer, for who wants to look.
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    for (Layer& layer : layers_) {
      start_gather(layer, "look");
      compute_.wait_for(layer.gathered);
      all.push_back(layer.full.to_vector<float>());
      release(layer);
    }
    return all;
  }

 private:
  Layer& at(int i) { return layers_[size_t(i)]; }
  Layer flat(const Tensor& weight, const Tensor& bias) const {
    sg::TagScope owner(Category::named<"gathered_parameter">);
    Tensor zeros = sg::zeros({padding(weight.numel() + bias.numel())});
    Tensor all = sg::cat(std::vector<Tensor>{weight.view({weight.numel()}), bias, zeros}, 0);
    return {.name = std::to_string(layers_.size()), .full = all.set_requires_grad(), .width = bias.numel()};
  }
  int64_t padding(int64_t n) const { return (world_.size() - n % world_.size()) % world_.size(); }
  Tensor my_part(const Tensor& full) const {
    int64_t size = full.numel() / world_.size();
    return full.rows(world_.rank() * size, (world_.rank() + 1) * size);
  }
  Tensor forward(Layer& layer, const Tensor& x) const {
    Busy busy(compute_, "forward", layer.name);
    int64_t width = layer.width, weights = width * width;
    layer.x = x.detach().set_requires_grad();  // a graph of its own, so that backward can stop between layers
    Tensor weight = layer.full.rows(0, weights).view({width, width}), bias = layer.full.rows(weights, weights + width);
    return layer.y = linear(layer.x, weight, bias, sg::Activation::relu);
  }
  Tensor backward(Layer& layer, const Tensor& dy) const {
    Busy busy(compute_, "backward", layer.name);
    sg::TagScope owner(Category::named<"full_gradient">);
    layer.full.set_grad(sg::zeros(layer.full.shape()));  // one buffer, to which backward adds
    layer.y.backward(dy);
    Tensor dx = layer.x.grad();
    layer.x = layer.y = Tensor();
    return dx;
  }
  void start_gather(Layer& layer, const char* phase) {
    if (layer.full.storage()->resident()) return;
    layer.full.storage()->materialize(world_.stream());
    sg::dist::CollectiveOptions options({layer.name, phase}, sg::Event());  // after nothing
    options.counts_as_write = false;
    // TODO(you): it comes after all that compute was given so far: the optimizer writes the shard that is sent.
    options.after = compute_.so_far();
    // end of TODO
    layer.gathered = world_.all_gather(layer.full.detach(), layer.shard.detach(), options);
  }
  void release(Layer& layer) { layer.full.storage()->release(compute_.stream); }
  void start_reduce(Layer& layer) {
    sg::TagScope owner(Category::named<"gradient_shard">);
    Tensor mine = sg::empty(layer.shard.shape());
    sg::dist::CollectiveOptions options({layer.name, "backward"}, sg::Event());
    // TODO(you): it comes after backward, which writes what is sent.
    options.after = compute_.so_far();
    // end of TODO
    layer.reduced = world_.reduce_scatter(mine, layer.full.grad(), options);
    layer.shard.set_grad(mine);
    layer.full.zero_grad();
  }

  ProcessGroup& world_;
  Compute& compute_;
  int prefetch_;
  std::vector<Layer> layers_;
  std::unique_ptr<sg::optim::AdamW> optimizer_;
};
