#include <shardgrad/fsdp/timeline.h>

#include <shardgrad/core/context.h>

namespace shardgrad::fsdp {

static Stream& compute() {
  Context& ctx = context();
  return ctx.backend(ctx.default_device()).compute();
}

static void stamp(Stream& stream, void (Recorder::*moment)(uint64_t), uint64_t record) {
  Recorder& recorder = context().recorder();
  stream.notify([&recorder, moment, record] { (recorder.*moment)(record); });
}

std::optional<uint64_t> begin_span(Stream& stream, Record record) {
  Recorder& recorder = context().recorder();
  if (!recorder.tracing()) return {};
  record.lane = stream.name();
  uint64_t span = recorder.begin(std::move(record));
  stamp(stream, &Recorder::start, span);
  return span;
}

void end_span(Stream& stream, std::optional<uint64_t> span) {
  if (span) stamp(stream, &Recorder::end, *span);
}

void Timeline::begin(const char* what, const std::string& unit) {
  if (!context().recorder().tracing() || open_.contains({what, unit})) return;
  const char* phase = std::string_view(what) == "forward" ? "forward" : "backward";
  if (auto span = begin_span(compute(), {.op = what, .unit = unit, .phase = phase})) open_[{what, unit}] = *span;
}

void Timeline::end(const char* what, const std::string& unit) {
  if (open_.empty()) return;
  auto it = open_.find({what, unit});
  if (it == open_.end()) return;
  end_span(compute(), it->second);
  open_.erase(it);
}

void Timeline::end_all() {
  for (const auto& [key, span] : open_) end_span(compute(), span);
  open_.clear();
}

}  // namespace shardgrad::fsdp
