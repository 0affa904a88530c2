#include <shardgrad/train/agreement.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/train/checkpoint/run_folder.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {

void check_same(dist::ProcessGroup& world, const char* what, uint64_t value) {
  Tensor mine = from_vector<int64_t>({int64_t(value)}, {1}), all = empty({world.size()}, DType::i64);
  world.all_gather(all, mine, dist::Label{"", "start"}).host_wait();
  auto values = all.to_vector<int64_t>();
  for (int rank = 1; rank < world.size(); ++rank)
    SG_CHECK(values[size_t(rank)] == values[0], what, " of rank ", rank,
             " differs from that of rank 0; every rank must be given the same files and options");
}

void check_same_program(dist::ProcessGroup& world, const BuildInfo& build) {
  std::string all;
  for (const char* each : {build.version, build.git, build.compiler, build.onednn, build.openmp, build.cuda})
    all += concat(each, '\n');
  check_same(world, "the program (shardgrad --version)", hash_of(all));
}

int64_t sum_over_ranks(dist::ProcessGroup& world, int64_t value, const char* phase) {
  Tensor total = from_vector<int64_t>({value}, {1});
  world.all_reduce(total, dist::Label{"", phase}).host_wait();
  return int64_t(total.item());
}

// Of a folder that takes no file, the folder is named.
static void write_token(const std::string& token, const std::string& folder) {
  try {
    write_file(token, "\n");
  } catch (const Error& error) {
    std::string why = error.what();
    if (size_t at = why.find(token); at != std::string::npos) why.replace(at, token.size(), folder);
    fail(why, "; a run writes into its folder, so set runs to one that can be written");
  }
}

// A file that only this run knows tells whether all see the same folder.
void check_folder_is_shared(dist::ProcessGroup& world, const std::string& folder) {
  auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
  std::string token = dist::same_text(world, {"", "start"}, concat(folder, "/", kSeen, getpid(), "-", ticks));
  if (world.rank() == 0) write_token(token, folder);
  world.barrier({{"", "start"}});
  SG_CHECK(std::filesystem::exists(token), "rank ", world.rank(), " does not see the run's folder '", folder,
           "', in which every rank saves its part; set runs to a folder that all ranks share");
  world.barrier({{"", "start"}});
  if (world.rank() == 0) std::filesystem::remove(token);
}

Agreed Agreement::agree(int64_t step, double seconds_per_step, const News& mine) {
  constexpr int64_t kMostSteps = 16;
  bool stop = world_.control().stop_requested();
  Tensor sums = from_vector<double>(
      {seconds_per_step, double(stop), double(mine.save), double(mine.writing), double(mine.trouble)}, {5},
      {DType::f64, kCpu});
  world_.all_reduce(sums, dist::Label{"", "agree"}).host_wait();
  std::vector<double> over_ranks = sums.to_vector<double>();
  double steps_per_second = double(world_.size()) / over_ranks[0];
  next_ = step + int64_t(std::clamp(steps_per_second, 1.0, double(kMostSteps)));
  return {{over_ranks[2] > 0, over_ranks[3] > 0, over_ranks[4] > 0}, over_ranks[1] > 0};
}

void Interruptible::done(int64_t batches) {
  if (batches == batches_ || !talks_.is_time(batches)) return;
  int64_t before = context().recorder().total_bytes_sent();
  if (talks_.agree(batches, (seconds_() - begin_) / double(batches), {}).stop) throw AskedToEnd();
  sent_ += context().recorder().total_bytes_sent() - before;
}

}  // namespace shardgrad::train
