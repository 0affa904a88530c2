#include <shardgrad/core/timeline.h>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

static Backend& default_backend() {
  Context& ctx = context();
  return ctx.backend(ctx.default_device());
}

static void stamp(Stream& stream, void (Recorder::*moment)(uint64_t), uint64_t record) {
  Recorder& recorder = stream.context().recorder();
  stream.notify([&recorder, moment, record] { (recorder.*moment)(record); });
}

// In a captured step there are none: a replay calls nobody of the host.
std::optional<uint64_t> begin_span(Stream& stream, Record record) {
  Recorder& recorder = stream.context().recorder();
  if (!recorder.tracing() || Capture::current()) return {};
  record.lane = stream.name();
  uint64_t span = recorder.begin(std::move(record));
  stamp(stream, &Recorder::start, span);
  return span;
}

void end_span(Stream& stream, std::optional<uint64_t> span) {
  if (span) stamp(stream, &Recorder::end, *span);
}

ComputeSpan::ComputeSpan(Device device, Record record)
    : stream_(context().backend(device).compute()), span_(begin_span(stream_, std::move(record))) {}

// A fault of the device comes up again at the next wait, from where it may leave.
ComputeSpan::~ComputeSpan() {
  try {
    end_span(stream_, span_);
  } catch (...) {
  }
}

void Timeline::begin(const char* what, const std::string& unit) {
  if (!open_.empty() && open_.contains({what, unit})) return;
  Open open{{}, default_backend().begin_range(what, unit)};
  const char* phase = std::string_view(what) == "forward" ? "forward" : "backward";
  if (context().recorder().tracing())
    open.span = begin_span(default_backend().compute(), {.op = what, .unit = unit, .phase = phase});
  if (open.span || open.range) open_[{what, unit}] = open;
}

void Timeline::close(const Open& open) {
  end_span(default_backend().compute(), open.span);
  if (open.range) default_backend().end_range(open.range);
}

void Timeline::end(const char* what, const std::string& unit) {
  if (open_.empty()) return;
  auto it = open_.find({what, unit});
  if (it == open_.end()) return;
  close(it->second);
  open_.erase(it);
}

void Timeline::end_all() {
  for (const auto& [key, open] : open_) close(open);
  open_.clear();
}

void Timeline::instant(Record record) {
  if (!context().recorder().tracing()) return context().recorder().instant(std::move(record));
  Stream& compute = default_backend().compute();
  end_span(compute, begin_span(compute, std::move(record)));
}

}  // namespace shardgrad
