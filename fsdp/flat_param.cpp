#include <shardgrad/fsdp/flat_param.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::fsdp {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// A parameter's gradient lands in its slice of the unit's full gradient.
class SliceSink final : public GradSink {
 public:
  SliceSink(FlatParam& flat, size_t slice, std::function<void()> ready)
      : flat_(flat), slice_(slice), ready_(std::move(ready)) {}
  Out open() override { return flat_.open_grad(slice_); }
  void ready() override { ready_(); }
  Tensor grad() const override {
    if (!flat_.has_grad(slice_)) return Tensor();
    const Slice& slice = flat_.slices()[slice_];
    SG_CHECK(!flat_.split(), "the gradient of '", slice.name, "' is sharded: each rank holds a part of it. Clip with ",
             "fsdp::clip_grad_norm, read the parts with FlatParam::grad()");
    return flat_.grad().rows(slice.offset, slice.offset + slice.numel()).view(slice.shape);
  }
  void clear() override {
    range_ = {};
    flat_.zero_grad(slice_);
  }
  std::span<const LocalRange> local_ranges() override {
    range_ = flat_.local_range(slice_);
    return {&range_, 1};
  }
  void written() override { flat_.shard_written(); }

 private:
  FlatParam& flat_;
  size_t slice_;
  std::function<void()> ready_;
  LocalRange range_;
};

}  // namespace

Layout make_layout(std::span<const Slice> slices, int ranks) {
  Layout layout;
  for (Slice slice : slices) {
    slice.offset = layout.padded;
    layout.padded += round_up(slice.numel(), kSliceAlignment);
    layout.slices.push_back(std::move(slice));
  }
  layout.padded = round_up(layout.padded, kSliceAlignment * ranks);
  return layout;
}

FlatParam::FlatParam(std::string unit, std::span<nn::Parameter* const> parameters, dist::ProcessGroup& group,
                     bool split)
    : unit_(std::move(unit)),
      group_(group),
      split_(split && group.size() > 1),
      trainable_(parameters.front()->tensor.requires_grad()),
      unit_id_(context().ledger().unit_id(unit_)),
      dtype_(parameters.front()->tensor.dtype()),
      device_(parameters.front()->tensor.device()) {
  std::vector<Slice> slices;
  for (const nn::Parameter* parameter : parameters) slices.push_back({parameter->full_name, parameter->tensor.shape()});
  layout_ = make_layout(slices, group.size());
  opened_.resize(slices.size());
  has_grad_.resize(slices.size());
  shard_ = buffer(split_ ? padded() / group.size() : padded(), Category::parameter_shard);
  fill(parameters);
  full_ = split_ ? buffer(padded(), Category::gathered_parameter, true) : shard_.detach();
  full_.storage()->set_note(concat("it belongs to unit '", unit_,
                                   "', which is sharded now. Use it inside its module's "
                                   "forward, or in a scope of fsdp::SummonFullParams"));
  rehome(parameters);
}

Tag FlatParam::tag(Category category) const { return {category, unit_id_}; }

Tensor FlatParam::buffer(int64_t numel, Category category, bool released) const {
  size_t bytes = size_t(numel) * size_of(dtype_);
  return Tensor(Storage::make(bytes, group_.memory(), tag(category), released), 0, {numel}, dtype_);
}

Tensor FlatParam::buffer_on(Stream& stream, int64_t numel, Category category) const {
  Tensor result = buffer(numel, category, true);
  result.storage()->materialize(stream);
  return result;
}

// Each rank fills only its own shard: the initial weights are a function of (seed, name, element).
void FlatParam::fill(std::span<nn::Parameter* const> parameters) {
  launch(kernels::fill, shard_, out(shard_), 0.0);
  int64_t begin = shard_begin(), end = begin + shard_.numel();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Slice& slice = layout_.slices[i];
    int64_t first = std::max(begin, slice.offset), last = std::min(end, slice.offset + slice.numel());
    if (first >= last) continue;
    Tensor mine = shard_.rows(first - begin, last - begin);
    const Tensor& whole = parameters[i]->tensor;
    if (whole.storage()->resident())  // it has values already
      copy_into(mine, whole.view({slice.numel()}).rows(first - slice.offset, last - slice.offset));
    else
      parameters[i]->fill_range(first - slice.offset, mine);
  }
  shard_ready_ = context().backend(device_).compute().record();
}

void FlatParam::rehome(std::span<nn::Parameter* const> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor::Impl& impl = parameters[i]->tensor.impl();
    impl.storage = full_.storage();
    impl.offset = size_t(layout_.slices[i].offset) * size_of(dtype_);
    parameters[i]->initialised = true;
  }
}

int64_t FlatParam::numel() const {
  int64_t total = 0;
  for (const Slice& slice : slices()) total += slice.numel();
  return total;
}

void FlatParam::attach(const nn::Parameter& parameter, size_t slice, std::function<void()> ready) {
  leaf_of(parameter.tensor).set_sink(std::make_shared<SliceSink>(*this, slice, std::move(ready)));
}

void FlatParam::start_gather(std::string_view phase) {
  if (!split_) return;
  if (!resident()) full_.storage()->materialize(group_.stream());
  gather_ = group_.all_gather(full_, shard_, {{unit_, std::string(phase)}, shard_ready_});
  gathering_ = true;
  stale_ = false;
}

void FlatParam::finish_gather() {
  if (!std::exchange(gathering_, false)) return;
  gather_.wait(context().backend(device_).compute());
}

void FlatParam::release_full() {
  if (!split_ || !resident()) return;
  finish_gather();
  full_.storage()->release(context().backend(device_).compute());
}

Out FlatParam::open_grad(size_t i) {
  if (!full_grad_.defined()) {
    full_grad_ = buffer(padded(), Category::full_gradient);
    opened_.assign(opened_.size(), false);
    zero_gaps();
  }
  const Slice& slice = slices()[i];
  float beta = opened_[i] ? 1 : 0;
  opened_[i] = true;
  return out(full_grad_.rows(slice.offset, slice.offset + slice.numel()).view(slice.shape), beta);
}

void FlatParam::zero(int64_t begin, int64_t end) {
  if (begin == end) return;
  Tensor part = full_grad_.rows(begin, end);
  launch(kernels::fill, part, out(part), 0.0);
}

void FlatParam::zero_gaps() {
  int64_t end = 0;
  for (const Slice& slice : slices()) {
    zero(end, slice.offset);
    end = slice.offset + slice.numel();
  }
  zero(end, padded());
}

void FlatParam::start_reduce() {
  for (size_t i = 0; i < opened_.size(); ++i) {
    if (!opened_[i]) zero(slices()[i].offset, slices()[i].offset + slices()[i].numel());
    has_grad_[i] = has_grad_[i] || opened_[i];
  }
  Stream& stream = group_.stream();
  dist::CollectiveOptions options({unit_, "backward"}, context().backend(device_).compute().record());
  if (split_) {
    incoming_ = buffer_on(stream, shard_.numel(), grad_.defined() ? Category::communication : Category::gradient_shard);
    reduce_ = group_.reduce_scatter(incoming_, full_grad_, options);
  } else {
    reduce_ = group_.all_reduce(full_grad_, options);
    incoming_ = full_grad_;
  }
  sent_ = std::exchange(full_grad_, Tensor());
  reducing_ = true;
}

void FlatParam::finish_reduce() {
  if (!std::exchange(reducing_, false)) return;
  reduce_.wait(context().backend(device_).compute());
  sent_ = Tensor();
  if (grad_.defined())
    launch(kernels::copy, incoming_, out(grad_, 1), incoming_);
  else
    grad_ = incoming_;
  incoming_ = Tensor();
}

void FlatParam::zero_grad(size_t i) {
  has_grad_[i] = false;
  if (std::ranges::find(has_grad_, true) == has_grad_.end()) grad_ = Tensor();
}

LocalRange FlatParam::local_range(size_t i) const {
  const Slice& slice = slices()[i];
  int64_t next = i + 1 < slices().size() ? slices()[i + 1].offset : padded();
  int64_t mine = shard_begin();
  int64_t begin = std::clamp(slice.offset, mine, mine + shard_.numel());
  int64_t end = std::clamp(next, mine, mine + shard_.numel());
  LocalRange range;
  range.values = shard_.rows(begin - mine, end - mine);
  if (has_grad_[i]) range.grad = grad_.rows(begin - mine, end - mine);
  range.begin = begin - slice.offset;
  range.count = std::clamp(slice.numel() - range.begin, int64_t(0), end - begin);
  return range;
}

void FlatParam::abandon_grad() {
  if (reducing_) finish_reduce();
  full_grad_ = Tensor();
}

void FlatParam::shard_written() {
  full_.storage()->bump_version();
  shard_ready_ = context().backend(device_).compute().record();
  stale_ = split_;
}

void FlatParam::write_back() {
  if (!split_) return;
  Tensor mine = full_.rows(shard_begin(), shard_begin() + shard_.numel());
  launch(kernels::copy, mine, out(shard_), mine);
  shard_written();
  stale_ = false;
}

}  // namespace shardgrad::fsdp
