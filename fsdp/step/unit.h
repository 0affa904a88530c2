#pragma once
// A unit: one module's parameters (less those of units inside it), gathered, used and released together.
//
//     Sharded ──unshard()──▶ Gathering ──wait()──▶ Unsharded ──reshard()──▶ Sharded
//
// One all-gather brings all that its module computes with, whatever the dtypes and whether it is trained or frozen. In
// backward an unsharded unit also collects gradients; when the last one of a flat parameter is written, its full
// gradient is sent to the shards. Illegal transitions are asserted. A permanent unit never goes back to Sharded;
// after the optimizer's step it is gathered over its old values. Under ddp the same calls do nothing or reduce to
// everybody: one code path.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/fsdp/step/flat_param.h>

namespace shardgrad::fsdp {

enum class UnitState : uint8_t { sharded, gathering, unsharded };
const char* name_of(UnitState state);

class Unit;
/// Whom a unit tells what has happened.
struct UnitEvents {
  std::function<void()> writes;  ///< a gradient of one of its parameters is about to be written
  /// In backward every gradient of the flat parameter has been written, and, at the `last` call, every one of the unit.
  std::function<void(Unit&, FlatParam&, bool last)> grads;
  std::function<void(Unit&)> missing;  ///< one of its parameters is to be read and is not in memory
};

class Unit {
 public:
  /// Lays the module's parameters into flat parameters, as plan_flats tells.
  Unit(std::string name, std::vector<nn::Parameter*> parameters, Mesh& mesh, const Config& config, bool is_root,
       UnitEvents events);

  const std::string& name() const { return name_; }
  bool is_root() const { return is_root_; }
  bool reshards_after_forward() const { return reshards_; }
  /// Its model has become part of another one, which has other events.
  void join(UnitEvents events) {
    events_ = std::move(events);
    is_root_ = false;
  }
  /// Whether its full parameters never leave memory.
  bool permanent() const { return permanent_; }
  bool has_frozen() const;
  /// Whether unshard() would move anything.
  bool needs_gather() const;
  UnitState state() const { return state_; }
  std::span<const std::unique_ptr<FlatParam>> flat_params() const { return flat_params_; }
  /// Bytes that unsharding brings into memory.
  size_t full_bytes() const;
  int64_t numel() const;

  /// Starts gathering, unless gathered already and still current.
  void unshard(std::string_view phase);
  /// Compute waits for the gather.
  void wait();
  /// Before its forward's reshard(), where backward follows: each rank takes a part, if the unit's options say so.
  void take_secondary();
  /// Gives the gathered parameters back.
  void reshard();
  /// In backward: whether this pass will bring gradients that have not been written.
  bool expects_grads();

 private:
  void transition(UnitState to);
  void gather_among(dist::ProcessGroup* group, std::string_view phase);
  void expect_grads();
  void grad_ready(size_t flat);
  std::string name_;
  Mesh& mesh_;
  bool is_root_, reshards_, permanent_ = true;
  UnitState state_ = UnitState::sharded;
  std::vector<std::unique_ptr<FlatParam>> flat_params_;
  std::vector<int> grads_left_;  // of each flat parameter, in this pass
  uint64_t expected_pass_ = 0;
  UnitEvents events_;
};

}  // namespace shardgrad::fsdp
