#pragma once
// What this binary was built from; the build fills it in.

namespace shardgrad::train {

struct BuildInfo {
  const char *version, *git, *compiler, *onednn, *openmp, *pcre2, *cuda;
};
BuildInfo build_info();

}  // namespace shardgrad::train
