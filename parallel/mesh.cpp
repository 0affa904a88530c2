#include <shardgrad/parallel/mesh.h>

#include <algorithm>

namespace shardgrad::parallel {

static std::string text_of(const std::vector<Axis>& axes) {
  std::string text;
  for (const Axis& axis : axes) text += concat(text.empty() ? "" : " x ", axis.name, " ", axis.size);
  return text;
}

static void check(const std::vector<Axis>& axes, int ranks) {
  int64_t product = 1;
  for (const Axis& axis : axes) {
    SG_CHECK(!axis.name.empty() && axis.size >= 1,
             "mesh: an axis needs a name and a size of at least 1: ", text_of(axes));
    SG_CHECK(std::ranges::count(axes, axis.name, &Axis::name) == 1, "mesh: two axes are named '", axis.name, "'");
    product *= axis.size;
    SG_CHECK(product <= ranks, "mesh: ", text_of(axes), " has more places than the ", ranks, " ranks");
  }
  SG_CHECK(product == ranks, "mesh: ", text_of(axes), " has ", product, " places, there are ", ranks, " ranks");
}

Mesh::Mesh(dist::ProcessGroup& world, std::vector<Axis> axes) : world_(world), axes_(std::move(axes)) {
  check(axes_, world.size());
  int stride = world.size();
  for (const Axis& axis : axes_) {
    stride /= axis.size;
    coordinates_.push_back(world.rank() / stride % axis.size);
    groups_.push_back(axis.size == world.size() ? &world : &world.kept_split(stride, axis.size, axis.name));
  }
}

size_t Mesh::index(std::string_view axis) const {
  auto found = std::ranges::find(axes_, axis, &Axis::name);
  SG_CHECK(found != axes_.end(), "mesh: there is no axis '", axis, "' in ", text_of(axes_));
  return size_t(found - axes_.begin());
}

}  // namespace shardgrad::parallel
