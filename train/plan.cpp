#include <shardgrad/train/plan.h>

#include <algorithm>
#include <functional>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/pretend_zeros.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/rehearsal.h>
#include <shardgrad/train/short_batches.h>
#include <shardgrad/train/text/utf8.h>

namespace shardgrad::train {
namespace {

// They are keys of metrics.jsonl, and stand in lines that scripts read.
void check_score_names(const std::string& task, const std::vector<Score>& scores) {
  SG_CHECK(!scores.empty(), "task '", task, "' gives no score; scores() must name at least one");
  std::set<std::string> names;
  for (const Score& score : scores) {
    bool is_word = std::ranges::none_of(score.name, [](char c) { return (c >= 0 && c <= ' ') || c == '='; });
    SG_CHECK(!score.name.empty() && is_word && text::valid_utf8(score.name) == score.name.size(), "task '", task,
             "' has a score that is named '", shortened(score.name), "'; a name is one word of UTF-8, without '='");
    SG_CHECK(score.name != "count", "a score cannot be named count: metrics.jsonl has test_count");
    SG_CHECK(names.insert(score.name).second, "task '", task, "' has two scores that are named '", score.name, "'");
  }
}

void check_task(const Config& config, const std::vector<data::Field>& fields, Task& task) {
  NoGrad no_grad;
  check_score_names(config.task.name, task.scores({}));
  task.check(fields, batch_of(fields, 2, 0, 1));
}

// One that makes its optimizer may use it in its loss, and has it once it is sharded.
void check_task(const Config& config, const data::Outline& data, int ranks) {
  bool has_optimizer = config.registry->has_own_optimizer(config.task.name);
  auto body = [&](dist::ProcessGroup& world) {
    if (has_optimizer)
      check_task(config, data.fields, Rehearsal(config, data, world).task());
    else
      check_task(config, data.fields, *make_task(config, data.fields));
  };
  dist::run_one_of(has_optimizer ? ranks : 1, body, uint64_t(config.seed));
}

// Of two batches, for from the second on the order of units is known. Empty, or why that cannot be.
std::string evaluate_twice(const Config& config, Task& task, const data::Batch& batch) {
  PretendZeros on_meta;
  std::vector<Sums> sums(std::max<size_t>(1, batch.grains.size()));
  try {
    evaluate_batches(
        task, 2, [&](int64_t) { return batch; }, forward_dtype(config), sums);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return concat("evaluation, for the task cannot be evaluated on samples without values: ", error.what());
  }
  return "";
}

fsdp::Plan plan_of_rank(const Config& config, const data::Outline& data, dist::ProcessGroup& world) {
  Rehearsal rank(config, data, world);
  data::Batch batch = rank.part(data.train);
  std::string lacks;
  speak_once(world, rank.task().module(), rank.sharded(), rank.optimizers().all());
  fsdp::Plan mine = fsdp::make_plan(
      rank.sharded(), [&] { rank.step(batch); },
      [&] {
        batch = {};
        lacks = evaluate_twice(config, rank.task(), rank.part(data.test));
      });
  mine.lacks = lacks;
  return mine;
}

// Of threads, which are taken to be on several machines.
dist::GroupOptions group_of(const dist::PretendedRanks& as) {
  dist::GroupOptions options{.kind = as.group == "two_level" ? "shared_memory" : as.group};
  options.machines = as.machines;
  return options;
}

}  // namespace

void speak_once(dist::ProcessGroup& world, nn::Module& model, fsdp::Sharded& sharded,
                const SavedOptimizers& optimizers) {
  Agreement(world).agree(0, 1, {});
  for (const StateSpecs& specs : {model_specs(model, sharded), optimizer_specs(optimizers)}) {
    Hashes hashes;
    for (const auto& [name, spec] : specs) hashes[name] = 0;
    sum_over_ranks(world, hashes);
  }
}

fsdp::Plan plan(const Config& config, const data::Outline& data, int ranks, Device device,
                const dist::PretendedRanks& as) {
  check_grains(config, ranks);
  check_task(config, data, ranks);
  auto seed = uint64_t(config.seed);
  fsdp::Plan result;
  auto body = [&](dist::ProcessGroup& world) {
    fsdp::Plan mine = plan_of_rank(config, data, world);
    if (world.rank() == 0) result = mine;
  };
  if (device == kMeta)
    dist::run_one_of(ranks, body, seed, as);
  else
    dist::run_ranks(ranks, body, {.device = device, .seed = seed, .group = group_of(as)});
  result.wrap_setting = config.fsdp.wrap == "size" ? "a smaller fsdp.wrap_numel" : "fsdp.wrap=size";
  if (as.group == "nccl")
    result.lacks += concat(result.lacks.empty() ? "" : "; ", "what a group '", as.group, "' needs to send");
  return result;
}

int64_t most_samples(const Config& config, int64_t samples, int ranks) {
  return data::part_of(largest_batch(config, samples), 0, ranks).end;
}

LeastTime least_time(const fsdp::Plan& plan, const Rates& rates) {
  auto seconds = [](double amount, double rate) { return rate > 0 ? amount / rate : 0; };
  return {seconds(plan.flops, rates.flops),
          seconds(double(plan.bytes_sent), rates.bandwidth) + double(plan.collectives) * rates.latency};
}

Config with_strategy(Config config, const std::string& strategy) {
  config.strategy = strategy;
  if (strategy != "hybrid") config.fsdp.options.shard_ranks = 0;
  if (strategy != "hybrid" && strategy != "zero3") config.fsdp.options.reshard_after_forward = 0;
  return config;
}

std::vector<std::string> strategies_for(const Config& config) {
  std::vector<std::string> all{"ddp", "zero1", "zero2", "zero3"};
  if (config.fsdp.options.shard_ranks > 0) all.push_back("hybrid");
  return all;
}

// What refuses the call; empty for nothing.
static std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<Offer> offers(const Config& config, const data::Outline& data, const std::vector<int>& ranks,
                          const dist::PretendedRanks& as) {
  std::vector<Offer> all;
  for (int count : ranks) {
    std::string too_short = refusal_of([&] { check_short_batches(with_strategy(config, "zero3"), data, count, as); });
    for (const std::string& strategy : strategies_for(config)) {
      Offer& offer = all.emplace_back(Offer{.strategy = strategy, .ranks = count});
      auto predict = [&] { offer.plan = plan(with_strategy(config, strategy), data, count, kMeta, as); };
      offer.why_not = too_short.empty() ? refusal_of(predict) : concat("on ", count, " ranks: ", too_short);
    }
  }
  return all;
}

}  // namespace shardgrad::train
