#include <shardgrad/fsdp/flat_param.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::fsdp {
namespace {

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

bool on_host(const Tensor& t) { return t.storage()->tag().category == Category::pinned_host; }

void copy(Stream& stream, Device device, const Tensor& to, const Tensor& from) {
  if (device.kind == DeviceKind::meta) return;
  context().backend(device).copy(stream, to.out().data, from.in().data, to.bytes());
}

// A parameter's gradient lands in its slice of the unit's full gradient.
class SliceSink final : public GradSink {
 public:
  SliceSink(FlatParam& flat, size_t slice, std::function<void()> ready)
      : flat_(flat), slice_(slice), ready_(std::move(ready)) {}
  Out open() override { return flat_.open_grad(slice_); }
  void ready() override { ready_(); }
  Tensor grad() const override {
    if (!flat_.has_grad(slice_) || !flat_.grad().defined()) return Tensor();
    const Slice& slice = flat_.slices()[slice_];
    SG_CHECK(!flat_.split(), "the gradient of '", slice.name, "' is sharded: each rank holds a part of it. Clip with ",
             "fsdp::clip_grad_norm(*sharded, max_norm), read the parts with FlatParam::grad()");
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
  void before_write() override { flat_.before_write(); }
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

FlatParam::FlatParam(std::string unit, std::span<nn::Parameter* const> parameters, Mesh& mesh, const Config& config)
    : unit_(std::move(unit)),
      mesh_(mesh),
      keeps_grads_(config.strategy == Strategy::zero1 || mesh.parts() == 1),
      trainable_(parameters.front()->tensor.requires_grad()),
      unit_id_(context().ledger().unit_id(unit_)),
      dtype_(parameters.front()->tensor.dtype()),
      device_(parameters.front()->tensor.device()) {
  std::vector<Slice> slices;
  for (const nn::Parameter* parameter : parameters) slices.push_back({parameter->full_name, parameter->tensor.shape()});
  layout_ = make_layout(slices, mesh.world().size());
  opened_.resize(slices.size());
  has_grad_.resize(slices.size());
  bool separate = device_.kind != DeviceKind::cpu;  // from host memory
  bool params_to_cpu = config.move_params_to_cpu && separate;
  grads_to_cpu_ = config.grads_to_cpu() && separate;
  keeps_params_ = config.keeps_params() || (!split() && !params_to_cpu);
  int64_t mine = padded() / mesh.parts();
  if (keeps_params_) {
    Tensor whole = buffer(padded(), Category::parameter_shard);
    shard_ = whole.rows(mesh.part() * mine, (mesh.part() + 1) * mine);
    full_ = Tensor(Storage::window(whole.storage()), 0, {padded()}, dtype_);
  } else if (auto common = params_to_cpu ? nullptr : common_memory(mine)) {
    Ref<Allocator> slice = dist::slice_allocator(device_, common);
    shard_ =
        Tensor(Storage::make(size_t(mine) * size_of(dtype_), slice, tag(Category::parameter_shard)), 0, {mine}, dtype_);
    full_ = Tensor(Storage::window(shard_.storage(), common->whole()), 0, {padded()}, dtype_);
    full_.storage()->release(compute());
    common_ = true;
  } else {
    shard_ = params_to_cpu ? host_buffer(mine) : buffer(mine, Category::parameter_shard);
    full_ = buffer(padded(), Category::gathered_parameter, true);
  }
  full_.storage()->set_note(concat("it belongs to unit '", unit_,
                                   "', which is sharded now. Use it inside its module's "
                                   "forward, or in a scope of fsdp::SummonFullParams"));
  fill(parameters);
  for (nn::Parameter* parameter : parameters) {
    parameters_.push_back(parameter->tensor);
    parameter->initialised = true;
  }
  rehome(full_);
  shard_written();
}

std::shared_ptr<dist::CommonMemory> FlatParam::common_memory(int64_t mine) const {
  dist::ProcessGroup* group = mesh_.shard();
  return group && mine > 0 ? group->common_memory(size_t(mine) * size_of(dtype_)) : nullptr;
}

Tensor FlatParam::buffer(int64_t numel, Category category, bool released) const {
  size_t bytes = size_t(numel) * size_of(dtype_);
  return Tensor(Storage::make(bytes, mesh_.memory(), tag(category), released), 0, {numel}, dtype_);
}

Tensor FlatParam::buffer_on(Stream& stream, int64_t numel, Category category) const {
  Tensor result = buffer(numel, category, true);
  result.storage()->materialize(stream);
  return result;
}

Tensor FlatParam::host_buffer(int64_t numel) const {
  TagScope owner(tag(Category::pinned_host));
  return empty_on_host({numel}, dtype_, device_);
}

Stream& FlatParam::compute() const { return context().backend(device_).compute(); }

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
}

// The parameters are views of `full` from now on.
void FlatParam::rehome(const Tensor& full) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor::Impl& impl = parameters_[i].impl();
    impl.storage = full.storage();
    impl.offset = size_t(layout_.slices[i].offset) * size_of(dtype_);
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
  if (!needs_gather()) return;
  dist::ProcessGroup* group = mesh_.shard();
  Stream& stream = group ? group->stream() : mesh_.copies();
  if (!resident()) full_.storage()->materialize(stream);
  Tensor mine = shard_;
  if (on_host(shard_)) {
    mine = part_of(full_);
    stream.wait(shard_ready_);
    copy(stream, device_, mine, shard_);
    shard_sent_ = stream.record();
  }
  if (group) gather_ = group->all_gather(full_, mine, {{unit_, std::string(phase)}, shard_ready_});
  if (common_) mesh_.reading_shards();
  gathering_ = true;
  stale_ = false;
}

void FlatParam::finish_gather() {
  if (!std::exchange(gathering_, false)) return;
  compute().wait(shard_sent_);
  gather_.wait(compute());
}

void FlatParam::release_full() {
  if (keeps_params_ || !resident()) return;
  finish_gather();
  full_.storage()->release(compute());
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

static void zero(const Tensor& part) {
  if (part.numel() > 0) launch(kernels::fill, part, out(part), 0.0);
}

// The gradient of slice i was given up while others of the buffer were kept.
void FlatParam::forget(size_t i) {
  grad_moved_.host_wait();
  auto [begin, end] = elements_of(i);
  zero(grad_.rows(begin, end));
}

void FlatParam::zero_gaps() {
  int64_t end = 0;
  for (const Slice& slice : slices()) {
    zero(full_grad_.rows(end, slice.offset));
    end = slice.offset + slice.numel();
  }
  zero(full_grad_.rows(end, padded()));
}

// Which slices have a gradient from this reduction (1), an earlier one (2) or both (3); else ranks that used different
// parameters of the unit would add up different sums.
std::string FlatParam::sources() const {
  std::string digits;
  for (size_t i = 0; i < opened_.size(); ++i) digits += char('0' + opened_[i] + 2 * has_grad_[i]);
  constexpr size_t kShown = 20;
  return "gradients " + (digits.size() <= kShown ? digits : concat('#', hash_of(digits)));
}

void FlatParam::start_reduce() {
  dist::CollectiveOptions options({unit_, "backward"});
  options.detail = sources();
  for (size_t i = 0; i < opened_.size(); ++i) {
    const Slice& slice = slices()[i];
    if (!opened_[i]) zero(full_grad_.rows(slice.offset, slice.offset + slice.numel()));
    if (!has_grad_[i] && grad_.defined()) forget(i);
    has_grad_[i] = has_grad_[i] || opened_[i];
  }
  // Along the row into the shard, then the shard along the column.
  sent_ = std::exchange(full_grad_, Tensor());
  options.after = compute().record();
  if (dist::ProcessGroup* group = mesh_.shard()) {
    Category category = grad_.defined() || grads_to_cpu_ ? Category::communication : Category::gradient_shard;
    incoming_ = keeps_grads_ ? part_of(sent_) : buffer_on(group->stream(), shard_.numel(), category);
    scatter_ = group->reduce_scatter(incoming_, sent_, options);
    options.after = scatter_.event();
  } else {
    incoming_ = sent_;
  }
  if (dist::ProcessGroup* group = mesh_.replica()) reduce_ = group->all_reduce(incoming_, options);
  reducing_ = true;
}

void FlatParam::finish_reduce() {
  if (!std::exchange(reducing_, false)) return;
  scatter_.wait(compute());
  reduce_.wait(compute());
  sent_ = Tensor();
  if (grad_.defined() ? on_host(grad_) : grads_to_cpu_)
    add_to_host_grad();
  else if (grad_.defined())
    launch(kernels::copy, incoming_, out(grad_, 1), incoming_);
  else
    grad_ = incoming_;
  incoming_ = Tensor();
}

// The sum is made on the device, so the host waits for nothing.
void FlatParam::add_to_host_grad() {
  if (grad_.defined()) {
    Tensor earlier = buffer_on(compute(), incoming_.numel(), Category::communication);
    compute().wait(grad_moved_);
    copy(compute(), device_, earlier, grad_);
    launch(kernels::copy, earlier, out(incoming_, 1), earlier);
  } else {
    grad_ = host_buffer(incoming_.numel());
  }
  Stream& copies = mesh_.copies();
  copies.wait(compute().record());
  copy(copies, device_, grad_, incoming_);
  grad_moved_ = copies.record();
  incoming_.storage()->release(copies);
}

void FlatParam::zero_grad(size_t i) {
  auto none = [](const std::vector<bool>& flags) { return std::ranges::find(flags, true) == flags.end(); };
  finish_reduce();  // of a pass that failed
  has_grad_[i] = false;
  if (none(has_grad_)) {
    torn_ = false;
    grad_moved_.host_wait();
    grad_ = Tensor();
  }
  if (!full_grad_.defined()) return;
  opened_[i] = false;
  if (none(opened_)) full_grad_ = Tensor();
}

std::pair<int64_t, int64_t> FlatParam::elements_of(size_t i) const {
  int64_t next = i + 1 < slices().size() ? slices()[i + 1].offset : padded(), mine = shard_begin();
  return {std::clamp(slices()[i].offset - mine, int64_t(0), shard_.numel()),
          std::clamp(next - mine, int64_t(0), shard_.numel())};
}

LocalRange FlatParam::local_range(size_t i) {
  settle_grad();
  const Slice& slice = slices()[i];
  auto [begin, end] = elements_of(i);
  LocalRange range;
  range.values = shard_.rows(begin, end);
  if (has_grad_[i]) range.grad = grad_.rows(begin, end);
  range.begin = begin + shard_begin() - slice.offset;
  range.count = std::clamp(slice.numel() - range.begin, int64_t(0), end - begin);
  return range;
}

void FlatParam::settle_grad() {
  SG_CHECK(!summoned(), "unit '", unit_, "' is to be updated in a scope of SummonFullParams; leave the scope first");
  SG_CHECK(!torn_, "unit '", unit_, "': a backward pass failed halfway, so its gradients are incomplete; call ",
           "zero_grad() and repeat the step");
  SG_CHECK(!full_grad_.defined() && !reducing_, "unit '", unit_, "' has gradients that were not reduced over the ",
           "ranks; run the last backward before the step outside the scope of fsdp::NoSync");
  wait_for_shard();
  if (!grad_.defined()) return;
  grad_moved_.host_wait();
  if (on_host(grad_) == on_host(shard_)) return;
  int64_t count = shard_.numel();
  Tensor moved = on_host(shard_) ? host_buffer(count) : buffer(count, Category::gradient_shard);
  copy_into(moved, grad_);
  grad_ = moved;
}

// Copies between host and device may still run; their memory goes with this object.
FlatParam::~FlatParam() {
  try {
    shard_sent_.host_wait();
    grad_moved_.host_wait();
  } catch (...) {  // NOLINT: whoever waits for the failed copy gets its error; a destructor has no caller
  }
}

void FlatParam::wait_for_shard() const { shard_sent_.host_wait(); }

void FlatParam::abandon_grad() {
  finish_reduce();
  for (size_t i = 0; i < opened_.size() && full_grad_.defined(); ++i) has_grad_[i] = has_grad_[i] || opened_[i];
  full_grad_ = Tensor();
  torn_ = std::ranges::find(has_grad_, true) != has_grad_.end();
}

// What is out of date cannot be read: the next forward or summon gathers it.
void FlatParam::shard_written() {
  full_.storage()->bump_version();
  shard_ready_ = context().backend(shard_.device()).compute().record();
  if (keeps_params_ && !split()) return;
  stale_ = true;
  finish_gather();
  if (resident()) full_.storage()->release(compute());
}

void FlatParam::summon() {
  dist::ProcessGroup* group = mesh_.shard();
  whole_ = buffer(padded(), Category::gathered_parameter);
  if (group && !on_host(shard_)) {
    group->all_gather(whole_, shard_, {{unit_, "summon"}}).wait(compute());
  } else {
    copy_into(part_of(whole_), shard_);
    if (group) group->all_gather(whole_, part_of(whole_), {{unit_, "summon"}}).wait(compute());
  }
  rehome(whole_);
}

void FlatParam::write_back() {
  wait_for_shard();
  copy_into(shard_, part_of(whole_));
  shard_written();
}

void FlatParam::dismiss() {
  rehome(full_);
  whole_ = Tensor();
}

}  // namespace shardgrad::fsdp
