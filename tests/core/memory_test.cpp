#include <gtest/gtest.h>

#include <shardgrad/core/context.h>
#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

TEST(Storage, KeepsItsIdentityWhileMemoryComesAndGoes) {
  Context context;
  Tensor a = empty({4, 8});
  Tensor row = a.rows(1, 2);
  a.storage()->release(current_stream(kCpu));
  EXPECT_EQ(context.ledger().current(), 0);
  EXPECT_THROW(row.data<float>(), Error);
  a.storage()->materialize(current_stream(kCpu));
  row.data<float>()[0] = 3;
  EXPECT_EQ(a.data<float>()[8], 3);
  EXPECT_EQ(context.ledger().current(), 4 * 8 * 4);
}

TEST(Storage, UseWhileReleasedNamesTheTensorAndTheRemedy) {
  Context context;
  Tensor a = empty({4});
  a.set_name("layers.0.weight");
  a.storage()->set_note("it is sharded; use summon_full_params");
  a.storage()->release(current_stream(kCpu));
  try {
    a.in();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "'layers.0.weight' is not in memory: it is sharded; use summon_full_params");
  }
}

}  // namespace
}  // namespace shardgrad
