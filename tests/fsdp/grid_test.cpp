// One grid: every choice with every other, loss, norm, weights and optimizer state bit for bit, with clipping, weight
// decay, accumulation and dropout on, and on device acc random legal delays. The fast tests are every kth cell of it;
// the slow ones are all of it for one model and a part for each of the models of models.h. k has no factor in common
// with the lengths of the axes, so a part meets every pair of choices. Devices with the kernels of kernels/cuda are
// compared with themselves, on a sample of cells: the simulator is slow. In a part each number of ranks meets each
// strategy.

#include <gtest/gtest.h>

#include <set>

#include "tests/devices.h"
#include "tests/fsdp/regions.h"

namespace shardgrad::fsdp::testing {
namespace {

struct Wrapping {
  const char* name;
  WrapPolicy policy;
};
const std::vector<Wrapping> kWrappings{{"children", {}},
                                       {"every module", wrap_by_size(1)},
                                       {"at least 120", wrap_by_size(120)},
                                       {"one unit", wrap_by_size(1 << 30)},
                                       {"blocks", kWrap}};

struct Cell {
  TrainingRun setup;
  Where recompute;
  const char* wrapping;
};

// zero2 is zero3 without resharding after forward, so the choice to reshard is one of strategies.
std::vector<Config> strategies_of_grid(int world) {
  std::vector<Config> all{{.strategy = Strategy::ddp, .bucket_bytes = 0},
                          {.strategy = Strategy::zero1, .bucket_bytes = 0},
                          {.strategy = Strategy::zero2},
                          {.strategy = Strategy::zero2, .keep_params = true, .bucket_bytes = 0},
                          {.strategy = Strategy::zero3}};
  if (world == 4) all.push_back({.strategy = Strategy::hybrid, .shard_ranks = 2});
  return all;
}

// Placements: of parameters, of gradients. On device cpu there is nothing to move.
std::vector<std::pair<bool, bool>> placements(const Config& config, Device device) {
  if (config.keeps_params() || device == kCpu) return {{false, false}};
  return {{false, false}, {false, true}, {true, false}, {true, true}};
}

TrainingRun plain(int world, bool no_sync) {
  TrainingRun setup{.world = world, .optim = Optim::adamw, .steps = 3, .micro = 2, .no_sync = no_sync, .clip = 0.05};
  setup.config = {.strategy = Strategy::ddp, .prefetch = 0, .bucket_bytes = 0};
  return setup;
}

std::vector<Cell> grid(int world, bool no_sync, const std::vector<Device>& devices = {kCpu, kAcc}) {
  std::vector<Cell> cells;
  for (const Config& config : strategies_of_grid(world))
    for (int prefetch : {0, 1, 2})
      for (Where recompute :
           {Where::nothing, Where::inside_units, Where::around_units, Where::nested, Where::everything})
        for (const Wrapping& wrapping : kWrappings)
          for (Device device : devices)
            for (auto [params, grads] : placements(config, device)) {
              TrainingRun setup = plain(world, no_sync);
              setup.config = config;
              setup.config.prefetch = prefetch;
              setup.config.wrap = wrapping.policy;
              setup.config.move_params_to_cpu = params;
              setup.config.move_grads_to_cpu = grads;
              setup.device = device;
              setup.max_delay = std::chrono::microseconds(20);                                      // there are many
              if (device == kAcc) setup.delay_seed = 100'000 * uint64_t(world) + cells.size() + 1;  // each its own
              cells.push_back({setup, recompute, wrapping.name});
            }
  return cells;
}

std::string describe(const Cell& cell) {
  const Config& config = cell.setup.config;
  return concat(name_of(config.strategy), config.keep_params ? " keep_params" : "", " W=", cell.setup.world,
                cell.setup.no_sync ? " no_sync" : " synced", " prefetch ", config.prefetch, " recompute ",
                int(cell.recompute), " units: ", cell.wrapping, " on ", cell.setup.device,
                " cpu: ", config.move_params_to_cpu ? "params " : "", config.grads_to_cpu() ? "grads" : "", " delays ",
                cell.setup.delay_seed);
}

class Grid : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void expect_same_bits(size_t every) {
    auto [world, no_sync] = GetParam();
    Outcome expected = train_with(Where::nothing, plain(world, no_sync));
    EXPECT_GT(expected.norms[0], plain(world, no_sync).clip) << "clipping must bite";
    std::vector<Cell> cells = grid(world, no_sync);
    expect_same_bits(cells, every, (14 * size_t(world - 1) + 7 * no_sync) % every, expected);
  }

  // Where parameters move to the CPU, its kernels make the step: the numbers of those cells are not the device's own.
  void expect_same_bits_on(Device device, size_t every, int steps) {
    auto [world, no_sync] = GetParam();
    TrainingRun setup = plain(world, no_sync);
    setup.device = device;
    setup.steps = steps;
    std::vector<Cell> cells = grid(world, no_sync, {device});
    std::erase_if(cells, [](const Cell& cell) { return cell.setup.config.move_params_to_cpu; });
    for (Cell& cell : cells) cell.setup.steps = steps;
    expect_same_bits(cells, every, 8 * size_t(world - 1) % every, train_with(Where::nothing, setup));
  }

 private:
  void expect_same_bits(const std::vector<Cell>& cells, size_t every, size_t first, const Outcome& expected) {
    auto kind = [](const Cell& cell) { return std::pair(cell.setup.config.strategy, cell.setup.config.keep_params); };
    std::set<std::pair<Strategy, bool>> tried, all;
    for (const Cell& cell : cells) all.insert(kind(cell));
    for (size_t i = first; i < cells.size(); i += every) {
      EXPECT_TRUE(train_with(cells[i].recompute, cells[i].setup) == expected) << describe(cells[i]);
      tried.insert(kind(cells[i]));
    }
    EXPECT_TRUE(tried == all) << "a part has every strategy";
  }
};
class GridOnDevices : public Grid {};
using GridSlow = Grid;

const auto kRanksAndModes = ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool());
std::string title(const ::testing::TestParamInfo<std::tuple<int, bool>>& info) {
  return concat("W", std::get<0>(info.param), std::get<1>(info.param) ? "_no_sync" : "_synced");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Grid, kRanksAndModes, title);
INSTANTIATE_TEST_SUITE_P(Ranks, GridSlow, kRanksAndModes, title);
const std::tuple<int, bool> kEachModeOnce[] = {{2, true}, {4, false}};
INSTANTIATE_TEST_SUITE_P(Ranks, GridOnDevices, ::testing::ValuesIn(kEachModeOnce), title);

TEST_P(Grid, I01_I02_I03_I05_APartOfAllChoicesGivesTheSameBits) { expect_same_bits(107); }
TEST_P(GridOnDevices, I02_I03_I05_APartOfAllChoicesGivesTheSameBitsOnDevices) {
  for (Device device : test::kernel_devices()) expect_same_bits_on(device, 107, 2);
}
TEST_P(GridSlow, I02_I03_I05_APartOfAllChoicesGivesTheSameBitsOnDevices) {
  for (Device device : test::kernel_devices()) expect_same_bits_on(device, 11, 3);
}
TEST_P(GridSlow, I01_I02_I03_I05_AllChoicesGiveTheSameBits) { expect_same_bits(1); }

// The hard models have no regions.
using GridModels = ModelList<Chain, Rooted, Flat, Twice, Unused, Frozen, Tied, TiedAcross, TiedToParent, Tiny, Dropping,
                             Wide, FrozenAround, TwoIn, TwoOut, Siamese>;
class GridOfModelsSlow : public ::testing::TestWithParam<MakeModel> {};
INSTANTIATE_TEST_SUITE_P(Models, GridOfModelsSlow, GridModels::values(), GridModels::title);

TEST_P(GridOfModelsSlow, I03_I05_APartOfAllChoicesGivesTheSameBits) {
  for (int world : {1, 2, 3, 4})
    for (bool no_sync : {false, true}) {
      Outcome expected = train(GetParam(), plain(world, no_sync));
      std::vector<Cell> cells = grid(world, no_sync);
      std::erase_if(cells, [](const Cell& cell) { return cell.recompute != Where::nothing; });
      for (size_t i = 0; i < cells.size(); i += 7)
        EXPECT_TRUE(train(GetParam(), cells[i].setup) == expected) << describe(cells[i]);
    }
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
