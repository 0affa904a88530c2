#include <shardgrad/train/plan.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {
namespace {

// Samples without meaning: one for each row of a rank's part of `count`.
data::Batch batch_of(const std::vector<data::Field>& fields, int64_t rows, int64_t count) {
  TagScope owner(Category::data);
  data::Batch batch{.global_count = count, .count = rows};
  for (const data::Field& field : fields) batch.fields.push_back(zeros(field.rows(rows), field.dtype));
  return batch;
}

void check_task(const Config& config, const std::vector<data::Field>& fields) {
  NoGrad no_grad;
  auto task = make_task(config, fields);
  SG_CHECK(!task->scores({}).empty(), "task '", config.task.name, "' gives no score; scores() must name at least one");
  for (const Score& score : task->scores({}))
    SG_CHECK(score.name != "count", "a score cannot be named count: metrics.jsonl has test_count");
  task->check(fields, batch_of(fields, 2, 2));
}

}  // namespace

fsdp::Plan plan(const Config& config, const std::vector<data::Field>& fields, int ranks, Device device,
                bool one_machine) {
  auto seed = uint64_t(config.seed);
  dist::run_one_of(
      1, [&](dist::ProcessGroup&) { check_task(config, fields); }, seed);
  fsdp::Plan result;
  auto body = [&](dist::ProcessGroup& world) {
    auto task = make_task(config, fields);
    auto sharded = fsdp::fully_shard(task->module(), world, make_sharding(config));
    auto optimizer = make_optimizers(config, *task).optimizer;
    auto scaler = make_scaler(config, world);
    data::Batch batch = batch_of(fields, most_samples(config, ranks), config.batch);
    TagScope inner(Category::activation);
    fsdp::Plan mine = fsdp::make_plan(*sharded, [&] {
      train_step({config, *task, *sharded, *optimizer, scaler}, batch, false);
    });
    if (world.rank() == 0) result = mine;
  };
  if (device == kMeta)
    dist::run_one_of(ranks, body, seed, one_machine);
  else
    dist::run_ranks(ranks, body,
                    {.device = device, .seed = seed, .group = {.kind = one_machine ? "shared_memory" : ""}});
  return result;
}

int64_t most_samples(const Config& config, int ranks) { return (config.batch + ranks - 1) / ranks; }

LeastTime least_time(const fsdp::Plan& plan, const Rates& rates) {
  auto seconds = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  return {seconds(plan.flops, rates.flops),
          seconds(double(plan.bytes_sent), rates.bandwidth) + double(plan.collectives) * rates.latency};
}

std::vector<Offer> offers(const Config& config, const std::vector<data::Field>& fields, const std::vector<int>& ranks) {
  std::vector<std::string> strategies{"ddp", "zero1", "zero2", "zero3"};
  if (config.fsdp.options.shard_ranks > 0) strategies.push_back("hybrid");
  std::vector<Offer> all;
  for (int count : ranks)
    for (const std::string& strategy : strategies) {
      Config other = config;
      other.strategy = strategy;
      if (strategy != "hybrid") other.fsdp.options.shard_ranks = 0;
      Offer& offer = all.emplace_back(Offer{.strategy = strategy, .ranks = count});
      try {
        offer.plan = plan(other, fields, count, kMeta);
      } catch (const Error& error) {
        offer.why_not = error.what();
      }
    }
  return all;
}

}  // namespace shardgrad::train
