#pragma once
// Speeds as they are printed.

#include <string>

#include <shardgrad/certify/certify_speed.h>

namespace shardgrad::cli {

/// Three digits, a prefix and a unit: 23.4 ms, 5.74 GB/s.
std::string amount(double value, const char* unit);

/// Of `shardgrad certify`: lines that follow those of the certificate's properties.
std::string speed_text(const SpeedReport& report);

}  // namespace shardgrad::cli
