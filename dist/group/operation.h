#pragma once
// What collectives.cpp asks for and process_group.cpp does.

#include <functional>
#include <vector>

#include <shardgrad/core/stream.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {

/// A collective between its check and its end: what is recorded, and how to move it.
struct ProcessGroup::Operation {
  const char* op;
  std::vector<Tensor> tensors;
  std::vector<Access> accesses;
  int64_t elements = 0, bytes_sent = 0;
  int root = -1;
  std::function<void(Transport&, const Call&)> move = {};
  Device device = {};
};

}  // namespace shardgrad::dist
