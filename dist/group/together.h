#pragma once
// Work that counts only when every rank has done it.

#include <functional>
#include <string>

#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::dist {

/// Runs `call` on every rank and returns when it has ended on all. Where it threw on one, every rank throws: that one
/// its own error, the others an Error of the same kind with the message of the first such rank ("rank 1: cannot write
/// …"), followed by `after`. A collective, shown as `label`.
void together(ProcessGroup& group, const Label& label, const std::function<void()>& call,
              const std::string& after = {});

/// Rank `root`'s text, on every rank. A collective.
std::string same_text(ProcessGroup& group, const Label& label, const std::string& text, int root = 0);

}  // namespace shardgrad::dist
