// What a group's ranks make together besides collectives: groups within it, and common memory.

#include <algorithm>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {

template <class T> std::vector<T> ProcessGroup::share(const std::vector<T>& mine, const Label& label) {
  auto count = int64_t(mine.size());
  Tensor full = empty({size() * count}, {dtype_of<T>, kCpu});
  all_gather(full, from_vector(mine, {count}, {dtype_of<T>, kCpu}), label).host_wait();
  return full.to_vector<T>();
}
template std::vector<int64_t> ProcessGroup::share(const std::vector<int64_t>&, const Label&);
template std::vector<double> ProcessGroup::share(const std::vector<double>&, const Label&);

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, const std::string& name) {
  SG_CHECK(kind() != "pretended",
           "split: the other ranks of this plan do not exist, so nobody knows their groups; "
           "kept_split and parallel::Mesh make groups that follow from the ranks' numbers");
  std::vector<int64_t> wishes = share<int64_t>({color, key}, {"", "split"});
  std::vector<int> ranks;  // of the new group, as ranks of this one
  for (int r = 0; r < size(); ++r)
    if (wishes[size_t(2 * r)] == color) ranks.push_back(r);
  std::ranges::stable_sort(ranks, {}, [&](int r) { return wishes[size_t(2 * r + 1)]; });
  return make_group(ranks, color, name);
}

// Of `ranks` of this group, which hold the calling one; all members of this group call it. `color`: of the groups that
// are made by one call another one for each.
std::unique_ptr<ProcessGroup> ProcessGroup::make_group(const std::vector<int>& ranks, int color,
                                                       const std::string& name) {
  int index = int(std::ranges::find(ranks, rank()) - ranks.begin());

  int64_t invitation = index == 0 ? transport_->invite(int(ranks.size())) : 0;
  std::vector<int64_t> invitations = share<int64_t>({invitation}, {"", "split"});
  auto transport = transport_->join(invitations[size_t(ranks[0])], ranks, index);
  std::vector<int> members;
  for (int r : ranks) members.push_back(global_rank(r));
  uint64_t id = (id_ * 1000003 + uint64_t(++splits_)) * 1000003 + uint64_t(uint32_t(color)) + 1;
  GroupOptions options = options_;
  options.name = name;
  auto group = std::make_unique<ProcessGroup>(std::move(transport), control_, std::move(members), id, options);
  barrier(Label{"", "split"});  // every member watches the new group before anyone uses it
  return group;
}

ProcessGroup& ProcessGroup::kept_split(int stride, int size, const std::string& name) {
  SG_CHECK(stride >= 1 && size >= 1 && this->size() % (int64_t(stride) * size) == 0, "kept_split: groups of ", size,
           " ranks that lie ", stride, " apart do not divide ", this->size(), " ranks");
  for (KeptSplit& kept : kept_splits_)
    if (kept.stride == stride && kept.size == size && kept.name == name) return *kept.group;
  note(concat("groups of ", size, " ranks that lie ", stride, " apart"));
  int first = rank() - rank() / stride % size * stride;
  std::vector<int> ranks;
  for (int i = 0; i < size; ++i) ranks.push_back(first + i * stride);
  auto group = make_group(ranks, first, name);
  return *kept_splits_.emplace_back(KeptSplit{stride, size, name, std::move(group)}).group;
}

std::shared_ptr<CommonMemory> ProcessGroup::common_memory(size_t bytes) {
  Device device = context_.default_device();
  if (!transport_->has_common_memory() || (device != kCpu && device != kMeta)) return nullptr;
  if (device == kMeta) return std::make_shared<CommonMemory>(nullptr, rank(), size(), bytes);
  int lender = loans_++ % size();  // in turn, so that no rank's memory is used up before the others'
  int64_t loan = rank() == lender ? transport_->lend(bytes) : 0;
  loan = share<int64_t>({loan}, {"", "common memory"})[size_t(lender)];
  return loan ? transport_->borrow(loan, bytes) : nullptr;
}

}  // namespace shardgrad::dist
