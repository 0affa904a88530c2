#pragma once
// When ranks wait for each other for ever in different groups. Groups may overlap in time: while rank 0 is in a
// collective of group A and rank 1 in one of group B, both may be about to come. What is known for certain:
//
//   - a collective (rank r, group g, number s) ends only after every member of g has come to its own s. A broadcast is
//     not counted: MPI may let its root go on alone;
//   - a member m that has not *called* s will not, as long as the thread that makes its calls of g waits for a
//     collective (m, h, t).
//
// So (r, g, s) ends only after (m, h, t) does. A cycle of such edges never ends:
//
//     rank 0: A->all_reduce(t).host_wait(); B->barrier();
//     rank 1: B->barrier(); A->all_reduce(t).host_wait();
//
//     (0, A, 1) -> (1, B, 1), because rank 1 waits there and has not called A's;
//     (1, B, 1) -> (0, A, 1) likewise.
//
// The page is read while it changes, so the edges of one look may never have been there at the same time. But a
// collective that has ended does not come back: an edge that two looks saw was there all the time between them. So a
// cycle that two looks found, the same to the numbers of its calls, is a deadlock, and nothing else is taken for one:
// a thread that computes, or waits for something that is no collective, has no edge.
//
// A thread that queues a call on a stream of the device counts as waiting for it meanwhile, for NCCL may hold it there.
// When it is only slow at that, a cycle still shows ranks that have called their groups in different orders.

#include <vector>

#include <shardgrad/dist/watch/control_page.h>

namespace shardgrad::dist {

/// A rank in a collective that does not end.
struct Stuck {
  int rank, lane;
  Place place;
  bool operator==(const Stuck& other) const {
    return rank == other.rank && lane == other.lane && place.fingerprint() == other.place.fingerprint();
  }
};

/// A cycle that the collective in this rank's lane leads to, each waiting for the next and the last for the first;
/// empty when there is none. To be believed when a later call finds the same.
std::vector<Stuck> find_deadlock(const ControlPage& page, int rank, int lane);

}  // namespace shardgrad::dist
