#include <shardgrad/autograd/part.h>

#include <algorithm>

namespace shardgrad {

void check_part(const std::string& what, const Shape& shape, const Part& part) {
  if (part.extent == 0) return;
  SG_CHECK(part.dim >= 0 && part.dim < shape.ndim(), what, ": dimension ", part.dim, " of a part of shape ", shape,
           " does not exist");
  int64_t count = shape[part.dim];
  SG_CHECK(part.begin >= 0 && count <= part.extent && part.begin <= part.extent - count, what, ": ", count,
           " indices from ", part.begin, " on along dimension ", part.dim, " of shape ", shape, " are not a part of ",
           part.extent);
}

Shape whole_shape(const Shape& shape, const Part& part) {
  return part.extent == 0 ? shape : shape.with(part.dim, part.extent);
}

bool is_whole(const Shape& shape, const Part& part) { return part.extent == 0 || part.extent == shape[part.dim]; }

std::vector<PartRun> runs_of(const Shape& shape, const Part& part, int64_t begin, int64_t count) {
  if (count == 0) return {};
  if (is_whole(shape, part)) return {{begin, begin, count}};
  int64_t inner = 1;
  for (int d = part.dim + 1; d < shape.ndim(); ++d) inner *= shape[d];
  int64_t run = shape[part.dim] * inner, stride = part.extent * inner, end = begin + count;
  std::vector<PartRun> runs;
  for (int64_t at = begin, next; at < end; at = next) {
    next = std::min(end, (at / run + 1) * run);
    runs.push_back({at, at / run * stride + part.begin * inner + at % run, next - at});
  }
  return runs;
}

}  // namespace shardgrad
