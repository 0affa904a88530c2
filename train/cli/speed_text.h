#pragma once
// What `shardgrad certify` prints of speeds.

#include <string>

#include <shardgrad/certify/certify_speed.h>

namespace shardgrad::cli {

/// Lines that follow those of the certificate's properties.
std::string speed_text(const SpeedReport& report);

}  // namespace shardgrad::cli
