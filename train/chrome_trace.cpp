#include <shardgrad/train/chrome_trace.h>

#include <map>
#include <nlohmann/json.hpp>

namespace shardgrad::train {

std::string chrome_trace(const Recorder& recorder, int rank) {
  using nlohmann::json;
  json events = json::array();
  std::map<std::string, int> lanes;
  for (const Record& record : recorder.records()) {
    int lane = lanes.try_emplace(record.lane, int(lanes.size())).first->second;
    double duration = record.end < 0 ? 0 : record.end - record.begin;
    events.push_back({{"name", record.unit.empty() ? record.op : record.op + " " + record.unit},
                      {"cat", record.phase},
                      {"ph", "X"},
                      {"pid", rank},
                      {"tid", lane},
                      {"ts", record.begin * 1e6},
                      {"dur", duration * 1e6},
                      {"args", {{"elements", record.elements}, {"bytes_sent", record.bytes_sent}}}});
  }
  for (const auto& [name, lane] : lanes)
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}});
  return json{{"traceEvents", events}}.dump(1);
}

}  // namespace shardgrad::train
