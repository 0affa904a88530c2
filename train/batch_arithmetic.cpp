#include <shardgrad/train/batch_arithmetic.h>

#include <shardgrad/core/error.h>

namespace shardgrad::train {

static std::string one_or_other(int64_t least, int64_t most) {
  return least == most ? std::to_string(least) : concat(least, " or ", most);
}

// `count` things in `parts` parts differ by at most one (data::part_of), and so do the parts of these.
std::string batch_arithmetic(int64_t batch, int64_t ranks, int64_t micro_batches, int64_t grains, int64_t samples) {
  int64_t parts = grains > 0 ? grains : ranks, least = batch / parts, most = (batch + parts - 1) / parts;
  int64_t even = grains > 0 ? grains : ranks * micro_batches;
  std::string text = concat("batch ", batch, " = ", parts,
                            grains == 1  ? " grain · "
                            : grains > 1 ? " grains · "
                            : ranks == 1 ? " rank · "
                                         : " ranks · ",
                            one_or_other(least, most));
  if (grains > 0)
    text += concat(", ", grains / ranks, " on ", ranks == 1 ? "1 rank" : concat("each of ", ranks, " ranks"));
  else if (micro_batches > 1)
    text += concat(", in ", micro_batches, " micro-batches of ",
                   one_or_other(least / micro_batches, (most + micro_batches - 1) / micro_batches));
  int64_t steps = (samples + batch - 1) / batch, last = samples - (steps - 1) * batch;
  text += concat("; ", steps, steps == 1 ? " step" : " steps", " an epoch");
  if (last != batch) text += concat(steps == 1 ? ", of " : ", the last of ", last);
  if (batch % even == 0) return text;
  int64_t below = batch / even * even;
  return text + concat(" (every part the same: ", below > 0 ? concat(below, ", ") : "", below + even, ")");
}

}  // namespace shardgrad::train
