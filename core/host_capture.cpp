#include <shardgrad/core/host_capture.h>

#include <utility>

#include <shardgrad/core/backend.h>

namespace shardgrad {
namespace {

class HostCapture final : public Capture {
 public:
  HostCapture(Backend& backend, Ref<CaptureMemory> memory) : Capture(backend, std::move(memory)) {}
  ~HostCapture() override { let_go(); }

  void add(Stream& stream, const char* label, std::function<void()> work, std::span<const Access> accesses) override {
    items_.push_back({&stream, label, std::move(work), {accesses.begin(), accesses.end()}});
  }

  Event record(Stream& stream) override {
    Ref<Event::State> point = make_ref<Point>(replayed(), items_.size());
    items_.push_back({&stream});
    return Event(std::move(point));
  }

 private:
  struct Point final : RecordedEvent {
    Point(std::shared_ptr<Replayed> of, size_t item) : RecordedEvent(std::move(of)), item(item) {}
    size_t item;  // after which all before it of that stream has been given
  };
  static constexpr size_t kNone = SIZE_MAX;
  // A piece of work, a point that somebody waits for, or a wait.
  struct Item {
    Stream* stream;
    const char* label = nullptr;
    std::function<void()> work = {};
    std::vector<Access> accesses = {};
    bool is_awaited = false;
    size_t awaits = kNone;  // a point's item
  };

  void begin_on(Stream&) override {}
  void join(Stream&) override {}
  void wait_for(Stream& stream, const RecordedEvent& event) override {
    size_t at = static_cast<const Point&>(event).item;
    if (items_[at].stream == &stream) return;
    items_[at].is_awaited = true;
    items_.push_back({.stream = &stream, .awaits = at});
  }
  void finish() override {}
  void forget() noexcept override { items_.clear(); }

  void run() override {
    std::vector<Event> points(items_.size());
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (item.work)
        item.stream->run(item.label, item.work, item.accesses);
      else if (item.is_awaited)
        points[i] = item.stream->record();
      else if (item.awaits != kNone)
        item.stream->wait(points[item.awaits]);
    }
  }

  std::vector<Item> items_;
};

}  // namespace

std::unique_ptr<Capture> make_host_capture(Backend& backend, Ref<CaptureMemory> memory) {
  return std::make_unique<HostCapture>(backend, std::move(memory));
}

}  // namespace shardgrad
