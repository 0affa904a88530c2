#include <shardgrad/fsdp/step/flat_param.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/fsdp/setup/flat_buffers.h>
#include <shardgrad/fsdp/step/slice_sink.h>

namespace shardgrad::fsdp {

const char* name_of(FullState state) {
  constexpr const char* names[] = {"stale", "gathering", "open", "closed"};
  return names[int(state)];
}

FlatParam::FlatParam(std::string unit, std::string part, std::span<nn::Parameter* const> parameters, Mesh& mesh,
                     const Config& config)
    : layout_(std::move(unit), std::move(part), parameters, mesh, config),
      grads_(layout_, config),
      secondary_(layout_, config),
      trainable_(parameters.front()->tensor.requires_grad()),
      shard_host_(layout_) {
  FlatBuffers buffers = make_flat_buffers(layout_, config);
  shard_ = buffers.shard, full_ = buffers.full, converted_ = buffers.converted;
  permanent_ = buffers.permanent, common_ = buffers.common;
  state_ = full_.storage()->resident() ? FullState::open : FullState::stale;
  fill_shard(shard_, layout_, parameters, config.sync_module_states);
  for (nn::Parameter* parameter : parameters) {
    parameters_.push_back(parameter->tensor);
    parameter->initialised = true;
  }
  rehome(full_);
  shard_written();
}

// The parameters are views of `full` from now on.
void FlatParam::rehome(const Tensor& full) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor::Impl& impl = parameters_[i].impl();
    impl.storage = full.storage();
    impl.offset = size_t(slices()[i].offset) * size_of(full.dtype());
    impl.dtype = full.dtype();
  }
}

void FlatParam::attach(const std::function<void()>& writes, const std::function<void()>& ready) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor& parameter = parameters_[i];
    parameter.set_requires_grad();  // a frozen one may be trained later
    renew_leaf(parameter);          // one of before has the dtype of before
    leaf_of(parameter).set_sink(sinks_.emplace_back(std::make_shared<SliceSink>(*this, i, writes, ready)));
    parameter.set_requires_grad(trainable_);
  }
}

// The stream that is the first to write to a buffer that is gathered.
Stream& FlatParam::first_writer(DType dtype) const {
  if (on_host(shard_)) return layout_.mesh.uploads();
  dist::ProcessGroup* group = layout_.mesh.shard();
  return group && dtype == shard_.dtype() ? group->stream() : layout_.compute();
}

// The shard in the dtype of what is gathered, in memory that stays. Who writes the shard has waited for its uploads.
const Tensor& FlatParam::source(DType dtype) {
  if (dtype == shard_.dtype()) return shard_;
  if (!converted_.defined()) converted_ = layout_.host_buffer(shard_.numel(), dtype);
  if (std::exchange(converted_is_stale_, false)) convert(shard_, out(converted_));
  return converted_;
}

// This rank's part of `full`, and the group's stream waits until it is there.
void FlatParam::ask_for(const Tensor& full, Gathers& buffers) {
  dist::ProcessGroup* group = layout_.mesh.shard();
  Stream& stream = first_writer(full.dtype());
  Tensor mine = layout_.part_of(full);
  Event ready = shard_ready_;
  if (on_host(shard_)) {
    ready = shard_host_.upload(mine, source(full.dtype()));
  } else if (converted_.defined() && full.dtype() == converted_.dtype()) {
    const Tensor& kept = source(full.dtype());
    SG_ASSERT(kept.out().data == mine.out().data, "unit '", layout_.unit, "' is gathered into other memory");
    ready = stream.record();
  } else if (!group || full.dtype() != shard_.dtype()) {
    convert(shard_, out(mine));
    ready = stream.record();
  } else {
    mine = shard_;
  }
  if (!group) return;
  group->stream().wait(ready);
  buffers.push_back({full, mine});
}

void FlatParam::transition(FullState to) {
  using enum FullState;
  bool given_up = state_ == gathering && full_.storage()->readable();  // nothing was sent
  bool legal = (to == gathering && state_ == stale) || (to == open && (state_ == gathering || state_ == closed)) ||
               (to == stale && (state_ == open || state_ == closed || given_up)) || (to == closed && state_ == open);
  SG_ASSERT(legal, "the parameters of unit '", layout_.unit, "' cannot go from ", name_of(state_), " to ", name_of(to));
  state_ = to;
  if (common_ && to != open) layout_.mesh.open_windows(to == gathering ? 1 : -1);
}

void FlatParam::start_gather(Gathers& buffers) {
  if (!needs_gather()) return;
  Storage& full = *full_.storage();
  if (!full.resident()) full.materialize(next_writer());
  if (state_ == FullState::closed) return transition(FullState::open);
  near() ? secondary_.ask_for(full_, buffers) : ask_for(full_, buffers);
  transition(FullState::gathering);
}

void FlatParam::gather_by(const dist::Work& work) {
  if (state_ != FullState::gathering) return;
  gather_ = work;
  full_.storage()->set_arriving(true);  // who reads it before finish_gather() would race with the gather
}

void FlatParam::give_up_gather() {
  if (state_ == FullState::gathering) transition(FullState::stale);
  Storage& full = *full_.storage();
  if (state_ == FullState::stale && full.resident()) full.release(next_writer());
}

void FlatParam::finish_gather() {
  if (state_ != FullState::gathering) return;
  transition(FullState::open);
  full_.storage()->set_arriving(false);
  shard_host_.arrive();
  gather_.wait(layout_.compute());
}

void FlatParam::release_full() {
  if (state_ != FullState::open || (permanent_ && !converts())) return;
  full_.storage()->release(layout_.compute());  // refused while it is leased
  transition(permanent_ ? FullState::closed : FullState::stale);
}

LocalRange FlatParam::local_range(size_t i) {
  bring_grad();
  LocalRange range = owned_range(i);
  Owned mine = owned(i);
  if (has_grad(i)) range.grad = grad().rows(mine.at, mine.at + mine.padded);
  return range;
}

LocalRange FlatParam::owned_range(size_t i) const {
  Owned mine = owned(i);
  auto part = [&](const Tensor& of_shard) { return of_shard.rows(mine.at, mine.at + mine.padded); };
  LocalRange range{.values = part(shard_), .grad = {}, .begin = mine.in_slice, .count = mine.count};
  if (converted_.defined()) range.copy = part(converted_);
  return range;
}

void FlatParam::bring_grad() {
  SG_CHECK(!summoned_.defined(), "unit '", layout_.unit,
           "' is to be updated in a scope of SummonFullParams; leave the scope first");
  grads_.move(on_host(shard_));
}

void FlatParam::wait_to_update() const {
  wait_for_shard();
  grads_.wait();
}

FlatParam::~FlatParam() { let_go(); }

// A copy to or from the device may still run; its memory may go with this object.
void FlatParam::let_go() noexcept {
  auto finish = [](const auto& wait) {
    try {
      wait();
    } catch (...) {  // NOLINT: whoever waits for the failed copy gets its error; nobody waits here
    }
  };
  finish([this] { wait_for_shard(); });
  finish([this] { grads_.wait(); });
  for (auto& sink : sinks_) sink->let_go();
  Storage& shown = *full_.storage();
  shown.on_missing({});
  shown.set_note(concat("it belonged to unit '", layout_.unit, "' of a sharded model that is gone"));
}

void FlatParam::before_write() {
  finish_gather();  // of a pass that failed
  layout_.mesh.before_write();
  SG_CHECK(!summoned_.defined(), "unit '", layout_.unit,
           "' is to be changed in a scope of SummonFullParams; leave the scope first");
  check_not_leased(true);
}

void FlatParam::check_not_leased(bool copy_is_written) const {
  const std::string* holder = full_.storage()->holder();
  SG_CHECK(!holder || is_the_shard(copy_is_written), "unit '", layout_.unit, "' is to be changed, and ", *holder,
           " leases its gathered parameters, which would keep the old values; end the lease (drop the exported ",
           "tensor) first");
}

// Then what is written to the shard is in the full buffer as well.
bool FlatParam::is_the_shard(bool copy_is_written) const {
  return permanent_ && !split() && !(converts() && (converted_is_stale_ || !copy_is_written));
}

void FlatParam::shard_written() {
  full_.storage()->bump_version();
  outdate(false);
}

void FlatParam::slice_written(size_t i) {
  layout_.slice_of(full_, i).bump_version();
  outdate(true);
}

// What is out of date cannot be read: the next forward gathers it.
void FlatParam::outdate(bool copy_is_written) {
  shard_ready_ = context().backend(shard_.device()).compute().record();
  converted_is_stale_ |= !copy_is_written;
  secondary_.drop();
  layout_.mesh.open_windows(0);  // those of others are read on
  if (is_the_shard(copy_is_written) || state_ == FullState::stale) return;
  transition(FullState::stale);
  if (full_.storage()->resident()) full_.storage()->release(layout_.compute());
}

}  // namespace shardgrad::fsdp
