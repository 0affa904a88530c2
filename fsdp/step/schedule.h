#pragma once
// When units are gathered, released and reduced. For a root with three blocks, from the second step on (AG gathers,
// RS reduce-scatters, "free" releases the gathered parameters):
//
//     forward    AG root, AG b0, AG b1, free b0, AG b2, free b1
//     backward   AG b1, RS b2, free b2, AG b0, RS b1, free b1, RS b0, free b0, RS root, free root
//
// - Before a unit computes it is gathered, unless that was started earlier; then the next units in the order of the
//   last step are started, so that their transfer runs beside this unit's compute.
// - After forward it is released, unless it is kept: the root, and the unit that finished last, whose backward is next.
//   With reshard_after_forward each rank keeps a part of what is released (fsdp/step/secondary_shard.h).
// - Two orders are kept, one of forward and one of backward. Prefetching forward by the order in which units *finish*
//   would gather the wrong unit.
// - When the last gradient of a flat parameter is written its reduction starts; the host does not wait for it. Those
//   whose gradients are incomplete (unused parameters) are flushed at the end of backward in a fixed order.
// - Where a reduction holds memory that goes with it, backward of the next unit waits for it: full gradients of two
//   units at a time. Where the full gradient stays anyway (ddp, zero1) nothing waits until the end of backward.
// - A unit with frozen parameters may be read after its last gradient is written. Backward visits newer operations
//   first: once it is at an operation older than the unit's call, it is done with the unit.
// - Without sync nothing is reduced; full gradients stay and add up until a pass with sync reduces the sum.
// - PairwiseSum numbers passes, whose sums are then those of the tree that dist/transports/pass_sums.h tells of.
// - A module may call itself, and calls may end by exceptions: the calls that are running stand on a stack, and a unit
//   is released when the last of them has returned.
// - What backward reads and nobody has gathered, such as the weights below an output that a module kept in a member,
//   is gathered when it is read.
// - An order begins anew where the root is called, or, in programs that call its children alone, after a backward pass
//   and where calls come back to the unit that they began with. So it does not grow with the number of steps.
// - A recomputed region (autograd/region.h) calls its units again in backward, all of them before the first of their
//   gradients is complete. Each is gathered then, once, and stays until its own backward: the bound of gathered bytes
//   grows by the region's units.

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <shardgrad/core/timeline.h>
#include <shardgrad/core/turn.h>
#include <shardgrad/fsdp/setup/config.h>
#include <shardgrad/fsdp/step/unit.h>

namespace shardgrad::fsdp {

class Schedule {
 public:
  explicit Schedule(Config config) : config_(std::move(config)) {}
  /// The root, when it has parameters, comes first; then units in module order, and those of parts that were sharded
  /// before.
  void add_units(std::vector<std::unique_ptr<Unit>> units) {
    for (auto& unit : units) units_.push_back(std::move(unit));
  }
  std::vector<std::unique_ptr<Unit>> give_units() { return std::exchange(units_, {}); }
  /// Whether a unit has been called.
  bool used() const { return used_; }
  std::span<const std::unique_ptr<Unit>> units() const { return units_; }
  const Config& config() const { return config_; }

  /// Hooks in graphs hold `owner`, which this belongs to, until backward has gone through them.
  void set_owner(std::weak_ptr<void> owner) { owner_ = std::move(owner); }
  std::shared_ptr<void> owner() const { return owner_.lock(); }
  /// Every later use is refused.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }

  /// The root module's call begins; it has returned.
  void begin_forward();
  void end_forward();
  /// A unit's module is called; it has returned `outputs`.
  void before_forward(Unit& unit);
  void after_forward(Unit& unit, std::span<const Tensor> outputs);
  /// The call of a unit's module, or of the root (null), has ended by an exception.
  void forward_failed(Unit* unit);
  /// A parameter of the unit is to be read and is not in memory: in backward it is gathered.
  void bring_back(Unit& unit);
  /// A gradient is about to be written, perhaps before backward comes to any unit: should the pass fail, it must show.
  void before_grads() { begin_backward(); }
  /// Every gradient of the flat parameter has been written in this backward pass; `last`: and every one of its unit.
  void after_grads(Unit& unit, FlatParam& flat, bool last);
  /// Outside of backward: begins to gather a unit that the program will use; gives it back.
  void gather_ahead(Unit& unit);
  void give_back(Unit& unit);
  /// Whether backward passes reduce gradients.
  bool sync() const { return sync_; }
  void set_sync(bool on) { sync_ = on; }
  /// The number of the next backward pass in a sum by neighbours; without one, passes are added one after the other.
  void set_pass(std::optional<int64_t> pass) { numbered_ = pass; }
  std::optional<int64_t> pass() const { return numbered_; }
  /// While parameters are summoned no unit may compute.
  bool summoned() const { return summoned_; }
  void set_summoned(bool on) { summoned_ = on; }

 private:
  /// A recorded order of units and where we are in it.
  struct Order {
    std::vector<Unit*> last, current;
    size_t cursor = 0;
    /// Whether `unit` came next the last time, or after units that are left out this time.
    bool expects(const Unit& unit) const;
    /// Adds `unit` to the current order; returns up to `count` units that came after it last time.
    std::span<Unit* const> advance(Unit& unit, int count);
    void restart();
  };
  /// A call that has not returned.
  struct Call {
    Unit* unit;          // null: the root
    uint64_t number;     // the module's call: a unit's modules may call each other, and themselves
    uint64_t called_at;  // the sequence of the last operation before it
  };
  // What a second thread is told: units are gathered and given back for one call at a time.
  static constexpr const char* kOneThread =
      " is used by a second thread while one is inside the model, which gathers and gives back its parameters for one "
      "at a time; let the threads take turns, or give each a model of its own";
  std::shared_ptr<Schedule> shared() { return {owner_.lock(), this}; }
  bool running(const Unit& unit) const;
  bool is_last_call(const Unit* unit) const;
  Call pop_call(const Unit* unit);
  void begin_outermost_call();
  // In a step that is captured (fsdp/captured.cpp).
  void begin_captured();
  void check_replay() const;
  void before_replay();
  void undo_captured();

  void begin_again(const Unit& unit, Order& order);
  void restart(Order& order);
  void give_up_ahead();
  void gather(Unit& unit, const char* phase, Order& order);
  void release(Unit& unit, const char* phase);
  bool keep(Unit& unit, bool backward_follows);
  void before_backward(const Call& call, uint64_t now);
  void reduce_or_hold(Unit& unit, FlatParam& flat);
  void release_frozen(uint64_t now);
  void begin_backward();
  void end_backward();
  void backward_failed();
  void leave_pass() {
    if (std::exchange(pass_is_inside_, false)) turn_.leave();
  }
  void recover();
  void check_usable(const Unit& unit) const;

  Config config_;
  Timeline timeline_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::weak_ptr<void> owner_;
  std::vector<Call> calls_;
  Order forward_, eval_, backward_;
  std::vector<Unit*> finished_, last_finished_;         // the order in which inner units finish forward
  std::vector<Unit*> ahead_;                            // gathered, and not needed yet
  std::vector<std::pair<Unit*, FlatParam*>> reducing_;  // whose full gradients are still being sent
  std::vector<Call> frozen_;                            // calls of units with frozen parameters that backward is in
  bool forward_failed_ = false, in_backward_ = false, sync_ = true, summoned_ = false, ended_ = false, used_ = false;
  uint64_t pass_ = 0;  // that in_backward_ speaks of
  Turn turn_;
  bool pass_is_inside_ = false;
  std::optional<int64_t> numbered_;
};

}  // namespace shardgrad::fsdp
