#pragma once
// FairScale's OSS and ShardedDataParallel in FairScale's order: the optimizer first, then the model with it.
//
//     auto net = nn::make<Net>();
//     fsdp::OSS<optim::SGD> optimizer(net->named_parameters(), {.lr = 1e-4});
//     fsdp::ShardedDDP model(net, optimizer, world);
//     model->zero_grad();
//     loss(model(x), y).backward();
//     optimizer.step();
//
// It is fully_shard with zero2 and keep_params: full parameters stay, gradients go to the rank that owns them, and the
// optimizer has state for that rank's part only. An owner is a range of elements, not whole parameters.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/optim/optimizer.h>

namespace shardgrad::fsdp {

/// An optimizer that is to be of a rank's part: what OSS is given until ShardedDDP has sharded the model.
class DeferredOptimizer {
 public:
  virtual ~DeferredOptimizer() = default;
  DeferredOptimizer(const DeferredOptimizer&) = delete;
  std::span<const NamedParameter> parameters() const { return parameters_; }
  /// The optimizer. Throws Error(input) before the model was sharded.
  optim::Optimizer& optimizer() const;
  operator optim::Optimizer&() const { return optimizer(); }
  void step(double grad_scale = 1) { optimizer().step(grad_scale); }
  void zero_grad() { optimizer().zero_grad(); }
  double lr() const { return optimizer().lr(); }
  void set_lr(double lr) { optimizer().set_lr(lr); }

 protected:
  explicit DeferredOptimizer(std::vector<NamedParameter> parameters) : parameters_(std::move(parameters)) {}

 private:
  friend std::shared_ptr<Sharded> shard_with(nn::Module&, std::vector<DeferredOptimizer*>, dist::ProcessGroup&, Config);
  virtual std::unique_ptr<optim::Optimizer> make(std::vector<NamedParameter> parameters) const = 0;
  std::vector<NamedParameter> parameters_;
  std::unique_ptr<optim::Optimizer> made_;
};

/// `Optim` with its options for these parameters, sharded.
template <class Optim> class OSS final : public DeferredOptimizer {
 public:
  /// Throws Error(input) for options that make no sense.
  OSS(std::vector<NamedParameter> parameters, typename Optim::Options options, optim::Rules rules = {})
      : DeferredOptimizer(std::move(parameters)), options_(std::move(options)), rules_(std::move(rules)) {
    Optim checked(std::vector<NamedParameter>(this->parameters().begin(), this->parameters().end()), options_, rules_);
  }

 private:
  std::unique_ptr<optim::Optimizer> make(std::vector<NamedParameter> sharded) const override {
    return std::make_unique<Optim>(std::move(sharded), options_, rules_);
  }
  typename Optim::Options options_;
  optim::Rules rules_;
};

/// Shards the model, and makes the optimizers of it. Throws Error(input), having changed nothing, for an optimizer over
/// parameters that are not the model's, one that is another model's already, and trained parameters that are in none or
/// in two of them.
std::shared_ptr<Sharded> shard_with(nn::Module& module, std::vector<DeferredOptimizer*> optimizers,
                                    dist::ProcessGroup& world, Config config);

/// A handle on the sharded model that is called as the model is. It starts from rank 0's values, as FairScale's.
template <class M> class ShardedDDP {
 public:
  template <class... Optims>
  ShardedDDP(nn::Child<M> model, DeferredOptimizer& optimizer, dist::ProcessGroup& world, Optims&... more)
      : model_(std::move(model)),
        sharded_(shard_with(*model_, {&optimizer, &more...}, world,
                            {.strategy = Strategy::zero2, .keep_params = true, .sync_module_states = true})) {}
  template <class... Args> auto operator()(Args&&... args) const { return model_(std::forward<Args>(args)...); }
  M* operator->() const { return &*model_; }
  M& operator*() const { return *model_; }
  /// For clip_grad_norm, NoSync, full_state_dict and the rest.
  Sharded& sharded() const { return *sharded_; }

 private:
  nn::Child<M> model_;
  std::shared_ptr<Sharded> sharded_;
};

}  // namespace shardgrad::fsdp
