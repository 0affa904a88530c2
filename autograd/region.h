#pragma once
// A recomputed region: its inside is not kept for backward but run again there. Users call checkpoint() (recompute.h).
//
// The graph is recorded once, in the first run, and backward walks that one: gradients, hooks and reductions happen
// once. What its nodes save is not kept; every save gets the next number instead. Backward, at the region's first node,
// runs the body again from the boundary inputs, and what is saved then, in the same order, are the values:
//
//     forward    h = relu(linear(x, W1))   linear saves x, W1 (both older than the region: kept); relu saves value 2
//                y = linear(h, W2)         saves value 3, and keeps W2
//     backward   at the last linear the body runs again: its third and fourth save are values 2 and 3, both h
//
// The second run records nodes like the first (it must save the same values); nothing keeps them. Values go with the
// node that used them, and all of them when the pass ends: they belong to the pass, so a failed one leaves none.
//
// A region inside a region has boundary inputs that the outer one does not keep: they are values of the outer region,
// which is rebuilt before. So the inside of an inner region runs three times, and nothing of it is held meanwhile.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// A tensor kept for backward: itself, or the number of the value that its region rebuilds.
struct SavedTensor {
  Tensor tensor;
  uint64_t version = 0;
  int32_t value = -1;
  std::optional<DType> dtype;  ///< what to convert it to, if not its own

  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor) : tensor(tensor), version(tensor.defined() ? tensor.version() : 0) {}
  /// The tensor. Throws Error(input) naming `user` when it was changed in place since.
  Tensor get(const char* user) const;
};

struct RecomputeOptions {
  bool offload_inputs = false;  ///< the arguments' tensors wait for backward in host memory; parameters stay
  std::string name = {};        ///< of the region, in errors
};

/// Values of one region in one backward pass.
struct RebuiltValues final : RefCounted {
  std::vector<SavedTensor> values;
};

class Region final : public RefCounted, public ReadWatch {
 public:
  /// Runs the body on boundary inputs.
  using Body = std::function<void(const std::vector<Tensor>& inputs)>;
  /// Remembers the inputs, and where the program is: dropout counters, owner of memory, autocast.
  Region(const RecomputeOptions& options, const std::vector<Tensor>& inputs, Body body);

  /// The region whose operations this thread records, or null.
  static Region* current();

  /// Operations of this thread belong to `region` for a scope.
  class Scope {
   public:
    explicit Scope(Region& region);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    Region& region_;
    Region* previous_;
    ReadWatch* reader_;
    int exceptions_;
  };

  // --- recording: called by nodes -----------------------------------------------------------------------------------
  SavedTensor save(const Tensor& tensor);
  void note_input(const Tensor& input);
  /// An operation reads it, recorded or not. Under NoGrad nothing is noted: what a program only keeps up to date, such
  /// as running statistics, may change.
  void note_read(const Tensor& operand) override;
  void note_output(GradFn& node, const Tensor& output);

  // --- backward -----------------------------------------------------------------------------------------------------
  /// Runs the body again unless this pass has. Throws Error(input) naming the operation that differs from the first
  /// run, or the tensor that was changed in place since.
  void rebuild();
  const SavedTensor& value(int32_t number) const { return rebuilt_->values.at(size_t(number)); }
  void forget(int32_t number) { rebuilt_->values.at(size_t(number)) = {}; }

 private:
  struct Input {
    SavedTensor saved;
    Device device;
    bool requires_grad;
  };
  struct Output {
    std::string op;
    Shape shape;
    DType dtype;
  };
  bool older(const Tensor& tensor) const { return tensor.storage()->epoch() < begin_; }
  Input keep_input(const Tensor& input, bool offload);
  Tensor restore(const Input& input);
  void finish_operation();
  void compare(const Output& again);
  void check_complete();

  std::string name_;
  Ref<Region> parent_;
  Body body_;
  uint64_t begin_;  // the epoch of the outermost region: storages of earlier ones are older than that
  std::vector<Input> inputs_;
  std::vector<const Storage*> offloaded_;  // of the first run
  std::vector<SavedTensor> watched_;       // from outside; the second run would differ if they changed
  std::vector<bool> wanted_;               // per save: whether it is a value
  std::vector<Output> outputs_;
  Ref<GradFn> operation_;        // whose recording is not complete
  std::vector<Output> unnamed_;  // its outputs
  Ref<RebuiltValues> rebuilt_;
  size_t outputs_again_ = 0;
  bool running_again_ = false;
  Progress progress_;
  uint64_t seed_;
  std::optional<DType> autocast_;
  Tag tag_;
};

}  // namespace shardgrad
