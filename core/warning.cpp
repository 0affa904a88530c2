#include <shardgrad/core/warning.h>

#include <cstdio>

#include <shardgrad/core/context.h>

namespace shardgrad {

void warn(const std::string& text) {
  if (context().rank() == 0) std::fprintf(stderr, "shardgrad: warning: %s\n", text.c_str());
}

}  // namespace shardgrad
