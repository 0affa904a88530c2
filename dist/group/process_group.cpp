#include <shardgrad/dist/group/process_group.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <shardgrad/dist/bootstrap/cores.h>
#include <shardgrad/dist/group/operation.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>

namespace shardgrad::dist {

void Work::host_wait() const {
  if (!state_) return;
  std::optional<Control::Waiting> waiting;
  if (!state_->event.done()) waiting.emplace(*state_->control, state_->lane, state_->sequence);
  state_->event.host_wait();
  state_->tensors.clear();
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
  kept_splits_.clear();
  // An exception passes: this rank will not make the calls its peers would wait for, nor wait for theirs.
  bool thrown = std::uncaught_exceptions() > exceptions_;
  if (thrown) transport_->abandon();
  try {
    Control::Waiting waiting(*control_, lane_, sequence_);
    stream_->synchronize();
  } catch (...) {  // NOLINT: whoever waits for the failed collective gets its error; a destructor has no caller
  }
  transport_->end_tracking();
  stream_.reset();
  control_->close_lane(lane_, thrown ? Closed::by_exception : Closed::in_order);
}

const std::string& ProcessGroup::kind() const { return transport_->kind(); }

void ProcessGroup::take_over() { control_->call(lane_, sequence_); }

static void copy_text(char* to, size_t room, const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), room - 1));
}

void ProcessGroup::wait_before(const CollectiveOptions& options, Device device) {
  stream_->wait(options.after ? *options.after : context_.backend(device).compute().record());
}

Work ProcessGroup::launch(Operation operation, const CollectiveOptions& options) {
  control_->check();
  bool has_tensor = !operation.tensors.empty();
  DType dtype = has_tensor ? operation.tensors[0].dtype() : DType::f32;
  Device device = has_tensor ? operation.tensors[0].device() : context_.default_device();
  wait_before(options, device);
  operation.device = device;

  Place place;
  place.group = id_;
  place.sequence = ++sequence_;
  place.elements = operation.elements;
  place.root = operation.root;
  place.dtype = dtype;
  place.has_elements = has_tensor;
  copy_text(place.op, sizeof(place.op), operation.op);
  copy_text(place.unit, sizeof(place.unit), options.label.unit);
  copy_text(place.phase, sizeof(place.phase), options.label.phase);
  copy_text(place.detail, sizeof(place.detail), options.detail);

  uint64_t record =
      context_.recorder().begin({0, operation.op, options.label.unit, options.label.phase, stream_->name(),
                                 operation.elements, operation.bytes_sent, dtype, 0, -1});
  const char* op = operation.op;
  std::vector<Access> accesses = std::move(operation.accesses);
  if (device.kind == DeviceKind::meta) {
    context_.recorder().end(record);
    return Work();
  }
  forget_finished();
  auto state = std::make_shared<Work::State>();
  state->tensors = std::move(operation.tensors);
  state->control = control_.get();
  state->lane = lane_;
  state->sequence = place.sequence;
  control_->call(lane_, place.sequence);
  auto work = [this, operation = std::move(operation), place, record] { run(operation, place, record); };
  {
    // On a stream of the device it is queued here and now. NCCL may block meanwhile until the other ranks come: in a
    // group's first calls, which connect it, and in copies to the host.
    std::optional<Control::Waiting> launching;
    if (stream_->native()) launching.emplace(*control_, lane_, place.sequence);
    stream_->run(op, std::move(work), accesses);
  }
  state->event = stream_->record();
  if (!stream_->is_inline()) in_flight_.push_back(state);
  return Work(std::move(state));
}

void ProcessGroup::forget_finished() {
  while (!in_flight_.empty()) {
    const std::shared_ptr<Work::State>& oldest = in_flight_.front();
    if (oldest->event.done())
      Work(oldest).host_wait();  // throws if it failed
    else if (!oldest->tensors.empty())
      return;
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

void ProcessGroup::run(const Operation& operation, const Place& place, uint64_t record) {
  try {
    stamp(&Recorder::start, record);
    if (!transport_->tracks()) control_->enter(lane_, place);
    if (options_.delay) std::this_thread::sleep_for(options_.delay(operation.bytes_sent));
    operation.move(*transport_, {place.sequence, place.fingerprint(), lane_, stream_.get(), operation.device, &place});
    if (!transport_->tracks()) control_->leave(lane_, place.sequence);
    stamp(&Recorder::end, record);
  } catch (const Abandoned&) {
    throw;  // what made this rank leave will be the cause
  } catch (...) {
    control_->fail(std::current_exception());
    throw;
  }
}

std::vector<int64_t> ProcessGroup::share(const std::vector<int64_t>& mine, const char* what) {
  int64_t count = int64_t(mine.size());
  Tensor shard = from_vector(mine, {count}, {DType::i64, kCpu});
  Tensor full = empty({size() * count}, {DType::i64, kCpu});
  all_gather(full, shard, Label{"", what}).host_wait();
  return full.to_vector<int64_t>();
}

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, const std::string& name) {
  std::vector<int64_t> wishes = share({color, key}, "split");
  std::vector<int> ranks;  // of the new group, as ranks of this one
  for (int r = 0; r < size(); ++r)
    if (wishes[size_t(2 * r)] == color) ranks.push_back(r);
  std::ranges::stable_sort(ranks, {}, [&](int r) { return wishes[size_t(2 * r + 1)]; });
  int index = int(std::ranges::find(ranks, rank()) - ranks.begin());

  int64_t invitation = index == 0 ? transport_->invite(int(ranks.size())) : 0;
  std::vector<int64_t> invitations = share({invitation}, "split");
  auto transport = transport_->join(invitations[size_t(ranks[0])], ranks, index);
  std::vector<int> members;
  for (int r : ranks) members.push_back(global_rank(r));
  uint64_t id = (id_ * 1000003 + uint64_t(++splits_)) * 1000003 + uint64_t(uint32_t(color)) + 1;
  GroupOptions options = options_;
  options.name = name;
  auto group = std::make_unique<ProcessGroup>(std::move(transport), control_, std::move(members), id, options);
  barrier(Label{"", "split"});  // every member watches the new group before anyone uses it
  return group;
}

ProcessGroup& ProcessGroup::kept_split(int stride, int size, const std::string& name) {
  for (KeptSplit& kept : kept_splits_)
    if (kept.stride == stride && kept.size == size && kept.name == name) return *kept.group;
  int place = rank() / stride % size;
  auto group = split(rank() - place * stride, place, name);
  return *kept_splits_.emplace_back(KeptSplit{stride, size, name, std::move(group)}).group;
}

std::shared_ptr<CommonMemory> ProcessGroup::common_memory(size_t bytes) {
  Device device = context_.default_device();
  if (!transport_->has_common_memory() || (device != kCpu && device != kMeta)) return nullptr;
  if (device == kMeta) return std::make_shared<CommonMemory>(nullptr, rank(), size(), bytes);
  int lender = loans_++ % size();  // in turn, so that no rank's memory is used up before the others'
  int64_t loan = rank() == lender ? transport_->lend(bytes) : 0;
  loan = share({loan}, "common memory")[size_t(lender)];
  return loan ? transport_->borrow(loan, bytes) : nullptr;
}

std::function<std::chrono::microseconds(int64_t)> fixed_delay(std::chrono::microseconds time) {
  return [time](int64_t) { return time; };
}

}  // namespace shardgrad::dist
