#pragma once
// One process, several devices, as PyTorch's DataParallel: every call copies the model's values to a replica on each
// device, where they have changed, cuts the inputs along dimension 0, calls the replicas, and puts the outputs together
// on the first device. The model itself is the first replica.
//
//     auto model = nn::make<Net>();
//     nn::DataParallel parallel(model, {kCpu, kCpu, kAcc});   // two GPUs: {kCuda, Device{DeviceKind::cuda, 1}}
//     optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
//     Tensor loss = mse_loss(parallel(x), y);      // a mean over the whole batch
//     loss.backward();                             // model's gradients are the sums over the replicas; grad() refuses
//
// The calling thread calls one replica after the other: devices that compute by themselves (acc, sim, GPUs) do so
// beside each other, and none waits for another but for what it gets of it. A device may be named several times. What
// a call changes in buffers stays in the first replica and is lost in the others. Ranks (fsdp::fully_shard) need less
// memory and time than this; it is here for programs that have it, and to be compared with.

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <shardgrad/autograd/traverse.h>
#include <shardgrad/nn/module.h>

namespace shardgrad::nn {
namespace detail {

/// What of DataParallel is the same for all types of modules.
class Replicas : public std::enable_shared_from_this<Replicas> {
 public:
  /// The first is the model. Throws Error(input) for a sharded one, and for values that are not on devices[0].
  Replicas(std::vector<std::shared_ptr<Module>> modules, std::vector<Device> devices);
  std::span<const Device> devices() const { return devices_; }
  /// Row ranges of the inputs: at most one for each device, of as many rows but for the last. Without a tensor one
  /// range of none. Throws Error(input) for a tensor without dimensions, and where tensors have different numbers of
  /// rows.
  std::vector<std::pair<int64_t, int64_t>> split(const std::vector<Tensor>& inputs) const;
  /// These rows of the inputs, for each replica on its device: all are on their way before a replica computes, whose
  /// work they would come behind on the device that has the inputs.
  std::vector<std::vector<Tensor>> scatter(const std::vector<Tensor>& inputs,
                                           const std::vector<std::pair<int64_t, int64_t>>& rows) const;
  /// Brings values, buffers, mode and what is trained to the replicas that are called now.
  void replicate(size_t count);
  /// Each of the tensors of several replicas' results as one. Those without dimensions become a vector.
  std::vector<Tensor> gather(const std::vector<std::vector<Tensor>>& results);

 private:
  struct Pair {
    Tensor from, to;
    uint64_t copied;  // from's version, or kNever
    std::string name;
  };
  struct Replica {
    std::shared_ptr<Module> module;
    std::vector<Pair> parameters, buffers;
  };
  static constexpr uint64_t kNever = ~uint64_t(0);
  void copy_changed(Pair& pair);
  void check_asked_for() const;
  void sum_gradients();
  std::vector<std::shared_ptr<Module>> modules_;
  std::vector<Device> devices_;
  std::vector<Replica> others_;
};

}  // namespace detail

template <class M> class DataParallel {
 public:
  using Make = std::function<Child<M>()>;
  /// `make` makes a module like `model`, for each further device. Throws Error(input) for one that is not.
  DataParallel(Child<M> model, std::vector<Device> devices, const Make& make) : calls_{std::move(model)} {
    for (size_t i = 1; i < devices.size(); ++i) calls_.push_back(make());
    std::vector<std::shared_ptr<Module>> modules;
    for (const Child<M>& call : calls_) modules.push_back(call.shared());
    replicas_ = std::make_shared<detail::Replicas>(std::move(modules), std::move(devices));
  }
  DataParallel(Child<M> model, std::vector<Device> devices) requires std::default_initializable<M>
      : DataParallel(std::move(model), std::move(devices), [] { return make<M>(); }) {}

  /// The model's result for the whole batch. Tensors in the arguments, in any structure, are cut; all else is given to
  /// every replica. On one device it is the model's own call. Of a result what is no tensor is the first replica's.
  template <class... Args> auto operator()(Args&&... args) const {
    if (replicas_->devices().size() == 1) return calls_[0](std::forward<Args>(args)...);
    std::tuple<std::decay_t<Args>...> all(std::forward<Args>(args)...);
    std::vector<Tensor> inputs = tensors_in(all);
    auto rows = replicas_->split(inputs);
    replicas_->replicate(rows.size());
    std::vector<std::vector<Tensor>> parts = replicas_->scatter(inputs, rows);
    std::vector<decltype(std::apply(calls_[0], all))> results;
    for (size_t i = 0; i < rows.size(); ++i) {
      replace_tensors(all, parts[i]);
      results.push_back(std::apply(calls_[i], all));
    }
    std::vector<std::vector<Tensor>> found;
    for (auto& result : results) found.push_back(tensors_in(result));
    replace_tensors(results[0], replicas_->gather(found));
    return results[0];
  }
  M* operator->() const { return &*calls_[0]; }
  M& operator*() const { return *calls_[0]; }

 private:
  std::vector<Child<M>> calls_;
  std::shared_ptr<detail::Replicas> replicas_;
};

}  // namespace shardgrad::nn
