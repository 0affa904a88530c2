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
// What is known of the ranks may be of different times, of one on another machine seconds old. That does no harm where
// it is true of each rank at some time of its own. Let C(g) be when the last member calls the collective of g that is
// in the cycle. m above calls g's only after (h, t) has ended, whenever it was that m had not called it and waited: so
// C(g) > C(h) > … > C(g), and none of these times ever comes.
//
// What must be so at one time is a single rank's row: that it has not called g's and that it waits in (h, t). A row of
// another machine is used only where its image stood (Row::image): a rank whose image is older than its last lanes, or
// was taken in the middle of a change, has no edge. A row of this machine is read while it changes; but a collective
// that has ended does not come back, so an edge that two looks saw was there between them. A cycle that two looks
// found, the same to the numbers of its calls, is a deadlock, and nothing else is taken for one: a thread that
// computes, or waits for something that is no collective, has no edge.
//
// All members that wait in one collective wait for the same, so what is searched are collectives, and each member of
// each is looked at once: the work grows with the ranks and their groups, not with their pairs.
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
