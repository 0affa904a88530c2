#include <shardgrad/fsdp/start.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/rng.h>

namespace shardgrad::fsdp {
namespace {

std::vector<NamedParameter> state_of(nn::Module& root) {
  std::vector<NamedParameter> state = root.named_parameters();
  std::erase_if(state, [](const NamedParameter& p) { return p.tensor.storage()->tag().unit != 0; });  // sharded before
  for (NamedParameter& buffer : root.named_buffers()) state.push_back(std::move(buffer));
  return state;
}

}  // namespace

uint64_t hash_of_values(const Tensor& tensor) {
  if (!tensor.storage()->resident() || !tensor.storage()->data()) return 0;
  Tensor host = tensor.detach().to(kCpu);
  auto* bytes = static_cast<const char*>(host.in().data);
  uint64_t hash = 1;
  auto add = [&hash](uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  size_t size = host.bytes(), at = 0;
  for (uint64_t word; at + sizeof(word) <= size; at += sizeof(word)) {
    std::memcpy(&word, bytes + at, sizeof(word));
    add(word);
  }
  for (; at < size; ++at) add(uint8_t(bytes[at]));
  return hash;
}

std::array<int64_t, 2> seeds_of(nn::Module& root) {
  std::vector<int64_t> each;
  for (const auto& parameter : root.parameter_entries())
    if (!parameter.object->initialised) each.push_back(int64_t(parameter.object->init.seed.value_or(0)));
  int64_t now = int64_t(context().seed());
  bool one = std::ranges::all_of(each, [&](int64_t seed) { return seed == each[0]; });
  return {now, each.empty() ? now : one ? each[0] : int64_t(hash_of_numbers(each))};
}

uint64_t hash_of_numbers(std::span<const int64_t> numbers) {
  return hash_of({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

void check_same_start(nn::Module& root, const std::string& structure, dist::ProcessGroup& world, bool from_rank0) {
  const dist::Label label{"", "fully_shard"};
  std::vector<NamedParameter> state = state_of(root);
  std::vector<int64_t> values;
  for (const NamedParameter& each : state) values.push_back(int64_t(from_rank0 ? 0 : hash_of_values(each.tensor)));
  auto [seed, made_with] = from_rank0 ? std::array<int64_t, 2>{} : seeds_of(root);
  const std::vector<int64_t> mine{int64_t(hash_of(structure)), seed, made_with, int64_t(hash_of_numbers(values))};
  std::vector<int64_t> all = world.share(mine, label);
  auto of = [&](int rank, size_t what) { return all[size_t(rank) * mine.size() + what]; };
  auto differs = [&](size_t what) {
    for (int rank = 1; rank < world.size(); ++rank)
      if (of(rank, what) != of(0, what)) return rank;
    return 0;
  };
  auto both = [&](int rank) { return concat("rank ", world.global_rank(rank), " and rank ", world.global_rank(0)); };
  const char* remedy = ", or start from rank 0's values with Config::sync_module_states";
  if (int rank = differs(0))
    fail("fully_shard: ", both(rank), " have different models or sharding options; build the same on every rank");
  for (size_t what : {1, 2})
    if (int rank = differs(what))
      fail("fully_shard: ", both(rank), what == 1 ? " have" : " made their models with", " different seeds, ",
           uint64_t(of(rank, what)), " and ", uint64_t(of(0, what)),
           ", so they would train different models; give every rank the same seed, since samples are ",
           "divided by rank and not by seed", remedy);
  if (!differs(3)) return;
  std::vector<int64_t> each = world.share(values, label);
  for (size_t i = 0; i < state.size(); ++i)
    for (int rank = 1; rank < world.size(); ++rank) {
      int64_t here = each[size_t(rank) * state.size() + i], first = each[i];  // 0: has no values yet
      SG_CHECK((here == 0) == (first == 0), "fully_shard: only one of ranks ", world.global_rank(rank), " and ",
               world.global_rank(0), " has given '", state[i].name, "' its values (by a call, or by materialize); ",
               "do the same on every rank before fully_shard");
      SG_CHECK(here == first, "fully_shard: ", both(rank), " have other values in '", state[i].name,
               "', set or loaded before fully_shard; set the same on every rank", remedy);
    }
}

void broadcast_rest(nn::Module& root, std::span<const NamedParameter> left_out, dist::ProcessGroup& world) {
  auto send = [&](const Tensor& tensor) {
    world.broadcast(tensor.detach(), 0, {{"", "fully_shard"}}).wait(context().backend(tensor.device()).compute());
  };
  for (const NamedParameter& parameter : left_out) send(parameter.tensor);
  for (auto& [name, module] : root.named_modules())
    for (const auto& buffer : module->own_buffers()) {
      buffer.object->materialize();
      send(buffer.object->tensor);
    }
}

}  // namespace shardgrad::fsdp
