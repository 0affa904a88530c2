#include <shardgrad/fsdp/step/unit.h>

#include <algorithm>

#include <shardgrad/fsdp/setup/unit_plan.h>

namespace shardgrad::fsdp {

const char* name_of(UnitState state) {
  constexpr const char* names[] = {"sharded", "gathering", "unsharded"};
  return names[int(state)];
}

Unit::Unit(std::string name, std::vector<nn::Parameter*> parameters, Mesh& mesh, const Config& config, bool is_root,
           UnitEvents events)
    : name_(std::move(name)),
      mesh_(mesh),
      is_root_(is_root),
      reshards_(config.reshards_after_forward()),
      events_(std::move(events)) {
  std::vector<std::vector<nn::Parameter*>> parts = plan_flats(parameters, config.bucket());
  for (const auto& members : parts) {
    std::string part = parts.size() > 1 ? concat(" from ", members[0]->full_name, " on") : "";
    FlatParam& flat = *flat_params_.emplace_back(std::make_unique<FlatParam>(name_, part, members, mesh, config));
    flat.attach([this] { events_.writes(); }, [this, k = flat_params_.size() - 1] { grad_ready(k); });
    flat.full().storage()->on_missing([this] { events_.missing(*this); });
    permanent_ = flat.permanent();
  }
  grads_left_.resize(flat_params_.size());
  if (permanent_) state_ = UnitState::unsharded;
}

size_t Unit::full_bytes() const {
  size_t bytes = 0;
  for (const auto& flat : flat_params_) bytes += permanent_ || flat->common() ? 0 : flat->full_bytes();
  return bytes;
}

int64_t Unit::numel() const {
  int64_t total = 0;
  for (const auto& flat : flat_params_) total += flat->numel();
  return total;
}

bool Unit::has_frozen() const {
  auto frozen = [](const Tensor& parameter) { return !parameter.requires_grad(); };
  return std::ranges::any_of(flat_params_,
                             [&](const auto& flat) { return std::ranges::any_of(flat->parameters(), frozen); });
}

bool Unit::needs_gather() const {
  return std::ranges::any_of(flat_params_, [](const auto& flat) { return flat->needs_gather(); });
}

void Unit::transition(UnitState to) {
  bool legal = (state_ == UnitState::sharded && to == UnitState::gathering) ||
               (state_ == UnitState::gathering && to == UnitState::unsharded) ||
               (state_ == UnitState::unsharded && to != UnitState::unsharded);
  SG_ASSERT(legal, "unit '", name_, "' cannot go from ", name_of(state_), " to ", name_of(to));
  state_ = to;
}

void Unit::unshard(std::string_view phase) {
  if (!needs_gather()) return;
  wait();  // for a gather of what has changed since
  transition(UnitState::gathering);
  gather_among(nullptr, phase);
  for (auto& flat : flat_params_)
    if (flat->near()) return gather_among(flat->near(), phase);
}

// Those of its parts that this group holds between them; null: the whole row.
void Unit::gather_among(dist::ProcessGroup* group, std::string_view phase) {
  Gathers buffers;
  std::string which;  // of the parts, as 0 and 1
  try {
    for (auto& flat : flat_params_) {
      size_t before = buffers.size();
      if (flat->near() == group) flat->start_gather(buffers);
      which += char('0' + (buffers.size() - before));
    }
    dist::Work gather = mesh_.gather(buffers, {name_, std::string(phase)}, which.size() > 1 ? which : "", group);
    for (auto& flat : flat_params_)
      if (flat->near() == group) flat->gather_by(gather);
  } catch (...) {  // no memory is left for one of them: the others would wait for a gather that was never sent
    for (auto& flat : flat_params_)
      if (flat->near() == group) flat->give_up_gather();
    throw;
  }
}

void Unit::wait() {
  if (state_ != UnitState::gathering) return;
  for (auto& flat : flat_params_) flat->finish_gather();
  transition(UnitState::unsharded);
}

void Unit::take_secondary() {
  for (auto& flat : flat_params_) flat->take_secondary();
}

void Unit::reshard() {
  if (state_ == UnitState::sharded) return;
  wait();
  for (auto& flat : flat_params_) flat->release_full();
  if (!permanent_) transition(UnitState::sharded);
}

// Counts, once in a pass, the gradients that it will bring.
void Unit::expect_grads() {
  if (std::exchange(expected_pass_, backward_pass()) == backward_pass()) return;
  auto used = [](const Tensor& parameter) { return leaf_of(parameter).in_current_pass(); };
  for (size_t k = 0; k < flat_params_.size(); ++k)
    grads_left_[k] = int(std::ranges::count_if(flat_params_[k]->parameters(), used));
}

bool Unit::expects_grads() {
  expect_grads();
  return std::ranges::any_of(grads_left_, [](int left) { return left > 0; });
}

void Unit::grad_ready(size_t flat) {
  expect_grads();
  if (--grads_left_[flat] == 0) events_.grads(*this, *flat_params_[flat], !expects_grads());
}

}  // namespace shardgrad::fsdp
