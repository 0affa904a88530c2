#include <shardgrad/dist/transports/two_level/two_level_transport.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/dist/transports/transports.h>

namespace shardgrad::dist {

std::unique_ptr<Transport> make_two_level_transport(std::unique_ptr<DirectTransport> machine,
                                                    std::unique_ptr<two_level::Link> link, const RankMap& map, int rank,
                                                    std::shared_ptr<Control> control) {
  return std::make_unique<two_level::TwoLevelTransport>(std::move(machine), std::move(link), map, rank,
                                                        std::make_shared<int64_t>(int64_t(rank + 1) << 32),
                                                        std::move(control));
}

}  // namespace shardgrad::dist

namespace shardgrad::dist::two_level {

/// The pieces in which a long broadcast goes on from machine to machine.
static constexpr size_t kPiece = size_t(1) << 20;

static void copy(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

TwoLevelTransport::TwoLevelTransport(std::unique_ptr<DirectTransport> inner, std::unique_ptr<Link> link, RankMap map,
                                     int rank, std::shared_ptr<int64_t> last_group, std::shared_ptr<Control> control)
    : Transport("two_level", rank, map.world_size(), std::move(control)),
      inner_(std::move(inner)),
      link_(std::move(link)),
      map_(std::move(map)),
      exchanges_(map_, rank),
      last_group_(std::move(last_group)) {
  inner_->set_members(map_.ranks_of(machine()));
}

// Step by step, those of several buffers together.
void TwoLevelTransport::follow(const Call& call, std::span<const std::vector<Step>> routes,
                               std::span<const Buffer> buffers) {
  size_t longest = 0;
  for (const std::vector<Step>& route : routes) longest = std::max(longest, route.size());
  for (size_t i = 0; i < longest; ++i) {
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (i >= routes[b].size()) continue;
      for (const auto& [peer, begin, end] : routes[b][i].receives)
        link_->receive(call, peer, buffers[b].data + begin, end - begin);
      for (const auto& [peer, begin, end] : routes[b][i].sends)
        link_->send(call, peer, buffers[b].data + begin, end - begin);
    }
    link_->complete([this] { check(); });
  }
}

// Of parts that other ranks of the machine carry.
void TwoLevelTransport::read_from_carriers(const Call& call, const Buffer& buffer, int parts,
                                           const std::function<int(int part)>& carrier) {
  std::vector<int> mine;
  for (int part = 0; part < parts; ++part)
    if (carrier(part) == rank()) mine.push_back(part);
  Cut cut = buffer.cut;
  DirectTransport::View view{buffer.data, parts, cut.stride, cut.total, 0, cut.stride, mine};
  inner_->look(call, view, [&](const DirectTransport::Piece& piece, size_t from, size_t to) {
    for (int i = 0; i < parts; ++i) {
      int part = (i + rank()) % parts;  // everybody begins elsewhere
      size_t begin = std::min(cut.end(part), cut.begin(part) + from),
             end = std::min(cut.end(part), cut.begin(part) + to);
      if (carrier(part) == rank() || begin == end) continue;
      copy(buffer.data + begin, piece(map_.local_rank(carrier(part)), part), end - begin);
    }
  });
}

void TwoLevelTransport::gather(const Call& call, std::span<const Buffer> buffers) {
  size_t total = 0;
  for (const Buffer& buffer : buffers) total += buffer.cut.total;
  std::vector<std::vector<Step>> routes;
  for (const Buffer& buffer : buffers) routes.push_back(gather_route(map_, rank(), buffer.cut, way_for(total)));
  follow(call, routes, buffers);
  for (const Buffer& buffer : buffers)
    read_from_carriers(call, buffer, size(), [this](int part) { return carrier(map_, machine(), part); });
}

void TwoLevelTransport::all_gather(const Call& call, void* full, const void* shard, size_t bytes) {
  GatherPart one{full, shard, bytes};
  gather_parts(call, {&one, 1});
}

void TwoLevelTransport::gather_parts(const Call& call, std::span<const GatherPart> parts) {
  std::vector<Buffer> buffers;
  for (const auto& [full, shard, bytes] : parts) {
    buffers.push_back({static_cast<std::byte*>(full), {bytes, bytes * size_t(size())}});
    copy(buffers.back().data + bytes * size_t(rank()), shard, bytes);
  }
  gather(call, buffers);
}

void TwoLevelTransport::reduce(const Call& call, void* out, const void* full, Cut cut, DType dtype) {
  Exchange& sums = exchanges_.of(dtype, Exchange::What::sums);
  sums.run(
      call, *inner_, *link_, full, cut, room_, [this] { check(); },
      [&](std::span<const Summed> parts, size_t from, size_t to) {
        join_subtrees(static_cast<std::byte*>(out) + from, parts, int64_t((to - from) / size_of(dtype)), dtype);
      });
}

void TwoLevelTransport::all_to_all(const Call& call, void* out, const void* in, size_t bytes) {
  Exchange& values = exchanges_.of(DType::u8, Exchange::What::values);
  auto take = [&](std::span<const Summed> parts, size_t from, size_t to) {
    for (const auto& [part, value] : parts)
      copy(static_cast<std::byte*>(out) + size_t(part.begin) * bytes + from, value, to - from);
  };
  values.run(
      call, *inner_, *link_, in, {bytes, bytes * size_t(size())}, room_, [this] { check(); }, take);
}

void TwoLevelTransport::reduce_scatter(const Call& call, void* shard, const void* full, int64_t n, DType dtype) {
  size_t bytes = size_t(n) * size_of(dtype);
  reduce(call, shard, full, {bytes, bytes * size_t(size())}, dtype);
}

void TwoLevelTransport::all_reduce(const Call& call, void* data, int64_t n, DType dtype) {
  Buffer buffer{static_cast<std::byte*>(data), slices_of(n, size(), dtype)};
  reduce(call, buffer.data + buffer.cut.begin(rank()), data, buffer.cut, dtype);
  gather(call, {&buffer, 1});
}

void TwoLevelTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  int parts = broadcast_parts(map_);
  size_t stride = (bytes + size_t(parts) - 1) / size_t(parts);
  Buffer buffer{static_cast<std::byte*>(data), {stride, bytes}};
  bool at_root = machine() == map_.node_rank(root);
  if (at_root) inner_->broadcast(call, data, bytes, map_.local_rank(root));
  std::vector<Step> route = broadcast_route(map_, rank(), root, buffer.cut, way_for(bytes), kPiece);
  follow(call, {&route, 1}, {&buffer, 1});
  if (!at_root)
    read_from_carriers(call, buffer, parts, [this](int part) { return broadcast_carrier(map_, machine(), part); });
}

void TwoLevelTransport::barrier(const Call& call) {
  inner_->barrier(call);
  std::byte words[2] = {};
  std::vector<Step> route = barrier_route(map_, rank());
  Buffer buffer{words, {1, 2}};
  follow(call, {&route, 1}, {&buffer, 1});
  inner_->barrier(call);
}

int64_t TwoLevelTransport::invite(int) { return ++*last_group_; }

// The members on each machine meet by a board that the first of them there makes. Those of one machine alone need no
// more.
std::unique_ptr<Transport> TwoLevelTransport::join(int64_t invitation, const std::vector<int>& members, int rank) {
  std::vector<int> machines, here, invited(size_t(inner_->size()));
  for (int member : members) {
    machines.push_back(map_.node_rank(member));
    if (machines.back() == machine()) here.push_back(map_.local_rank(member));
  }
  int first = here[0], me = map_.local_rank(this->rank());
  int index = int(std::ranges::find(here, me) - here.begin());
  std::vector<int64_t> words(size_t(inner_->size()));
  words[size_t(me)] = first == me ? inner_->invite(int(here.size())) : 0;
  Call call;
  call.lane = inner_->lane();
  call.fingerprint = 1;
  inner_->all_gather(call, words.data(), &words[size_t(me)], sizeof(int64_t));
  std::unique_ptr<Transport> joined = inner_->join(words[size_t(first)], here, index);
  if (here.size() == members.size()) return joined;
  auto inner = std::unique_ptr<DirectTransport>(static_cast<DirectTransport*>(joined.release()));
  return std::make_unique<TwoLevelTransport>(std::move(inner), link_->join(invitation, members, rank), map_of(machines),
                                             rank, last_group_, shared_control());
}

void TwoLevelTransport::abandon() {
  Transport::abandon();
  inner_->abandon();
}

}  // namespace shardgrad::dist::two_level
