#pragma once
// What the bytes of a sharded model are for, beside its parameters' shards (autograd/parameter.h).

#include <shardgrad/core/ledger.h>

namespace shardgrad::Category {
inline constexpr Kind gathered_parameter = named<"gathered_parameter">;  ///< a unit's full parameters
inline constexpr Kind secondary_shard = named<"secondary_shard">;        ///< 1/n of them (reshard_after_forward)
inline constexpr Kind full_gradient = named<"full_gradient">;            ///< before the reduction
inline constexpr Kind gradient_shard = named<"gradient_shard">;          ///< after it
}  // namespace shardgrad::Category
