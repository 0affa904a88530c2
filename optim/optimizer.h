#pragma once
// What all optimizers share. An optimizer asks each parameter for its local ranges: the whole tensor, or the pieces
// that lie in this rank's shard. So one loop serves plain and sharded models. Neighbours in memory with the same
// options are updated by one kernel: under ZeRO-3 that is one launch per shard, not one per parameter.
//
//     optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-3}, {{"*.bias", {.weight_decay = 0}}});
//     for (…) { loss.backward(); optimizer.step(); optimizer.zero_grad(); }

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardgrad/autograd/parameter.h>
#include <shardgrad/autograd/spread.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad::Category {
inline constexpr Kind optimizer_state = named<"optimizer_state">;
}

namespace shardgrad {
class GradSink;
}

namespace shardgrad::optim {

/// What a rule changes for the parameters it matches.
struct Overrides {
  std::optional<double> weight_decay = {};
  double lr_scale = 1;  ///< multiplies the learning rate, also after set_lr
};

/// Options for parameters whose name matches `pattern` (autograd/match.h). A parameter obeys the first rule that
/// matches.
struct Rule {
  std::string pattern;
  Overrides overrides;
};
using Rules = std::vector<Rule>;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter that has a gradient, after multiplying the gradient by `grad_scale`. Throws Error(input)
  /// when none has one, sharded or not, or when a parameter's memory moved since the optimizer was made (it was sharded
  /// later). The last parameters come first, as their gradients do: with offload the host updates them while a device
  /// is still computing those of the first. Where an update fails, those before it stay, and only they are counted.
  /// Names trainable parameters that had no gradient in all of the first 20 steps in a warning, once.
  void step(double grad_scale = 1);
  /// The same with a number that a kernel has left (f64, one; optim::clip_scale). SGD, Adam and AdamW read it where the
  /// parameters are, without waiting if it is there; others wait for it. What it is nobody checks.
  void step(const Tensor& grad_scale);
  /// Forgets the gradients and frees their memory.
  void zero_grad();
  /// The gradients that a step on this rank would use, padding included; none on a rank that holds none.
  std::vector<Tensor> gradients() const;
  double lr() const { return lr_; }
  /// Those of all parameters; each keeps its ratio to the others.
  void set_lr(double lr);
  /// That of parameters()[i], and its weight decay. On all ranks alike. Throws Error(input) where there is no such i.
  double lr_of(size_t i) const;
  void set_lr_of(size_t i, double lr);
  double weight_decay_of(size_t i) const;
  /// What a parameter learns by: lr(), its own rate, and the ratio of the two that set_lr keeps.
  struct Rates {
    double lr, own, ratio;
  };
  std::map<std::string, Rates> rates() const;
  /// Also lr(). Parameters without an entry keep their ratio. Throws Error(input), having changed nothing, for one
  /// below 0 or not finite.
  void set_rates(const std::map<std::string, Rates>& rates);
  std::span<const NamedParameter> parameters() const { return parameters_; }

  /// The state tensors of a parameter: "exp_avg", …
  std::span<const std::string> state_names() const { return state_names_; }

  /// This rank's elements of one state tensor of one parameter.
  struct StateSlice {
    std::string name;   ///< e.g. "layers.0.weight.exp_avg"
    Shape shape;        ///< of the whole parameter
    int64_t begin = 0;  ///< index within the parameter of the first element
    Tensor values;      ///< one dimension; writing to it changes the state
    Part part = {};     ///< what the parameter, with this shape, is of a larger one
  };
  /// Whether parameters()[i] has state or, being trained, gets it with the first step. One that is frozen keeps it.
  /// Throws Error(input) where there is no such i.
  bool has_state(size_t i) const {
    check_number(i);
    return trains(i) || !slots_[i].states.empty();
  }
  using IsGiven = std::function<bool(const std::string& name)>;
  /// Makes the state that is not there yet, of 0: of trained parameters, and of those with a state tensor of which
  /// `given` says that it is to be loaded.
  void allocate_states(const IsGiven& given = {});
  /// All state of this rank, allocated if it was not yet.
  std::vector<StateSlice> state_slices();
  /// One of state_slices() without its values.
  struct StatePlace {
    std::string name;
    Shape shape;
    int64_t begin, count;
    DType dtype;
    Part part = {};
  };
  /// Those of allocate_states(given), before it: for who checks a state before anything changes.
  std::vector<StatePlace> planned_states(const IsGiven& given) const;
  /// How many steps each parameter has been through; 0 on a rank that holds no part of it.
  std::map<std::string, int64_t> steps() const;
  /// Throws for a missing, unknown or negative entry.
  void set_steps(const std::map<std::string, int64_t>& steps);
  /// State tensors by name, not copies, and of each parameter its steps (i64, one element) and rates (state_rates.h) as
  /// "<parameter>.step" and "<parameter>.lr". Throws for a sharded model, whose state is spread over the ranks (see
  /// state_slices), and where a parameter is a part of a larger one.
  std::map<std::string, Tensor> state_dict();
  /// Copies values in, also of parameters that are frozen now, and takes the rates over, if there are some. Throws,
  /// having changed nothing, listing every missing, unknown or ill-fitting name.
  void load_state_dict(const std::map<std::string, Tensor>& state);

 protected:
  static constexpr size_t kMaxStates = 2;
  using States = std::array<Tensor, kMaxStates>;

  /// What of an update changes from step to step.
  struct Now {
    double lr;
    int64_t step;     ///< 1 for the first
    uint64_t random;  ///< the seed of the bits that round values of bf16 (kernels::Rounding); 0 where there are none
  };
  /// A contiguous run of elements with the same options; flat tensors of one length.
  struct Run {
    Tensor values, grad;
    Tensor copy;  ///< undefined, or is to hold the new values in its dtype
    States states;
    double lr, weight_decay;
    int64_t step;  ///< 1 for the first
    double grad_scale;
    Tensor scale;  ///< where it is defined, one f64 beside the values: the gradient is multiplied by it, too
    std::function<Now()> later = {};  ///< in a step that is captured (core/capture.h): as now(), when it is run again
    uint64_t random = 0;
    int64_t begin = 0;  ///< index within its parameter of the first element
    Now now() const { return {lr, step, random}; }
    /// For an update that writes the copy itself. One that is not taken is written after the update.
    Tensor take_copy() { return std::exchange(copy, Tensor()); }
    /// For an update that multiplies by the scale. One that is not taken from the Run that update() is given, where
    /// takes_scale() says it is, is an error.
    Tensor take_scale() { return std::exchange(scale, Tensor()); }
  };
  /// `state_names` are the state tensors that an update keeps, at most kMaxStates. Throws Error(input) for a trainable
  /// parameter that is to be updated in 16 bits: small steps would be lost in rounding. With `stochastic_rounding` bf16
  /// is taken, for an update() that rounds as kernels::Rounding says, by Now::random and Run::begin; a run is of one
  /// parameter then.
  Optimizer(const char* name, std::vector<NamedParameter> parameters, double lr, double weight_decay, Rules rules,
            std::vector<std::string> state_names, bool stochastic_rounding = false);
  virtual void update(Run& run) = 0;
  /// A launch costs a device that works beside the host more than an element: update() may only gather runs, for
  /// end_updates() to launch. So many at most come between the two, of one device and dtype, and with copies of one.
  virtual size_t most_gathered() const { return 1; }
  virtual void begin_updates() {}
  virtual void end_updates() {}
  /// Whether a step can be captured: what update() launches reads what changes from step to step from the device's
  /// memory, as Run::later says, and finish() does nothing.
  virtual bool can_be_captured() const { return false; }
  /// Whether update() multiplies by Run::scale (take_scale), and finish() updates nothing.
  virtual bool takes_scale() const { return false; }

  // One local range that a step updates.
  struct Piece {
    LocalRange range;
    size_t index;  // of the parameter
    size_t part;   // of the parameter's ranges
  };
  /// What a step has left to do when update() has had all runs; for optimizers that compute with whole tensors.
  virtual void finish(std::span<const Piece> pieces, double grad_scale) {
    static_cast<void>(pieces);
    static_cast<void>(grad_scale);
  }
  /// The elements of a piece, without padding.
  Run run_of(const Piece& piece, double grad_scale) const { return run_of({&piece, 1}, piece.range.count, grad_scale); }
  /// Whether this step updates parameters()[i], also where this rank holds no part of it.
  bool is_updated(size_t i) const { return slots_[i].has_gradient; }
  Spread spread_of(size_t i) const;

 private:
  // What is known of parameters_[i].
  struct Slot {
    GradSink* owner;  // who had sharded it when the optimizer was made, or null
    double weight_decay, lr_scale;
    std::optional<double> own_lr = {};  // in the place of lr() · lr_scale
    int64_t steps = 0;
    std::vector<States> states = {};                  // one per local range; empty until allocated
    bool has_gradient = false, had_gradient = false;  // in the last step; in any
  };
  // Where the values of a range were when a step was captured.
  struct Place {
    size_t index, part;
    Ref<Storage> storage;
    const void* at;
  };
  void check_number(size_t i) const;
  enum class Gradients : bool { unused, used };
  std::span<const LocalRange> ranges_of(size_t i, Gradients gradients, LocalRange& whole) const;
  void wait_for(const Piece& piece) const;
  bool add_pieces(size_t i, std::vector<Piece>& pieces) const;
  std::vector<Piece> take_pieces();
  bool trains(size_t i) const { return parameters_[i].tensor.requires_grad(); }
  bool is_given(size_t i, const IsGiven& given) const {
    return given && !state_names_.empty() && given(state_name(i, 0));
  }
  void check_dtype(size_t i) const;
  uint64_t random_of(size_t i, int64_t step) const;
  void check_state(size_t i) const;
  void warn_of_untrained() const;
  void tell_owners(void (GradSink::*event)()) const;
  bool follows(const Piece& before, const Piece& after) const;
  void apply_rules(const Rules& rules);
  void allocate_run(std::span<const Piece> pieces);
  static DType state_dtype(const Tensor& values);
  Run run_of(std::span<const Piece> pieces, int64_t count, double grad_scale) const;
  void step(double grad_scale, const Tensor& scale);
  Run ready_run(std::span<const Piece> pieces, double grad_scale, const Tensor& scale) const;
  void update_runs(std::span<Run> runs);
  void update_all(std::span<const Piece> pieces, double grad_scale, const Tensor& scale);
  void publish(std::span<const Piece> pieces) const;
  void end_step();
  // optimizer_capture.cpp: a step that is captured.
  void check_capture(std::span<const Piece> pieces) const;
  std::function<Now()> later_of(std::span<const Piece> pieces) const;
  void repeat_in_replays(std::span<const Piece> pieces);
  void check_not_moved(std::span<const Place> places) const;
  void begin_capture();
  std::string state_name(size_t i, size_t state) const { return parameters_[i].name + "." + state_names_[state]; }

  std::string name_;
  std::vector<NamedParameter> parameters_;
  std::vector<Slot> slots_;
  std::vector<std::string> state_names_;
  double lr_;
  bool stochastic_rounding_;
  int64_t calls_ = 0;                                               // of step
  const std::shared_ptr<Optimizer> self_{this, [](Optimizer*) {}};  // while it lives, for captured steps
};

/// Throws Error(input) naming optimizer, option and value unless `valid` and the value is finite.
void check_option(const char* optimizer, const char* option, double value, bool valid);
/// A line, begun by a line break, for each rate below 0 or not finite.
std::string faults_of(const std::map<std::string, Optimizer::Rates>& rates);

}  // namespace shardgrad::optim
