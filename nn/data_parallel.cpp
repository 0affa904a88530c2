#include <shardgrad/nn/data_parallel.h>

#include <algorithm>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/capture.h>

namespace shardgrad::nn::detail {

Replicas::Replicas(std::vector<std::shared_ptr<Module>> modules, std::vector<Device> devices)
    : modules_(std::move(modules)), devices_(std::move(devices)) {
  SG_CHECK(!devices_.empty(), "DataParallel: no device is given; name one for each replica, such as {kCpu, kCpu}");
  Module& first = *modules_[0];
  for (const NamedParameter& parameter : first.named_parameters())
    SG_CHECK(parameter.tensor.storage()->tag().unit == 0, "DataParallel: '", parameter.name,
             "' is sharded over ranks; DataParallel is for one process and a whole model");
  first.materialize();
  auto state = [](Module& module) { return std::pair(module.named_parameters(), module.named_buffers()); };
  auto [parameters, buffers] = state(first);
  for (const auto* list : {&parameters, &buffers})
    for (const NamedParameter& tensor : *list)
      SG_CHECK(tensor.tensor.device() == devices_[0], "DataParallel: '", tensor.name, "' is on ",
               tensor.tensor.device(), ", but the first device is ", devices_[0], "; move the model there with to()");
  for (size_t r = 1; r < modules_.size(); ++r) {
    Module& module = *modules_[r];
    module.to(devices_[r]);
    if (!parameters.empty()) module.to(parameters[0].tensor.dtype());
    module.materialize();
    auto [its_parameters, its_buffers] = state(module);
    auto pairs = [&](const std::vector<NamedParameter>& from, const std::vector<NamedParameter>& to) {
      std::vector<Pair> found;
      for (size_t i = 0; i < std::max(from.size(), to.size()); ++i) {
        bool same = i < from.size() && i < to.size() && from[i].name == to[i].name &&
                    from[i].tensor.shape() == to[i].tensor.shape() && from[i].tensor.dtype() == to[i].tensor.dtype();
        SG_CHECK(same, "DataParallel: a replica differs from the model in '", (i < from.size() ? from : to)[i].name,
                 "'; give a function that makes the same module");
        found.push_back({from[i].tensor, to[i].tensor, kNever, from[i].name});
      }
      return found;
    };
    others_.push_back({modules_[r], pairs(parameters, its_parameters), pairs(buffers, its_buffers)});
  }
}

std::vector<std::pair<int64_t, int64_t>> Replicas::split(const std::vector<Tensor>& inputs) const {
  if (inputs.empty()) return {{0, 0}};
  for (const Tensor& input : inputs) {
    SG_CHECK(input.ndim() > 0, "DataParallel: an input of one number, ", input,
             ", has no rows to divide; give it as a double or an integer");
    SG_CHECK(input.size(0) == inputs[0].size(0), "DataParallel: inputs have ", inputs[0].size(0), " and ",
             input.size(0), " rows; all that is divided has as many");
  }
  int64_t rows = inputs[0].size(0), count = std::ssize(devices_), chunk = (rows + count - 1) / count;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0; begin < rows; begin += chunk) ranges.emplace_back(begin, std::min(begin + chunk, rows));
  if (ranges.empty()) ranges.emplace_back(0, 0);
  return ranges;
}

std::vector<std::vector<Tensor>> Replicas::scatter(const std::vector<Tensor>& inputs,
                                                   const std::vector<std::pair<int64_t, int64_t>>& rows) const {
  std::vector<std::vector<Tensor>> parts(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    for (const Tensor& input : inputs) parts[i].push_back(input.rows(rows[i].first, rows[i].second).to(devices_[i]));
  return parts;
}

// Of each module: one may be in eval inside another that trains.
static void copy_modes(Module& from, Module& to) {
  auto froms = from.named_modules(), tos = to.named_modules();
  to.train(from.training());
  for (size_t i = 1; i < froms.size(); ++i) tos[i].second->train(froms[i].second->training());
}

// What has not changed backward may have kept. A step that is captured finds other values in each replay: it copies
// anew, and what it leaves is known to nobody who comes after it.
void Replicas::copy_changed(Pair& pair) {
  if (Capture* capture = Capture::current(); capture && capture->is_first(&pair)) {
    auto forget = [self = shared_from_this(), &pair] { pair.copied = kNever; };
    forget();
    capture->on_give_up(forget);
    capture->at_end([capture, forget] {
      forget();
      capture->after_replay(forget);
    });
  }
  if (pair.copied != pair.from.version()) copy_into(pair.to, pair.from);
  pair.copied = pair.from.version();
}

void Replicas::replicate(size_t count) {
  NoGrad no_grad;
  for (size_t r = 0; r + 1 < count; ++r) {
    Replica& replica = others_[r];
    copy_modes(*modules_[0], *replica.module);
    for (Pair& pair : replica.parameters) {
      pair.to.set_requires_grad(pair.from.requires_grad());
      copy_changed(pair);
    }
    for (Pair& pair : replica.buffers) copy_into(pair.to, pair.from);
  }
}

std::vector<Tensor> Replicas::gather(const std::vector<std::vector<Tensor>>& results) {
  std::vector<Tensor> whole;
  for (const auto& result : results)
    SG_CHECK(result.size() == results[0].size(), "DataParallel: replicas return ", results[0].size(), " and ",
             result.size(), " tensors; all return as many");
  for (size_t t = 0; t < results[0].size(); ++t) {
    std::vector<Tensor> parts;
    for (const auto& result : results) {
      Tensor part = result[t].to(devices_[0]);
      parts.push_back(part.ndim() == 0 ? part.view({1}) : part);
    }
    whole.push_back(cat(parts, 0));
    Node* node = grad_enabled() ? node_of(whole.back()) : nullptr;
    if (!node) continue;
    node->add_pre_hook([self = shared_from_this()] {
      self->check_asked_for();
      on_backward_end([self] { self->sum_gradients(); });
    });
  }
  return whole;
}

// grad() would go to the model's own part alone, for the others are of other leaves.
void Replicas::check_asked_for() const {
  for (const Pair& pair : others_[0].parameters)
    SG_CHECK(!pair.from.requires_grad() || !leaf_of(pair.from).is_asked_for(), "grad: '", pair.name,
             "' is a parameter of DataParallel, whose gradient is the sum over its replicas; call backward(), which ",
             "adds them up");
}

// Those of a pass that fails go with it.
void Replicas::sum_gradients() {
  for (Replica& replica : others_)
    for (const Pair& pair : replica.parameters) {
      if (!pair.to.requires_grad() || !pair.to.grad().defined()) continue;
      Tensor mine = pair.to.grad().to(devices_[0]), sum = pair.from.grad();
      pair.from.set_grad(sum.defined() ? sum + mine : mine);
      pair.to.zero_grad();
    }
}

}  // namespace shardgrad::nn::detail
