#pragma once
// Which parameters are gathered together: a function of the model and of how it is wrapped, and of nothing else.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/fsdp/setup/config.h>

namespace shardgrad::fsdp {

/// One future unit: a module, or several that share a bucket, and the parameters below that no deeper unit takes.
struct PlannedUnit {
  std::vector<nn::Module*> modules{};
  std::vector<nn::Parameter*> parameters{};
  std::optional<Config> own{};  ///< its options, where it was wrapped with some (wrap)

  int64_t numel() const;
  int64_t bytes() const;
  /// Its module's full name, "root" for a root without one, or the first and the last one's of several.
  std::string name(const nn::Module& root) const;
};

/// The units of `root`; its own comes first, where it has parameters of its own. Parameters that are sharded already
/// and those that Config::leave_out names are in none. Changes nothing. Throws Error(input) for names that fit none.
std::vector<PlannedUnit> plan_units(nn::Module& root, const Config& config);
/// The parameters that Config::leave_out names, by their names below the root.
std::vector<nn::Module::Entry<nn::Parameter>> left_out_entries(nn::Module& root, const Config& config);
/// A unit's parameters by the flat parameter that they are to lie in: by dtype and whether they are trained, in order
/// of first appearance; more of them follow in the same one while they are together at most `bucket` bytes, 0: any
/// number.
std::vector<std::vector<nn::Parameter*>> plan_flats(std::span<nn::Parameter* const> parameters, int64_t bucket);

}  // namespace shardgrad::fsdp
