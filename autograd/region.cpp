#include <shardgrad/autograd/region.h>

#include <algorithm>
#include <utility>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/autocast.h>
#include <shardgrad/autograd/recompute.h>

namespace shardgrad {

static thread_local Region* current_region = nullptr;
static thread_local int regions_running_again = 0;

bool recomputing() { return regions_running_again > 0; }

Tensor SavedTensor::get(const char* user) const {
  if (tensor.defined() && tensor.version() != version) [[unlikely]] {
    const std::string& label = tensor.name();
    fail(user, ": ", label.empty() ? concat("a tensor of shape ", tensor.shape()) : "'" + label + "'",
         " was changed in place after it was saved for backward (version ", tensor.version(), ", saved at ", version,
         "); run backward before the change, or change a copy");
  }
  return dtype ? cast_shared(tensor, *dtype) : tensor;
}

Region* Region::current() { return current_region; }

Region::Scope::Scope(Region& region)
    : region_(region),
      previous_(std::exchange(current_region, &region)),
      reader_(std::exchange(detail::launch_watchers.reader, &region)),
      exceptions_(std::uncaught_exceptions()) {}

Region::Scope::~Scope() {
  current_region = previous_;
  detail::launch_watchers.reader = reader_;
  if (std::uncaught_exceptions() == exceptions_) region_.finish_operation();
  region_.operation_ = nullptr;
  region_.unnamed_.clear();
}

Region::Region(const RecomputeOptions& options, const std::vector<Tensor>& inputs, Body body)
    : name_(options.name.empty() ? "recompute" : concat("recompute of '", options.name, "'")),
      parent_(current_region),
      body_(std::move(body)),
      begin_(parent_ ? parent_->begin_ : Storage::begin_epoch()),
      rebuilt_(make_ref<RebuiltValues>()),
      progress_(progress()),
      seed_(context().seed()),
      autocast_(autocast_dtype()),
      tag_(context().tag()) {
  for (const Tensor& input : inputs) inputs_.push_back(keep_input(input, options.offload_inputs));
}

// --- the first run --------------------------------------------------------------------------------------------------

Region::Input Region::keep_input(const Tensor& input, bool offload) {
  Tensor kept = input.detach();
  bool parameter = input.is_leaf() && input.requires_grad();
  if (offload && !parameter && input.device() != kCpu && input.device() != kMeta) {
    offloaded_.push_back(input.storage().get());
    NoGrad no_grad;
    TagScope owner(Category::pinned_host);
    if (!parent_ || parent_->running_again_) {  // else nothing is kept yet
      kept = empty_on_host(input.shape(), input.dtype(), input.device());
      copy_into(kept, input);
    }
  }
  return {parent_ ? parent_->save(kept) : SavedTensor(kept), input.device(), input.requires_grad()};
}

SavedTensor Region::save(const Tensor& tensor) {
  if (running_again_) {
    std::vector<SavedTensor>& values = rebuilt_->values;
    bool wanted = values.size() < wanted_.size() && wanted_[values.size()];
    values.push_back(wanted ? SavedTensor(tensor.detach()) : SavedTensor());
    return {};
  }
  bool kept = !tensor.defined() || (older(tensor) && std::ranges::count(offloaded_, tensor.storage().get()) == 0);
  wanted_.push_back(!kept);
  if (kept) return SavedTensor(tensor);
  SavedTensor saved;
  saved.value = int32_t(wanted_.size()) - 1;
  return saved;
}

void Region::note_input(const Tensor& input) {
  // A copy that autocast keeps goes with its scope; the parameter is noted where its conversion is recorded.
  bool shared = input.storage()->tag().category == Category::converted_parameter;
  if (running_again_ || shared || !older(input) || std::ranges::count(offloaded_, input.storage().get()) > 0) return;
  auto same = [&](const SavedTensor& watched) {
    return watched.tensor.storage() == input.storage() && watched.tensor.offset() == input.offset();
  };
  if (std::ranges::none_of(watched_, same)) watched_.emplace_back(input.detach());
}

void Region::note_read(const Tensor& operand) {
  if (grad_enabled()) note_input(operand);
}

// A node knows its name when its operation is done: at the next one, or at the end.
void Region::note_output(GradFn& node, const Tensor& output) {
  if (operation_.get() != &node) finish_operation();
  operation_ = Ref<GradFn>(&node);
  unnamed_.push_back({"", output.shape(), output.dtype()});
}

void Region::finish_operation() {
  if (!operation_) return;
  for (Output& output : unnamed_) {
    output.op = static_cast<Node&>(*operation_).name();
    if (running_again_)
      compare(output);
    else
      outputs_.push_back(std::move(output));
  }
  unnamed_.clear();
  operation_ = nullptr;
}

void Region::compare(const Output& again) {
  SG_CHECK(outputs_again_ < outputs_.size(), name_, ": run again for backward, it also records ", again.op, " of ",
           again.dtype, again.shape, "; it must do the same every time");
  const Output& first = outputs_[outputs_again_++];
  SG_CHECK(first.op == again.op && first.shape == again.shape && first.dtype == again.dtype, name_,
           ": run again for backward, its operation ", outputs_again_, " is ", again.op, " of ", again.dtype,
           again.shape, "; in the first run it was ", first.op, " of ", first.dtype, first.shape,
           ". It must do the same every time");
}

// --- backward -------------------------------------------------------------------------------------------------------

Tensor Region::restore(const Input& input) {
  const SavedTensor* saved = &input.saved;
  if (saved->value >= 0) {
    parent_->rebuild();
    saved = &parent_->value(saved->value);
  }
  Tensor kept = saved->get(name_.c_str());
  Tensor restored = kept.device() == input.device ? kept.detach() : to_device(kept, input.device);
  if (input.saved.value >= 0) parent_->forget(input.saved.value);
  if (input.requires_grad) restored.set_requires_grad();
  return restored;
}

void Region::rebuild() {
  if (!rebuilt_->values.empty() || std::ranges::count(wanted_, true) == 0) return;
  for (const SavedTensor& watched : watched_) watched.get(name_.c_str());
  TagScope owner(tag_);
  std::vector<Tensor> inputs;
  for (const Input& input : inputs_) inputs.push_back(restore(input));
  keep_until_pass_ends(rebuilt_);
  struct Again {  // of this thread: others of the rank may draw meanwhile
    Region& region;
    Scope scope;
    Progress then;
    uint64_t seed;
    ThreadSetting<Progress*>::Scope drawn_by{detail::own_progress, &then};
    ThreadSetting<uint64_t*>::Scope seeded_by{detail::own_seed, &seed};
    explicit Again(Region& region) : region(region), scope(region), then(region.progress_), seed(region.seed_) {
      region.running_again_ = true;
      ++regions_running_again;
    }
    ~Again() {
      region.running_again_ = false;
      --regions_running_again;
    }
  };
  outputs_again_ = 0;
  Again again(*this);
  GradMode recorded(true);
  Autocast precision(autocast_);
  body_(inputs);
  check_complete();
}

void Region::check_complete() {
  finish_operation();
  SG_CHECK(outputs_again_ == outputs_.size(), name_, ": run again for backward, it stops after ", outputs_again_,
           " operations; in the first run ", outputs_[outputs_again_].op, " of ", outputs_[outputs_again_].dtype,
           outputs_[outputs_again_].shape, " followed. It must do the same every time");
  SG_CHECK(rebuilt_->values.size() == wanted_.size(), name_, ": run again for backward, it saves ",
           rebuilt_->values.size(), " tensors instead of ", wanted_.size(), "; it must do the same every time");
}

}  // namespace shardgrad
