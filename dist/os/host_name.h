#pragma once
// The name of the machine this process runs on, as it knows itself.

#include <string>

namespace shardgrad::dist {

/// For people and file names; names repeat between clusters of containers (this_machine in rank_map.h is for telling
/// machines apart). Never empty: "localhost" where the system does not say.
std::string host_name();

}  // namespace shardgrad::dist
