#include <shardgrad/fsdp/grad_scaler.h>

#include <set>

#include <shardgrad/fsdp/step/slice_sink.h>

namespace shardgrad::fsdp {
namespace {

std::set<int> ranks_of(const dist::ProcessGroup& group) {
  std::set<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) ranks.insert(group.global_rank(rank));
  return ranks;
}

void check_asks_all(const std::set<int>& asked, const optim::Optimizer& optimizer) {
  const dist::ProcessGroup* known = nullptr;  // neighbours belong to one model
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const SliceSink* sink = sink_of(parameter);
    if (!sink || &sink->flat().mesh().holders() == known) continue;
    known = &sink->flat().mesh().holders();
    for (int holder : ranks_of(*known))
      SG_CHECK(asked.contains(holder), "grad_scaler: rank ", holder, " holds something of the model of '",
               parameter.name, "', too, and this scaler does not ask it: it would step where these ranks do not. ",
               "Make the scaler with fsdp::sharded_grad_scaler(*sharded)");
  }
}

}  // namespace

optim::GradScaler sharded_grad_scaler(Sharded& sharded, optim::GradScalerOptions options) {
  return sharded_grad_scaler(sharded.holders(), options);
}

optim::GradScaler sharded_grad_scaler(dist::ProcessGroup& group, optim::GradScalerOptions options) {
  auto sum = [&group, life = group.life(), asked = ranks_of(group)](double mine, const optim::Optimizer& optimizer) {
    SG_CHECK(!life.expired(), "grad_scaler: the process group that it asks is gone");
    check_asks_all(asked, optimizer);
    Tensor sum = from_vector<double>({mine}, {1}, {DType::f64, kCpu});
    group.all_reduce(sum, {{"", "grad_scaler"}}).host_wait();
    return sum.item();
  };
  return optim::GradScaler(options, sum);
}

}  // namespace shardgrad::fsdp
