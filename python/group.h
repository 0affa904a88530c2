#pragma once
// A handle on a group, which the job owns: used after the job's end it says so.

#include <shardgrad/dist/group/process_group.h>

namespace shardgrad::python {

class Group {
 public:
  explicit Group(dist::ProcessGroup& group) : group_(&group), life_(group.life()) {}
  dist::ProcessGroup& operator*() const {
    SG_CHECK(!life_.expired(), "this group of ranks is gone: the job has ended");
    return *group_;
  }
  dist::ProcessGroup* operator->() const { return &**this; }

 private:
  dist::ProcessGroup* group_;
  std::weak_ptr<const void> life_;
};

}  // namespace shardgrad::python
