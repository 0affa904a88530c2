#pragma once
// What a job of virtual ranks ends by.

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <shardgrad/dist/group/virtual_ranks.h>

namespace shardgrad::dist {

/// What run_ranks throws for this body.
inline std::string failure(int size, const std::function<void(ProcessGroup&)>& body,
                           const VirtualOptions& options = {}) {
  try {
    run_ranks(size, body, options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline Tensor ones(int64_t n) { return from_vector(std::vector<float>(size_t(n), 1.f), {n}); }

}  // namespace shardgrad::dist
