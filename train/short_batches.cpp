#include <shardgrad/train/short_batches.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/rehearsal.h>

namespace shardgrad::train {
namespace {

// The samples that pass through a rank's model at a time.
struct Piece {
  int64_t batch;  // of which it is one
  int rank;
  int64_t rows, of_all;  // this rank's; with sync_batchnorm, of all ranks at the same time
};

// Of an epoch's batches, as far as the run comes.
std::vector<Piece> pieces(const Config& config, int64_t batch, int64_t samples, int ranks) {
  std::vector<int64_t> counts{samples > 0 ? std::min(batch, samples) : batch};
  bool comes_to_the_last = config.steps == 0 || config.steps > samples / batch;
  if (samples > batch && samples % batch != 0 && comes_to_the_last) counts.push_back(samples % batch);
  std::vector<Piece> all;
  int64_t passes = passes_of(config, ranks);
  for (int64_t count : counts) {
    std::vector<int64_t> of_all(static_cast<size_t>(passes), 0);
    auto part_of = [&](int rank) {
      return data::Batch{.count = data::part_of(count, rank, ranks).size(),
                         .grains = data::grains_of(count, config.grains, rank, ranks)};
    };
    for (int rank = 0; rank < ranks && config.sync_batchnorm; ++rank) {
      data::Batch part = part_of(rank);
      for (int64_t i = 0; i < passes; ++i) of_all[size_t(i)] += part.micro_batch(i, passes).count;
    }
    for (int rank : {0, ranks - 1}) {
      data::Batch part = part_of(rank);
      for (int64_t i = 0; i < passes; ++i)
        all.push_back({count, rank, part.micro_batch(i, passes).count, of_all[size_t(i)]});
    }
  }
  return all;
}

// What the task says against so many rows, by their number: empty for nothing. Sharded, and with its optimizers, as in
// a run.
class Trials {
 public:
  Trials(const Config& config, const data::Outline& data, dist::ProcessGroup& world)
      : config_(config), fields_(data.fields), rank_(config, data, world) {}
  const std::string& operator()(const Piece& piece) {
    auto [known, is_new] = known_.try_emplace(piece.rows);
    if (is_new) known->second = tried(piece);
    return known->second;
  }

 private:
  std::string tried(const Piece& piece) {
    data::Batch batch{.global_count = piece.batch, .count = piece.rows};
    for (const data::Field& field : fields_) batch.fields.push_back(zeros(field.rows(piece.rows), field.dtype));
    NoGrad no_grad;
    Autocast precision(forward_dtype(config_));
    try {
      rank_.task().loss(batch);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      return error.what();
    }
    return "";
  }

  const Config& config_;
  const std::vector<data::Field>& fields_;
  Rehearsal rank_;
  std::map<int64_t, std::string> known_;
};

// The nearest below and above `config.batch` that leave no such piece.
std::string nearest(const Config& config, const std::function<bool(int64_t batch)>& works) {
  constexpr int64_t kFarthest = 64;
  std::string found;
  for (int64_t step : {-1, 1})
    for (int64_t batch = config.batch + step; batch > 0 && std::abs(batch - config.batch) <= kFarthest; batch += step)
      if (works(batch)) {
        found += concat(found.empty() ? "; batch=" : " and batch=", batch);
        break;
      }
  return found.empty() ? "" : found + (found.find("and") == std::string::npos ? " works" : " work");
}

}  // namespace

void check_short_batches(const Config& config, const data::Outline& data, int ranks, const dist::PretendedRanks& as) {
  check_grains(config, ranks);
  auto body = [&](dist::ProcessGroup& world) {
    // A BatchNorm over all ranks needs two samples together; what it says of one it says where it is alone.
    Config apart = config;
    apart.sync_batchnorm = false;
    std::optional<Trials> each, alone;
    try {
      each.emplace(config, data, world);
      if (config.sync_batchnorm) alone.emplace(apart, data, world);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      return;  // whatever the batch is: the plan says it
    }
    auto says = [&](const Piece& piece) -> const std::string& {
      return (alone && piece.rows == 1 && piece.of_all == 1 ? *alone : *each)(piece);
    };
    auto works = [&](const Piece& piece) { return says(piece).empty(); };
    std::vector<Piece> all = pieces(config, config.batch, data.train, ranks);
    auto wrong = std::ranges::find_if_not(all, works);
    if (wrong == all.end()) return;
    std::string others = nearest(
        config, [&](int64_t batch) { return std::ranges::all_of(pieces(config, batch, data.train, ranks), works); });
    if (others.empty() && std::ranges::none_of(all, works)) return;
    fail("of ", wrong->batch < std::min(config.batch, data.train) ? "the last batch of an epoch" : "a batch", " (",
         wrong->batch, data.train > 0 ? concat(" of ", data.train) : "", " samples) rank ", wrong->rank, " gets ",
         wrong->rows, passes_of(config, ranks) > 1 ? " at a time: " : ": ", says(*wrong), others);
  };
  dist::run_one_of(ranks, body, uint64_t(config.seed), as);
}

}  // namespace shardgrad::train
