#include <shardgrad/fsdp/state/replicas.h>

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/fsdp/start.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::fsdp {

void check_replicas(Sharded& sharded, const char* call) {
  if (!sharded.mesh().replica()) return;
  sharded.settle(call);
  std::vector<int64_t> mine;
  for (const auto& [name, where] : sharded.index()) {
    where.flat->wait_for_shard();
    Owned own = where.flat->owned(where.slice);
    mine.push_back(int64_t(hash_of_values(where.flat->shard().rows(own.at, own.at + own.padded))));
  }
  dist::ProcessGroup& world = sharded.group();
  auto parts = size_t(sharded.mesh().parts()), ranks = size_t(world.size()), count = mine.size();
  bool same = true;
  std::vector<int64_t> all = world.share<int64_t>({int64_t(hash_of_numbers(mine))}, {"", call});
  for (size_t rank = parts; rank < ranks; ++rank) same = same && all[rank] == all[rank % parts];
  if (same) return;
  std::vector<int64_t> each = world.share(mine, {"", call});
  size_t i = 0;
  for (const auto& [name, where] : sharded.index()) {
    for (size_t rank = parts; rank < ranks; ++rank)
      SG_CHECK(each[rank * count + i] == each[rank % parts * count + i], call, ": rank ", world.global_rank(int(rank)),
               " and rank ", world.global_rank(int(rank % parts)), " hold copies of '", name, "' of unit '",
               where.unit->name(),
               "' that are not the same any more. Something has changed it on one of them only, or ",
               "their gradients or learning rates differ");
    ++i;
  }
}

std::vector<uint64_t> buffer_versions(std::span<const NamedParameter> buffers) {
  std::vector<uint64_t> versions;
  for (const NamedParameter& buffer : buffers) versions.push_back(buffer.tensor.version());
  return versions;
}

// Floating ones that a rank of the group has written since `before`.
static std::vector<Tensor> written_since(std::span<const NamedParameter> buffers, std::span<const uint64_t> before,
                                         dist::ProcessGroup& group) {
  std::vector<Tensor> floating, written;
  std::vector<int64_t> mine;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (!is_floating(buffers[i].tensor.dtype())) continue;
    floating.push_back(buffers[i].tensor.detach());
    mine.push_back(before.empty() || buffers[i].tensor.version() != before[i]);
  }
  if (floating.empty() || before.empty()) return floating;
  std::vector<int64_t> all = group.share(mine, {"", "average_buffers"});
  for (size_t i = 0; i < floating.size(); ++i) {
    bool any = false;
    for (size_t at = i; at < all.size(); at += mine.size()) any = any || all[at] != 0;
    if (any) written.push_back(floating[i]);
  }
  return written;
}

void average_buffers(std::span<const NamedParameter> buffers, dist::ProcessGroup& group,
                     std::span<const uint64_t> before) {
  if (group.size() == 1) return;
  NoGrad no_grad;
  TagScope owner(Category::workspace);
  std::vector<Tensor> own = written_since(buffers, before, group), wide;
  if (own.empty()) return;
  for (const Tensor& each : own) wide.push_back(reshape(each, {each.numel()}).to(DType::f64).to(own[0].device()));
  Tensor all = cat(wide, 0);
  wide.clear();
  group.all_reduce(all, {{"", "average_buffers"}}).wait(context().backend(all.device()).compute());
  int64_t at = 0;
  for (const Tensor& each : own) {
    Tensor mean = all.rows(at, at + each.numel()) / double(group.size());
    copy_into(each, reshape(mean, each.shape()).to(each.dtype()).to(each.device()));
    at += each.numel();
  }
}

// Which parts of parameters a rank holds, as a number.
static int64_t number_of(std::span<const Part> parts) {
  std::vector<int64_t> numbers;
  for (const Part& part : parts) numbers.insert(numbers.end(), {part.dim, part.begin, part.extent});
  return int64_t(hash_of_numbers(numbers));
}

// What each rank has of the buffers, as hashes, and which parts it holds.
struct BufferHashes {
  std::vector<int64_t> all;
  size_t each;
  int64_t of(size_t rank, size_t i) const { return all[rank * each + i]; }
  size_t ranks() const { return all.size() / each; }
  bool differ(size_t i) const {
    for (size_t rank = 1; rank < ranks(); ++rank)
      if (of(rank, i) != of(0, i)) return true;
    return false;
  }
  // The copies of each part, in the order of ranks, have seen the same as those of the others.
  bool same_for_all_parts(size_t i) const {
    std::map<int64_t, std::vector<int64_t>> by_part;
    for (size_t rank = 0; rank < ranks(); ++rank) by_part[of(rank, each - 1)].push_back(of(rank, i));
    return std::ranges::all_of(by_part, [&](const auto& part) { return part.second == by_part.begin()->second; });
  }
};

static std::map<std::string, Tensor> mean_buffers(std::span<const NamedParameter> buffers, std::span<const Part> parts,
                                                  dist::ProcessGroup& group) {
  constexpr const char* kCall = "mean_buffers";
  NoGrad no_grad;
  TagScope owner(Category::other);
  if (buffers.empty()) return {};
  std::vector<int64_t> mine;
  for (const NamedParameter& buffer : buffers) mine.push_back(int64_t(hash_of_values(buffer.tensor)));
  mine.push_back(number_of(parts));
  BufferHashes hashes{group.share(mine, {"", kCall}), mine.size()};
  std::map<std::string, Tensor> means;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Tensor& own = buffers[i].tensor;
    Tensor& mean = means[buffers[i].name] = clone(own.detach().to(kCpu));
    if (!hashes.differ(i)) continue;
    SG_CHECK(
        hashes.same_for_all_parts(i), kCall, ": the buffer '", buffers[i].name, "' differs between ranks that ",
        "hold different parts of the model, and a state has one tensor of that name; keep it in a frozen parameter ",
        "with a Part");
    if (!is_floating(own.dtype())) {
      group.broadcast(mean, 0, {{"", kCall}}).host_wait();
      continue;
    }
    Tensor sum = mean.to(DType::f64);
    group.all_reduce(sum, {{"", kCall}}).host_wait();
    mean = (sum / double(group.size())).to(own.dtype());
  }
  return means;
}

std::map<std::string, Tensor> mean_buffers(nn::Module& module, dist::ProcessGroup& group) {
  TagScope owner(Category::other);
  module.materialize();
  std::vector<Part> parts;
  for (const NamedParameter& parameter : module.named_parameters()) parts.push_back(parameter.part);
  return mean_buffers(module.saved_buffers(), parts, group);
}

std::map<std::string, Tensor> mean_buffers(const Sharded& sharded) {
  std::vector<Part> parts;
  for (const auto& [name, where] : sharded.index()) parts.push_back(where.flat->slices()[where.slice].part);
  for (const NamedParameter& left : sharded.left_out()) parts.push_back(left.part);
  return mean_buffers(sharded.saved_buffers(), parts, sharded.holders());
}

}  // namespace shardgrad::fsdp
