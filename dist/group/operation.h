#pragma once
// What collectives.cpp asks for and process_group.cpp does.

#include <vector>

#include <shardgrad/core/stream.h>
#include <shardgrad/core/tensor.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/transport.h>

namespace shardgrad::dist {

/// A collective between its check and its end: what is recorded, and how to move it. Small ones are of a microsecond,
/// so it takes few allocations.
struct Operation {
  using Move = void(Transport&, const Call&, const Operation&);
  const char* op = "";
  Move* move = nullptr;
  std::vector<Tensor> tensors = {};   ///< of one dtype and on one device; kept until somebody has waited
  std::vector<Access> accesses = {};  ///< none where nobody compares them
  int64_t elements = 0, bytes_sent = 0;
  int root = -1;
  // What `move` asks for: where to, from where, and how much, in elements or bytes.
  void* to = nullptr;
  const void* from = nullptr;
  int64_t count = 0;
  std::vector<GatherPart> parts = {};  ///< of several gathers in one
  DType dtype = DType::f32;
  Device device = {};
};

}  // namespace shardgrad::dist
