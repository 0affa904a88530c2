#pragma once
// A module owns parameters, buffers and submodules, and calls its forward with whatever signature its author wants:
//
//     struct Mlp : nn::Module {
//       nn::Child<nn::Linear> up   = child<nn::Linear>("up", 784, 1024);
//       nn::Child<nn::Linear> down = child<nn::Linear>("down", 1024, 10);
//       Tensor forward(const Tensor& x) { return down(relu(up(x))); }
//     };
//     auto model = nn::make<Mlp>();     // a handle like `up` and `down`
//     Tensor y = model(x);              // hooks, Mlp::forward, hooks
//
// forward is not virtual: a handle knows its module's type. Calling a handle, never forward itself, runs the hooks, and
// hooks are how sharding works: it gathers parameters before a call and frees them after.
//
// A module is constructed without memory: a parameter is a shape, an initialiser and a released storage. Values appear
// at the first call of the root, or each rank fills only its shard (fsdp); see Init for why both give the same model.

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/autograd/recompute.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/nn/init.h>

namespace shardgrad::Category {
inline constexpr Kind buffer = named<"buffer">;  ///< of modules, such as running statistics
}

namespace shardgrad::nn {

template <class M> class Child;

/// What a module records of a parameter or buffer. `tensor` is the same handle as the module's member, so giving it
/// another storage (tensor.impl()) re-homes the member too.
struct Parameter {
  std::string full_name;  ///< from the root, e.g. "layers.0.weight"
  Tensor tensor;
  Init init;
  bool initialised = false;  ///< its values exist, here or in a shard
  Part part = {};            ///< what `tensor` holds of a larger parameter
  bool replaced = false;     ///< its module has another one in its place
  bool persistent = true;    ///< of a buffer: whether it is saved, too
  bool keeps_f32 = false;    ///< of a buffer: whether to(dtype) to 16 bits leaves it in f32

  /// Gives the tensor its memory and initial values, unless they exist.
  void materialize();
  /// The same without values, for who fills them all.
  void allocate();
  /// From now on the tensor is the memory of `values`, a tensor of its shape, with their device and dtype. A graph made
  /// before is lost, as in Module::to.
  void take(const Tensor& values);
  /// Fills a one-dimensional tensor with the initial values of elements [begin, begin + destination.numel()).
  void fill_range(int64_t begin, const Tensor& destination) const {
    init.fill_part(destination, begin, tensor.shape(), part, full_name);
  }
};

using StateDict = std::map<std::string, Tensor>;
/// Names that a model has and a state lacks, and the other way round.
struct OtherNames {
  std::vector<std::string> missing, unexpected;
};

/// In a hook: the number of the call that runs it, which no other call of this thread has.
uint64_t running_call();

class Module {
 public:
  /// Gets the tensors among the arguments of a call, undefined ones left out, and may replace them.
  using ForwardPreHook = std::function<void(Module&, std::span<Tensor>)>;
  /// Gets the tensors in the result of a call, undefined ones left out, and may replace them.
  using ForwardHook = std::function<void(Module&, std::span<Tensor>)>;
  /// Runs when a call ends by an exception; must not throw.
  using ForwardFailedHook = std::function<void(Module&)>;
  template <class T> struct Entry {
    std::string name;  ///< within this module
    std::shared_ptr<T> object;
  };

  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  // --- names; all walks are in order of registration, a module before its submodules, everything shared once -------
  std::vector<NamedParameter> named_parameters();
  /// The tensors of these.
  std::vector<Tensor> parameters();
  std::vector<NamedParameter> named_buffers();
  /// Those that are persistent.
  std::vector<NamedParameter> saved_buffers();
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// Second names of tied parameters and of what shared modules hold, with the names they are listed under.
  std::map<std::string, std::string> aliases();
  std::span<const Entry<Parameter>> own_parameters() const { return parameters_; }
  std::span<const Entry<Parameter>> own_buffers() const { return buffers_; }
  std::span<const Entry<Module>> children() const { return children_; }
  /// The type without namespaces: "Linear".
  virtual std::string type_name() const;
  /// The name within the root; empty for the root itself.
  const std::string& full_name() const { return full_name_; }
  /// The module that registered this one first; null for a root.
  const Module* parent() const { return parent_; }
  /// named_parameters with what is recorded of each.
  std::vector<Entry<Parameter>> parameter_entries() { return distinct(&Module::parameters_); }
  std::vector<Entry<Parameter>> buffer_entries() { return distinct(&Module::buffers_); }
  /// Gives every parameter, buffer and module of the whole tree its full name. Done by the calls that need the names.
  void complete_names();

  // --- state -------------------------------------------------------------------------------------------------------
  /// Fills every parameter and buffer of the whole tree that has no values yet. The first call of a root does; several
  /// threads may make it at once.
  void materialize();
  /// Makes everything below live on `device`, or be of floating type `dtype`, with the values and gradients that there
  /// are. Integers stay what they are, and so do running statistics where `dtype` has 16 bits (Parameter::keeps_f32).
  /// An optimizer that has made a step is to be made anew. A graph made before is lost: its backward gives the
  /// parameters no gradient, and is refused where it needs their values. Throws Error(input) for a sharded model.
  void to(Device device);
  void to(DType dtype);
  /// Parameters and buffers by name. The tensors are those of the model, not copies. Throws Error(input) where one is a
  /// part of a larger parameter.
  StateDict state_dict();
  /// Copies values in. A second name of a parameter may be given beside the first, with the same values. Throws, having
  /// changed nothing, listing every missing, unknown or ill-fitting name.
  void load_state_dict(const StateDict& state);
  /// The same of the names that both have; gives the others. Throws, having changed nothing, for ill-fitting values.
  OtherNames load_known(const StateDict& state);
  void train(bool on = true);
  void eval() { train(false); }
  bool training() const { return training_; }
  void zero_grad();

  void add_forward_pre_hook(ForwardPreHook hook);
  void add_forward_hook(ForwardHook hook);
  void add_forward_failed_hook(ForwardFailedHook hook);
  /// Calls of this module are recomputed in backward from now on, or not; see nn/recompute.h. Hooks run outside of the
  /// region.
  void set_recompute(std::optional<RecomputeOptions> options);

  // --- what Child needs --------------------------------------------------------------------------------------------
  /// True when a call is nothing but forward.
  bool direct() const { return direct_; }
  const std::optional<RecomputeOptions>& recompute_options() const { return recompute_; }
  void before_forward(std::vector<Tensor>& inputs);
  void after_forward(std::vector<Tensor>& outputs);
  void forward_failed();
  /// Whether its type has no forward: a list or a group of modules, whose owner calls them.
  bool only_holds() const { return only_holds_; }
  void set_only_holds(bool on) { only_holds_ = on; }
  /// Marks the top of a tree; see make.
  void make_root();
  /// Makes `second`, a parameter of this module's tree, the same as `first`, which may be of another one.
  void tie(const std::shared_ptr<Parameter>& first, Tensor& second);
  /// This module and those below are sharded: a parameter that is registered from now on is refused.
  void seal();

  // --- what other languages need, whose modules change while they are there; a member is theirs to set ---------------
  /// This module's parameter of this name is `parameter` from now on, which others may have too; null: there is none.
  void set_parameter(const std::string& name, std::shared_ptr<Parameter> parameter);
  /// There are no modules below this one any more. Throws Error(input) for a sharded one.
  void drop_children();
  /// Registers what `other` has: the same parameters, buffers and modules. For a module of its type.
  void share_parts(const Module& other);

 protected:
  Module() = default;

  /// Registers a trainable tensor of dtype f32 (see to). Throws for a name that is taken, empty, or has a dot. With a
  /// `part` it is one rank's part of a larger parameter, and begins with the values that the larger one has there.
  Tensor param(std::string name, const Shape& shape, Init init, Part part = {});
  /// Registers a tensor that is saved, moved and converted with the module but not trained, such as a running mean.
  Tensor buffer(std::string name, const Shape& shape, DType dtype = DType::f32, double value = 0);
  /// Makes and owns a submodule.
  template <class M, class... Args> Child<M> child(std::string name, Args&&... args);
  /// Registers a module that exists, perhaps as another's child, under a name of this module.
  template <class M> Child<M> share(std::string name, const Child<M>& module);
  /// Makes `second`, a parameter of a module below this one, the same parameter as `first`.
  void tie(const Tensor& first, Tensor& second);

 private:
  using EntryList = std::vector<Entry<Parameter>>;
  void check_name(const std::string& name) const;
  void check_open(const std::string& name) const;
  Tensor add_tensor(EntryList& list, std::string name, const Shape& shape, DType dtype, Category::Kind category,
                    Init init);
  void add_child(std::string name, std::shared_ptr<Module> module);
  std::vector<Entry<Parameter>> distinct(EntryList Module::*list);
  std::vector<Entry<Parameter>> state_entries();
  void load(const StateDict& own, const StateDict& state);
  std::shared_ptr<Parameter> find(const Tensor& tensor);
  Module& root();
  void update_direct();
  void fill();
  void fill_on_call();
  void rehouse(std::optional<Device> device, std::optional<DType> dtype);

  EntryList parameters_, buffers_;
  std::vector<Entry<Module>> children_;
  std::deque<ForwardPreHook> pre_hooks_;
  std::deque<ForwardHook> hooks_;
  std::deque<ForwardFailedHook> failed_hooks_;
  std::optional<RecomputeOptions> recompute_;
  std::string full_name_;
  Module* parent_ = nullptr;  // the first module that registered this one
  bool training_ = true;
  bool only_holds_ = false;
  bool sealed_ = false;
  std::atomic<bool> direct_ = true;
  std::atomic<bool> fills_on_call_ = false;  // was made as a root, and its tree has not been filled
  std::mutex filling_;                       // of a root: for who fills its tree
};

/// The tree of modules with the shapes of their parameters, and how many numbers those have:
///
///     Mlp(
///       (up): Linear(weight [1024, 784], bias [1024])
///       (down): Linear(weight [10, 1024], bias [10])
///     ) with 814,090 parameters
///
/// What a module shares with an earlier one counts once. A sharded model shows whole shapes.
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace shardgrad::nn

#include <shardgrad/nn/child.h>
