#pragma once

#include <string_view>

namespace shardgrad {

/// True when the whole of `name` matches `pattern`: '*' stands for any characters, '?' for one.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace shardgrad
