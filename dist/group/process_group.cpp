#include <shardgrad/dist/group/process_group.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/bootstrap/cores.h>
#include <shardgrad/dist/group/operation.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/dist/watch/control_page.h>

namespace shardgrad::dist {

/// One that has been queued. Who may wait for it holds it, and the group until it is done.
struct Work::State {
  Operation operation = {};
  Place place = {};
  Control* control = nullptr;  // lives until the event is done
  int lane = 0;
  uint64_t record = 0;  // its own
  Event event = {};
  std::mutex mutex = {};  // of the tensors
  void drop_tensors();
};

// The compute stream, where it stands still while the calling thread waits.
static Stream* held_up_with_host() {
  Context* context = Context::current();
  if (!context || running_stream()) return nullptr;
  Stream& compute = context->backend(context->default_device()).compute();
  return compute.is_inline() ? &compute : nullptr;
}

bool Work::done() const { return !state_ || state_->event.done(); }
Event Work::event() const { return state_ ? state_->event : Event(); }

void Work::wait(Stream& stream) const {
  if (stream.is_inline()) return host_wait();
  if (!state_) return;
  std::optional<uint64_t> span = begin_wait(stream);
  stream.wait(state_->event);
  end_span(stream, span);
  state_->drop_tensors();
}

void Work::host_wait() const {
  if (!state_) return;
  std::optional<Control::Waiting> waiting;
  if (!state_->event.done()) waiting.emplace(*state_->control, state_->lane, state_->place.sequence);
  Stream* compute = held_up_with_host();
  std::optional<uint64_t> span = compute ? begin_wait(*compute) : std::nullopt;
  state_->event.host_wait();
  if (span) end_span(*compute, span);
  state_->drop_tensors();
}

// A span of what the stream does not do meanwhile, which a trace shows. On meta, where nothing takes time, a trace has
// all that may have to wait.
std::optional<uint64_t> Work::begin_wait(Stream& stream) const {
  Recorder& recorder = stream.context().recorder();
  if (!recorder.tracing()) return {};
  if (state_->event.done() && stream.context().default_device() != kMeta) return {};
  Record wait{.op = "wait"};
  if (std::optional<Record> of = recorder.record(state_->record)) {
    wait.unit = of->unit, wait.phase = of->phase;
    wait.group = of->group, wait.number = of->number;
  }
  return begin_span(stream, std::move(wait));
}

void Work::State::drop_tensors() {
  std::vector<Tensor> dropped;
  std::lock_guard lock(mutex);
  dropped.swap(operation.tensors);
}

static std::unique_ptr<Stream> make_group_stream(Context& context, const Transport& transport,
                                                 const GroupOptions& options) {
  std::string name = concat("communication/", options.name.empty() ? transport.kind() : options.name);
  Device device = context.default_device();
  // One rank alone never waits for another, and meta moves nothing: no thread is needed beside inline compute.
  bool alone = device.kind == DeviceKind::meta || (transport.size() == 1 && device.kind == DeviceKind::cpu);
  if (alone) return make_inline_stream(context, name);
  Backend& backend = context.backend(device);
  if (!backend.addressable() && transport.queues()) return backend.make_stream(name);
  std::unique_ptr<Stream> stream =
      backend.addressable() ? backend.make_stream(name) : make_thread_stream(context, name);
  stream->run("run promptly", run_promptly);
  return stream;
}

static std::unique_ptr<Transport> within_reach(Context& context, std::unique_ptr<Transport> transport,
                                               const std::shared_ptr<Control>& control) {
  Device device = context.default_device();
  if (transport->queues() || context.backend(device).addressable()) return transport;
  return make_staged_transport(std::move(transport), device, control);
}

ProcessGroup::ProcessGroup(std::unique_ptr<Transport> transport, std::shared_ptr<Control> control,
                           std::vector<int> members, uint64_t id, GroupOptions options)
    : context_(context()),
      transport_(within_reach(context_, std::move(transport), control)),
      control_(std::move(control)),
      members_(std::move(members)),
      rank_(transport_->rank()),
      id_(id),
      options_(std::move(options)),
      lane_(control_->open_lane(id_, members_)),
      exceptions_(std::uncaught_exceptions()),
      memory_(transport_->memory(context_.default_device())),
      stream_(make_group_stream(context_, *transport_, options_)) {}

ProcessGroup::~ProcessGroup() {
  // An exception passes: this rank will not make the calls its peers would wait for, nor wait for theirs.
  bool thrown = std::uncaught_exceptions() > exceptions_;
  if (thrown) transport_->abandon();
  at_end_.run();
  kept_splits_.clear();
  try {
    Control::Waiting waiting(*control_, lane_, sequence_);
    stream_->synchronize();
  } catch (...) {  // NOLINT: whoever waits for the failed collective gets its error; a destructor has no caller
  }
  delete stream_.get();  // what it still runs, after an abort, asks for it until then
  static_cast<void>(stream_.release());
  transport_->leave();
  control_->close_lane(lane_, thrown ? Closed::by_exception : Closed::in_order);
}

const std::string& ProcessGroup::kind() const { return transport_->kind(); }
Device ProcessGroup::computes_on() const {
  Device pretended = transport_->stands_for();
  return has_values(pretended) ? pretended : context_.default_device();
}

void ProcessGroup::take_over() { control_->call(lane_, sequence_); }

static void copy_text(char* to, size_t room, const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), room - 1));
}

void ProcessGroup::note(std::string_view what) { noted_ += noted_.empty() ? what : concat(", ", what); }

// A text that does not fit is shown to a point, and a number stands for all of it: ranks compare it.
template <size_t Room> static void copy_whole(char (&to)[Room], const std::string& text) {
  constexpr size_t kNumber = 25;
  if (text.size() < Room) return copy_text(to, Room, text);
  copy_text(to, Room, concat(text.substr(0, Room - 1 - kNumber), "... #", hash_of(text)));
}

std::string ProcessGroup::with_notes(const std::string& detail) {
  std::string notes = std::exchange(noted_, {});
  return detail.empty() || notes.empty() ? detail + notes : concat(detail, ", ", notes);
}

void ProcessGroup::wait_before(const CollectiveOptions& options, Device device) {
  stream_->wait(options.after ? *options.after : context_.backend(device).compute().record());
}

void ProcessGroup::fill_place(Work::State& state, const CollectiveOptions& options) {
  const Operation& operation = state.operation;
  Place& place = state.place;
  place.group = id_;
  place.sequence = ++sequence_;
  place.elements = operation.elements;
  place.root = operation.root;
  place.dtype = operation.dtype;
  place.has_elements = !operation.tensors.empty();
  copy_text(place.op, sizeof(place.op), operation.op);
  copy_whole(place.unit, options.label.unit);
  copy_text(place.phase, sizeof(place.phase), options.label.phase);
  if (!options.detail.empty() || !noted_.empty()) copy_whole(place.detail, with_notes(options.detail));
}

// A small collective that meets its peers in memory takes less time than the stream's thread takes to wake. Where
// compute is a stream, too, the collective first waits for it, which is no waiter's work.
Begin ProcessGroup::begin_of(const Operation& operation) const {
  constexpr size_t kSmall = size_t(64) << 10;
  bool small =
      size_t(operation.elements) * size_of(operation.dtype) <= kSmall && operation.device == kCpu && !options_.delay;
  return small && transport_->meets_in_memory() ? Begin::when_waited_for : Begin::at_once;
}

Work ProcessGroup::launch(Operation asked, const CollectiveOptions& options) {
  control_->check();
  if (Capture::current())
    refuse_in_capture(concat("collective '", asked.op, "'"),
                      "leave it out: of one rank it does nothing, and of several no step is captured");
  auto state = std::make_shared<Work::State>();
  state->operation = std::move(asked);
  Operation& operation = state->operation;
  bool has_tensor = !operation.tensors.empty();
  if (has_tensor) operation.dtype = operation.tensors[0].dtype();
  operation.device = has_tensor ? operation.tensors[0].device() : context_.default_device();
  // A barrier keeps ranks apart where there are no values, too.
  if (!has_tensor && operation.device == kMeta) operation.device = kCpu;
  wait_before(options, operation.device);
  fill_place(*state, options);
  const Place& place = state->place;
  state->record = context_.recorder().begin({0, operation.op, options.label.unit, options.label.phase, stream_->name(),
                                             operation.elements, operation.bytes_sent, operation.dtype, 0, -1, id_,
                                             place.sequence});
  if (operation.device.kind == DeviceKind::meta) {
    if (transport_->is_pretended())
      operation.move(*transport_, {.device = operation.device, .place = &place}, operation);
    context_.recorder().end(state->record);
    // While tracing it knows its record, so that a trace shows who would wait for it.
    operation.tensors.clear();
    return context_.recorder().tracing() ? Work(std::move(state)) : Work();
  }
  forget_finished();
  state->control = control_.get();
  state->lane = lane_;
  control_->call(lane_, place.sequence);
  if (!stream_->is_inline()) in_flight_.push_back(state);  // what is queued does not hold it
  queue(*state);
  state->event = stream_->record();
  return Work(std::move(state));
}

void ProcessGroup::queue(Work::State& state) {
  // On a stream of the device it is queued here and now. NCCL may block meanwhile until the other ranks come: in a
  // group's first calls, which connect it, and in copies to the host.
  std::optional<Control::Waiting> launching;
  if (stream_->native()) launching.emplace(*control_, lane_, state.place.sequence);
  auto work = [this, &state] { run(state); };
  stream_->run(state.operation.op, work, state.operation.accesses, begin_of(state.operation));
}

void ProcessGroup::forget_finished() {
  while (!in_flight_.empty() && in_flight_.front()->event.done()) {
    const std::shared_ptr<Work::State>& oldest = in_flight_.front();
    oldest->event.host_wait();  // throws if it failed
    oldest->drop_tensors();
    in_flight_.pop_front();
  }
}

// A stream of the device is asked for its time only for a trace: being asked holds it up.
void ProcessGroup::stamp(void (Recorder::*moment)(uint64_t), uint64_t record) {
  Recorder& recorder = context_.recorder();
  if (stream_->native() && recorder.tracing())
    stream_->notify([&recorder, moment, record] { (recorder.*moment)(record); });
  else
    (recorder.*moment)(record);
}

void ProcessGroup::run(const Work::State& state) {
  const Operation& operation = state.operation;
  const Place& place = state.place;
  try {
    if (!stream_->is_inline()) stamp(&Recorder::start, state.record);
    if (!transport_->tracks()) control_->enter(lane_, place);
    if (options_.delay) std::this_thread::sleep_for(options_.delay(operation.bytes_sent));
    operation.move(*transport_, {place.sequence, place.fingerprint(), lane_, stream_.get(), operation.device, &place},
                   operation);
    if (!transport_->tracks()) control_->leave(lane_, place.sequence);
    stamp(&Recorder::end, state.record);
  } catch (const Abandoned&) {
    throw;  // what made this rank leave will be the cause
  } catch (...) {
    control_->fail(std::current_exception());
    throw;
  }
}

std::function<std::chrono::microseconds(int64_t)> fixed_delay(std::chrono::microseconds time) {
  return [time](int64_t) { return time; };
}

}  // namespace shardgrad::dist
