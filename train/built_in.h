#pragma once
// The data sets, models and tasks that every program has.

namespace shardgrad::train {

class Registry;
void register_built_in(Registry& registry);

}  // namespace shardgrad::train
