#include <shardgrad/train/callbacks.h>

#include <algorithm>

#include <shardgrad/core/error.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/early_stop.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::train {

Callbacks::Callbacks(const Config& config, dist::ProcessGroup& world)
    : world_(world), may_end_(config.early_stop > 0 || !config.registry->callbacks().empty()) {
  if (config.early_stop > 0) all_.push_back(std::make_unique<EarlyStop>(config.early_stop));
  for (const auto& make : config.registry->callbacks()) {
    all_.push_back(make(config, world));
    SG_CHECK(all_.back(), "a registered callback's maker gave none; it must give one on every rank");
  }
}

std::optional<std::string> Callbacks::reason_to_end() const {
  if (!may_end_) return {};
  std::string reason;
  for (const auto& callback : all_) {  // all are asked, for one may ask its own on the other ranks
    std::string its = callback->reason_to_end();
    if (reason.empty()) reason = its;
  }
  const dist::Label label{"", "agree"};
  std::vector<int64_t> wants = world_.share<int64_t>({!reason.empty()}, label);
  auto first = std::ranges::find(wants, 1);
  if (first == wants.end()) return {};
  return dist::same_text(world_, label, reason, int(first - wants.begin()));
}

}  // namespace shardgrad::train
