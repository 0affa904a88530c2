#pragma once
// The test's side of the pretended NCCL.

#include <nccl.h>

#include <string>

namespace fake_nccl {

/// Forgets injected errors and counts.
void reset();
/// What ncclGetVersion says from now on; reset() makes it 22809.
void set_version(int version);
/// Communicators that have been neither destroyed nor aborted, and those that were aborted.
int alive();
int aborted();
/// The `nth` call of `function` from now (1: the next), on any rank, ends with `error`.
void fail_call(const std::string& function, int nth, ncclResult_t error);
/// From now on the communicators of `rank` report `error`, as after a broken connection.
void break_connections_of(int rank, ncclResult_t error);

}  // namespace fake_nccl
