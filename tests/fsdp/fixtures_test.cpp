// The training runs that PyTorch made (tests/fixtures/training.json), repeated by sharded models on 1 to 4 ranks and
// matched to 1e-5 of each tensor's largest element.

#include <gtest/gtest.h>

#include <tests/autograd/support.h>
#include <tests/fixtures/read.h>
#include <tests/fsdp/training.h>

namespace shardgrad::fsdp::testing {
namespace {

using test::Json;
constexpr double kTolerance = 1e-5;
constexpr int64_t kBatch = 7, kClasses = 3;
const std::vector<std::string> kNames = {"a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"};

struct Mlp : nn::Module {
  nn::Child<nn::Linear> a = child<nn::Linear>("a", 6, 8), b = child<nn::Linear>("b", 8, 5),
                        c = child<nn::Linear>("c", 5, kClasses);
  Tensor forward(const Tensor& x) { return c(relu(b(relu(a(x))))); }
};

std::map<std::string, Tensor> named(const Json& tensors) {
  std::map<std::string, Tensor> result;
  for (size_t i = 0; i < kNames.size(); ++i) result[kNames[i]] = test::tensor_of(tensors[i]);
  return result;
}

// The options of make_optimizer in scripts/make_fixtures.py.
std::unique_ptr<optim::Optimizer> optimizer_of(const std::string& kind, std::vector<NamedParameter> parameters) {
  if (kind == "sgd")
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  if (kind == "nesterov")
    return std::make_unique<optim::SGD>(std::move(parameters),
                                        optim::SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  if (kind == "adam")
    return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions{.lr = 0.01, .weight_decay = 0.01});
  return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamOptions{.lr = 0.01, .weight_decay = 0.1});
}

// A parameter's gradient, put together from every rank's part of it.
std::vector<double> whole_gradient(const Location& where, dist::ProcessGroup& group) {
  const FlatParam& flat = *where.flat;
  const Slice& slice = flat.slices()[where.slice];
  std::vector<double> all(size_t(flat.padded())), mine = values_of(flat.grad());
  std::ranges::copy(mine, all.begin() + flat.shard_begin());
  Tensor sum = from_vector(all, {flat.padded()}, {DType::f64, kCpu});
  if (flat.split()) group.all_reduce(sum).host_wait();
  return values_of(sum.rows(slice.offset, slice.offset + slice.numel()));
}

Tensor loss_of_run(const Json& run, const Tensor& y, const Tensor& labels) {
  if (run["loss"] == "mse") return mse_loss(y, one_hot(labels, kClasses), double(kBatch * kClasses));
  return cross_entropy(y, labels, double(kBatch));
}

void repeat(const Json& run, Strategy strategy, dist::ProcessGroup& group) {
  auto model = nn::make<Mlp>();
  auto sharded = fully_shard(*model, group, {.strategy = strategy});
  load_full_state_dict(*sharded, named(run["start"]));
  auto optimizer = optimizer_of(run["optimizer"], model->named_parameters());
  int64_t begin = kBatch * group.rank() / group.size(), end = kBatch * (group.rank() + 1) / group.size();
  Tensor x = test::tensor_of(run["x"]).rows(begin, end), labels = test::tensor_of(run["labels"]).rows(begin, end);
  for (size_t step = 0; step < run["losses"].size(); ++step) {
    Tensor loss = loss_of_run(run, model(x), labels);
    loss.backward();
    group.all_reduce(loss.detach()).host_wait();
    double expected = run["losses"][step];
    EXPECT_NEAR(loss.item(), expected, kTolerance * expected) << "step " << step;
    if (step == 0)
      for (auto& [name, gradient] : named(run["first_grads"]))
        test::expect_close(whole_gradient(sharded->index().at(name), group), values_of(gradient), kTolerance,
                           "gradient of " + name);
    optimizer->step();
    optimizer->zero_grad();
  }
  std::map<std::string, Tensor> weights = full_state_dict(*sharded, false);
  for (auto& [name, weight] : named(run["end"]))
    test::expect_close(values_of(weights.at(name)), values_of(weight), kTolerance, name);
}

TEST(PyTorchFixtures, ShardedTrainingRunsMatchAtEveryNumberOfRanks) {
  Json runs = test::fixture("training.json");
  EXPECT_EQ(runs.size(), 4u);
  for (const Json& run : runs)
    for (int world : {1, 2, 3, 4})
      for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
        SCOPED_TRACE(shardgrad::concat(run["optimizer"], ' ', run["loss"], ' ', name_of(strategy), " W=", world));
        dist::run_ranks(world, [&](dist::ProcessGroup& group) { repeat(run, strategy, group); });
      }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
