#include <shardgrad/train/short_batches.h>

#include <algorithm>
#include <functional>
#include <map>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/grains.h>

namespace shardgrad::train {
namespace {

// The samples that pass through a rank's model at a time.
struct Piece {
  int64_t batch;  // of which it is one
  int rank;
  int64_t rows;
};

std::vector<Piece> pieces(const Config& config, int64_t batch, int64_t samples, int ranks) {
  std::vector<int64_t> counts{samples > 0 ? std::min(batch, samples) : batch};
  if (samples > batch && samples % batch != 0) counts.push_back(samples % batch);
  std::vector<Piece> all;
  for (int64_t count : counts)
    for (int rank : {0, ranks - 1}) {
      data::Batch part{.count = data::part_of(count, rank, ranks).size(),
                       .grains = data::grains_of(count, config.grains, rank, ranks)};
      for (int64_t passes = passes_of(config, ranks), i = 0; i < passes; ++i)
        all.push_back({count, rank, part.micro_batch(i, passes).count});
    }
  return all;
}

// What the task says against so many rows, by their number: empty for nothing.
class Trials {
 public:
  Trials(const Config& config, const data::Outline& data)
      : config_(config), fields_(data.fields), task_(make_task(config, data.fields)) {}
  const std::string& operator()(const Piece& piece) {
    auto [known, is_new] = known_.try_emplace(piece.rows);
    if (is_new) known->second = tried(piece);
    return known->second;
  }

 private:
  std::string tried(const Piece& piece) {
    data::Batch batch{.global_count = piece.batch, .count = piece.rows};
    for (const data::Field& field : fields_) batch.fields.push_back(zeros(field.rows(piece.rows), field.dtype));
    Autocast precision(forward_dtype(config_));
    try {
      task_->loss(batch);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) throw;
      return error.what();
    }
    return "";
  }

  const Config& config_;
  const std::vector<data::Field>& fields_;
  std::unique_ptr<Task> task_;
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
  auto body = [&](dist::ProcessGroup&) {
    Trials says(config, data);
    auto works = [&](int64_t batch) {
      return std::ranges::all_of(pieces(config, batch, data.train, ranks),
                                 [&](auto& each) { return says(each).empty(); });
    };
    for (const Piece& piece : pieces(config, config.batch, data.train, ranks))
      SG_CHECK(says(piece).empty(), "of ",
               piece.batch < std::min(config.batch, data.train) ? "the last batch of an epoch" : "a batch", " (",
               piece.batch, data.train > 0 ? concat(" of ", data.train) : "", " samples) rank ", piece.rank, " gets ",
               piece.rows, passes_of(config, ranks) > 1 ? " at a time: " : ": ", says(piece), nearest(config, works));
  };
  dist::run_one_of(ranks, body, uint64_t(config.seed), as);
}

}  // namespace shardgrad::train
