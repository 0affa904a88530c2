#include <shardgrad/fsdp/plan.h>

#include <algorithm>
#include <iomanip>
#include <mutex>
#include <set>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/core/columns.h>
#include <shardgrad/kernels/workspace.h>

namespace shardgrad::fsdp {
namespace {

constexpr double kMost = 0.5;  // of the parameters in one unit: worth a warning

std::string percent(double share) { return concat(int64_t(100 * share + 0.5), " %"); }

std::string mebibytes(int64_t bytes) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << double(bytes) / (1 << 20);
  return out.str();
}

// Those that have parameters in the unit.
int count_modules(const Sharded& sharded, const Unit& unit) {
  std::set<std::string> modules;
  for (const auto& [name, location] : sharded.index())
    if (location.unit == &unit) modules.insert(name.substr(0, name.rfind('.') + 1));
  return int(modules.size());
}

// The peak of everything but workspaces while it lives.
class PeakOfTensors {
 public:
  explicit PeakOfTensors(Ledger& ledger) : ledger_(ledger) {
    current_ = peak_ = ledger.current() - ledger.current(Category::workspace);
    ledger.on_change([this](Tag tag, int64_t bytes) {
      if (tag.category == Category::workspace) return;
      std::lock_guard lock(mutex_);
      peak_ = std::max(peak_, current_ += bytes);
    });
  }
  ~PeakOfTensors() { ledger_.on_change(nullptr); }
  int64_t get() const { return peak_; }

 private:
  Ledger& ledger_;
  std::mutex mutex_;
  int64_t current_, peak_;
};

// Every record stays, of however many collectives a step is made.
class Tracing {
 public:
  explicit Tracing(Recorder& recorder) : recorder_(recorder), before_(recorder.tracing()) {
    recorder.set_tracing(true);
  }
  ~Tracing() { recorder_.set_tracing(before_); }
  Tracing(const Tracing&) = delete;

 private:
  Recorder& recorder_;
  bool before_;
};

std::vector<UnitPlan> units_of(const Sharded& sharded) {
  std::vector<UnitPlan> rows;
  int64_t total = 0;
  for (const auto& unit : sharded.units()) {
    UnitPlan& row = rows.emplace_back(UnitPlan{.name = unit->name(), .parameters = unit->numel()});
    for (const auto& flat : unit->flat_params()) row.full_bytes += int64_t(flat->full_bytes());
    row.modules = count_modules(sharded, *unit);
    total += row.parameters;
  }
  for (UnitPlan& row : rows) row.share = double(row.parameters) / double(total);
  return rows;
}

void add_to(Plan& plan, const Record& record) {
  plan.collectives += record.bytes_sent > 0;
  auto row = std::ranges::find(plan.units, record.unit, &UnitPlan::name);
  if (row == plan.units.end()) return;
  row->bytes_sent += record.bytes_sent;
  row->gathers += record.op == "all_gather";
  row->reductions += record.op == "reduce_scatter" || record.op == "all_reduce";
}

}  // namespace

Plan make_plan(Sharded& sharded, const std::function<void()>& step, const std::function<void()>& beside) {
  Recorder& recorder = context().recorder();
  Ledger& ledger = context().ledger();
  ledger.reset_peaks();
  PeakOfTensors peak(ledger);
  step();
  recorder.clear();
  int64_t sent = recorder.total_bytes_sent();
  Tracing tracing(recorder);
  FlopCount flops;
  step();
  Plan plan;
  plan.flops = flops.get();
  plan.bytes_sent = recorder.total_bytes_sent() - sent;
  plan.keeps_params = sharded.config().keeps_params();
  plan.units = units_of(sharded);
  for (const Record& record : recorder.records()) add_to(plan, record);
  if (beside) beside();
  plan.peak = peak.get();
  for (Category::Kind category : ledger.categories())
    if (int64_t peak = ledger.peak(category); peak > 0 && category != Category::workspace) plan.peaks[category] = peak;
  return plan;
}

std::string Plan::warning() const {
  auto largest = std::ranges::max_element(units, {}, &UnitPlan::share);
  bool gathers = !keeps_params && peaks.contains(Category::gathered_parameter);  // not where shards are read in place
  if (!gathers || largest == units.end() || largest->share <= kMost) return "";
  return concat("warning: unit '", largest->name, "' holds ", percent(largest->share),
                " of the parameters, and all of them are in memory whenever it computes; ",
                largest->modules > 1 ? concat("make units of parts of it (", wrap_setting, ")")
                                     : "they are one module's, which only smaller ones in its place can change");
}

std::string Plan::table() const {
  std::vector<std::vector<std::string>> rows{
      {"unit", "parameters", "MiB", "share", "gathers", "reductions", "MiB sent"}};
  auto add = [&](const UnitPlan& row, const std::string& share) {
    rows.push_back({row.name, std::to_string(row.parameters), mebibytes(row.full_bytes), share,
                    std::to_string(row.gathers), std::to_string(row.reductions), mebibytes(row.bytes_sent)});
  };
  UnitPlan all{.name = "all", .bytes_sent = bytes_sent};
  for (const UnitPlan& row : units) {
    add(row, percent(row.share));
    all.parameters += row.parameters;
    all.full_bytes += row.full_bytes;
    all.gathers += row.gathers;
    all.reductions += row.reductions;
  }
  add(all, "");
  std::string text = in_columns(rows);
  text += concat("peak per rank, MiB: ", mebibytes(peak), " together\n");
  for (auto [category, bytes] : peaks)
    text += concat("  ", std::left, std::setw(22), name_of(category), mebibytes(bytes), '\n');
  if (!lacks.empty()) text += concat("not counted: ", lacks, '\n');
  return warning().empty() ? text : concat(text, warning(), '\n');
}

}  // namespace shardgrad::fsdp
