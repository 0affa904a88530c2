#pragma once
// Numbers as people read them. One that is none is "NaN", whatever its sign.

#include <cstdint>
#include <string>

namespace shardgrad::train {

/// As printf does.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// 1536 → "1.5 KiB"; 90 → "1m30s"; 0.125, 2 → "0.13"; 0.1f → "0.1", all its digits and no more.
std::string format_bytes(int64_t bytes);
std::string format_seconds(double seconds);
std::string format_fixed(double value, int digits);
std::string format_shortest(float value);

/// Control characters as "\x0a", where a terminal would take them for orders.
std::string printable(const std::string& text);

/// Now, in UTC: 2030-01-31T10:00:00Z.
std::string date_of_now();

}  // namespace shardgrad::train
