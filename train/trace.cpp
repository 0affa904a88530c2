#include <shardgrad/train/trace.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <iterator>
#include <map>
#include <unordered_map>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *kStepLane = "steps", *kMemory = "memory";
constexpr size_t kMostOwners = 64;  // as a ledger has
constexpr double kMicro = 1e6;      // a trace counts microseconds

// Events as lines of JSON. A step has hundreds, so they are written as they come and not built as objects first.
class Events {
 public:
  explicit Events(int rank) : rank_(rank) {}
  void begin(const std::string& name, const char* kind) {
    text_ += text_.empty() ? "{" : ",\n{";
    member("name", name);
    member("ph", std::string(kind));
    member("pid", rank_);
  }
  void begin_span(const std::string& name, const std::string& lane, double begins, double ends) {
    begin(name, "X");
    member("tid", lanes_.try_emplace(lane, int(lanes_.size())).first->second);
    member("ts", begins * kMicro);
    member("dur", std::max(0.0, ends - begins) * kMicro);
  }
  void begin_args() {
    key("args");
    text_ += '{';
  }
  void end() { text_ += "}}"; }
  void member(const char* name, const std::string& text) {
    key(name);
    text_ += quoted(text);
  }
  void member(const char* name, std::integral auto number) {
    key(name);
    append(number);
  }
  void member(const std::string& name, int64_t number) {
    if (text_.back() != '{') text_ += ',';
    text_ += quoted(name);
    text_ += ':';
    append(number);
  }
  void flag(const char* name) {
    key(name);
    text_ += "true";
  }
  void member(const char* name, double number) {
    key(name);
    if (std::isfinite(number))
      append(number);
    else
      text_ += "null";
  }
  std::string finish() {
    for (const auto& [name, number] : lanes_) {
      begin("thread_name", "M");
      member("tid", number);
      begin_args();
      member("name", name);
      end();
    }
    return std::move(text_);
  }

 private:
  void key(const char* name) {
    if (text_.back() != '{') text_ += ',';
    text_ += '"';
    text_ += name;
    text_ += "\":";
  }
  void append(auto number) {
    char digits[32];
    text_.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
  }
  // Names may be no UTF-8. Most stand in a trace many times.
  const std::string& quoted(const std::string& text) {
    auto [known, is_new] = quoted_.try_emplace(text);
    if (is_new) known->second = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    return known->second;
  }
  int rank_;
  std::map<std::string, int> lanes_;
  std::unordered_map<std::string, std::string> quoted_;
  std::string text_;
};

void add_record(Events& events, const Record& record) {
  std::string name = record.unit.empty() ? record.op : record.op + " " + record.unit;
  events.begin_span(name, record.lane, record.begin, record.end);
  events.member("cat", record.phase);
  events.begin_args();
  events.member("op", record.op);
  if (!record.unit.empty()) events.member("unit", record.unit);
  if (record.elements != 0) events.member("elements", record.elements);
  if (record.bytes_sent != 0) events.member("bytes_sent", record.bytes_sent);
  if (record.number != 0) {  // a reader of JSON may take numbers for double
    events.member("dtype", std::string(name_of(record.dtype)));
    events.member("group", std::to_string(record.group));
    events.member("number", record.number);
  }
  if (record.end < 0) events.flag("unfinished");
  events.end();
}

// Where an owner's bytes change.
void add_memory(Events& events, const picture::BytesOverTime& memory) {
  for (size_t i = 0; i < memory.moments.size(); ++i) {
    auto changes = [i](const auto& owner) { return i == 0 || owner.bytes[i] != owner.bytes[i - 1]; };
    if (std::ranges::none_of(memory.owners, changes)) continue;
    events.begin(kMemory, "C");
    events.member("ts", memory.moments[i] * kMicro);
    events.begin_args();
    for (const auto& owner : memory.owners)
      if (changes(owner)) events.member(owner.name, owner.bytes[i]);
    events.end();
  }
}

DType dtype_named(const std::string& name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == name_of(DType(i))) return DType(i);
  fail("it has a dtype '", name, "'");
}

Record record_of(const Json& event, const std::string& lane) {
  const Json& args = event.at("args");
  Record record{.op = args.at("op"), .unit = args.value("unit", ""), .phase = event.at("cat"), .lane = lane};
  record.elements = whole(args.value("elements", Json(0)));
  record.bytes_sent = whole(args.value("bytes_sent", Json(0)));
  record.number = uint64_t(whole(args.value("number", Json(0))));
  record.group = record.number == 0 ? 0 : std::stoull(args.at("group").get<std::string>());
  record.dtype = dtype_named(args.value("dtype", "f32"));
  record.begin = event.at("ts").get<double>() / kMicro;
  record.end = args.contains("unfinished") ? -1 : record.begin + event.at("dur").get<double>() / kMicro;
  return record;
}

void read_memory(picture::BytesOverTime& memory, const Json& event) {
  memory.moments.push_back(event.at("ts").get<double>() / kMicro);
  for (auto& owner : memory.owners) owner.bytes.push_back(owner.bytes.back());
  for (const auto& [name, bytes] : event.at("args").items()) {
    auto known = std::ranges::find(memory.owners, name, &picture::BytesOverTime::Owner::name);
    SG_CHECK(known != memory.owners.end() || memory.owners.size() < kMostOwners, "it has too many owners of memory");
    if (known == memory.owners.end())
      known = memory.owners.insert(known, {name, std::vector<int64_t>(memory.moments.size())});
    known->bytes.back() = whole(bytes);
  }
}

using Lanes = std::map<std::pair<int64_t, int64_t>, std::string>;  // by rank and number

void read_event(RankTrace& rank, const Json& event, const Lanes& lanes) {
  std::string kind = event.at("ph");
  if (kind == "M" && event.at("name") == "process_name") rank.host = event.at("args").at("host");
  if (kind == "C") read_memory(rank.memory, event);
  if (kind != "X") return;
  std::string lane = lanes.at({rank.rank, whole(event.at("tid"))});
  if (lane != kStepLane) return rank.records.push_back(record_of(event, lane));
  double begin = event.at("ts").get<double>() / kMicro;
  rank.steps.push_back({whole(event.at("args").at("step")), begin, begin + event.at("dur").get<double>() / kMicro});
}

std::vector<RankTrace> ranks_of(const Json& file) {
  Lanes lanes;
  std::map<int64_t, RankTrace> ranks;
  for (const Json& event : file.at("traceEvents"))
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      lanes[{whole(event.at("pid")), whole(event.at("tid"))}] = event.at("args").at("name");
  for (const Json& event : file.at("traceEvents")) {
    RankTrace& rank = ranks[whole(event.at("pid"))];
    rank.rank = int(whole(event.at("pid")));
    read_event(rank, event, lanes);
  }
  std::vector<RankTrace> all;
  SG_CHECK(ranks.size() <= size_t(kTracedRanks), "it has more ranks than a trace of ours, ", kTracedRanks);
  for (auto& [number, rank] : ranks) all.push_back(std::move(rank));
  return all;
}

}  // namespace

std::vector<Record> last_step(const RankTrace& trace) {
  if (trace.steps.empty()) return trace.records;
  const RankTrace::Step& last = trace.steps.back();
  std::vector<Record> records;
  for (const Record& record : trace.records)
    if (record.begin >= last.begin && record.begin < last.end) records.push_back(record);
  return records;
}

std::string trace_events(const RankTrace& trace) {
  Events events(trace.rank);
  events.begin("process_name", "M");
  events.begin_args();
  events.member("name", concat("rank ", trace.rank));
  events.member("host", trace.host);
  events.end();
  for (const RankTrace::Step& step : trace.steps) {
    events.begin_span(concat("step ", step.number), kStepLane, step.begin, step.end);
    events.member("cat", std::string("step"));
    events.begin_args();
    events.member("step", step.number);
    if (step.end < 0) events.flag("unfinished");
    events.end();
  }
  for (const Record& record : trace.records) add_record(events, record);
  add_memory(events, trace.memory);
  return events.finish();
}

std::string trace_file(const std::vector<std::string>& events) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (size_t i = 0; i < events.size(); ++i) text += concat(i == 0 ? "" : ",\n", events[i]);
  return text + "\n]}\n";
}

std::vector<RankTrace> read_trace(const std::string& path) {
  Json file = read_object(path, kTrace);
  try {
    return ranks_of(file);
  } catch (const std::exception& error) {  // of the JSON library, or a number or lane that is none
    fail("'", path, "' is damaged, or no trace of a run: ", in_words(error));
  }
}

}  // namespace shardgrad::train
