// What the simulator reports, with thread and line, and what it leaves alone. The kernels are in planted.cu.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include <shardgrad/core/backend.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/sim/launch.h>

#include "tests/sim/planted.h"
#include "tests/sim/simulated.h"

namespace shardgrad::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string fault_line(const std::string& kernel) { return test::fault_line("planted.cu", kernel); }

// The report names the kernel, this thread, and the line where the fault is.
auto names(const std::string& kernel, const std::string& thread) {
  return AllOf(HasSubstr("simulator: " + kernel), HasSubstr("thread (" + thread + ", 0, 0): "),
               HasSubstr("at " + fault_line(kernel)));
}

class Detection : public ::testing::Test {
 protected:
  Context context;
  sim::Operands operands;
  Operand<float> y{4096}, x{4096, 1.0f};
};

TEST_F(Detection, AMissingBarrierIsARace) {
  std::string fault = fault_of([&] { run_reverse(y.out(operands), x.in(operands), false); });
  EXPECT_THAT(fault, names("reverse_kernel", "127"));  // those before it have read what nobody ever writes
  EXPECT_THAT(fault, HasSubstr("reads the shared variable 'tile' that thread (128, 0, 0) wrote"));
  run_reverse(y.values.data(), x.values.data(), true);
  EXPECT_EQ(y.values[0], x.values[255]);
}

TEST_F(Detection, AnOverrunIsReportedWhereNIsNotAMultipleOfTheBlock) {
  Operand<float> a(1025), b(1025);
  std::string fault = fault_of([&] { run_scale(a.out(operands), b.in(operands), 1025, false); });
  EXPECT_THAT(fault, names("scale_kernel", "1"));
  EXPECT_THAT(fault, HasSubstr("block (4, 0, 0)"));
  EXPECT_THAT(fault, HasSubstr("writes 4 bytes at byte 4100 of output, which has 4100"));
  run_scale(a.values.data(), b.values.data(), 1025, true);
  EXPECT_EQ(a.values[1024], 2 * b.values[1024]);
}

// Large blocks of other devices lie end to end.
TEST_F(Detection, AnOverrunMeetsNoNeighbourInTheDevicesMemory) {
  Stream& compute = context.backend(kSim).compute();
  const Ref<Allocator>& memory = context.backend(kSim).memory();
  constexpr int kCount = 1 << 18;
  memory->free(memory->allocate(4 * kCount * sizeof(float), compute), compute);
  MemoryBlock a = memory->allocate(kCount * sizeof(float), compute),
              b = memory->allocate(2 * kCount * sizeof(float), compute);
  compute.synchronize();
  std::fill_n(static_cast<float*>(b.data), 2 * kCount, 1.0f);
  for (MemoryBlock block : {a, b}) operands.add(block.data, block.bytes, true, "output");
  auto scale = [&](int count) {
    return fault_of([&] { run_scale(static_cast<float*>(a.data), static_cast<float*>(b.data), count, false); });
  };
  EXPECT_THAT(scale(kCount + 1), HasSubstr("writes 4 bytes at byte 1048576 of output, which has 1048576"));
  EXPECT_EQ(scale(kCount), "no fault");
  for (MemoryBlock block : {a, b}) memory->free(block, compute);
}

TEST_F(Detection, AHistogramWithoutAtomicsIsARace) {
  Operand<int> bins(1000);
  for (int& bin : bins.values) bin %= 8;
  Operand<unsigned> counts(8);
  std::string fault = fault_of([&] { run_histogram(counts.out(operands), bins.in(operands), 1000, false); });
  EXPECT_THAT(fault, names("histogram_kernel", "8"));
  EXPECT_THAT(fault, HasSubstr("that thread (0, 0, 0) wrote at " + fault_line("histogram_kernel")));
  run_histogram(counts.values.data(), bins.values.data(), 1000, true);
  EXPECT_EQ(counts.values, std::vector<unsigned>(8, 125));
}

TEST_F(Detection, ABarrierInABranchIsReported) {
  std::string fault = fault_of([&] { run_barrier_in_branch(y.out(operands), 64); });
  EXPECT_THAT(fault, names("barrier_in_branch_kernel", "0"));
  EXPECT_THAT(fault, HasSubstr("thread (32, 0, 0) waits at the barrier at sim/planted.cu:"));
}

TEST_F(Detection, AThreadThatReturnedBeforeABarrierIsReported) {
  std::string fault = fault_of([&] { run_return_before_barrier(y.out(operands), 50); });
  EXPECT_THAT(fault, names("return_before_barrier_kernel", "0"));
  EXPECT_THAT(fault, HasSubstr("thread (50, 0, 0) has returned"));
  run_return_before_barrier(y.values.data(), 64);
}

TEST_F(Detection, AReadOfUnwrittenSharedMemoryIsReported) {
  std::string fault = fault_of([&] { run_unwritten_shared(y.out(operands)); });
  EXPECT_THAT(fault, names("unwritten_shared_kernel", "50"));
  EXPECT_THAT(fault, HasSubstr("the shared variable 'tile' where nobody in this block has written"));
}

TEST_F(Detection, AWrongShuffleMaskIsReported) {
  y.out(operands);
  EXPECT_THAT(fault_of([&] { run_shuffle(y.values.data(), 0xffff, false); }), names("shuffle_kernel", "16"));
  std::string fault = fault_of([&] { run_shuffle(y.values.data(), 0xffffffff, true); });
  EXPECT_THAT(fault, names("shuffle_kernel", "0"));
  EXPECT_THAT(fault, HasSubstr("waits at the barrier"));
  EXPECT_THAT(fault_of([&] { run_shuffle(y.values.data(), 0x7fff, true); }), names("shuffle_kernel", "14"));
  run_shuffle(y.values.data(), 0xffff, true);
  EXPECT_EQ(y.values[4], 4 + 5);
}

TEST_F(Detection, AShuffleFromALaneThatDoesNotExistIsReported) {
  y.out(operands);
  EXPECT_THAT(fault_of([&] { run_shuffle_down(y.values.data(), 24); }), names("shuffle_down_kernel", "8"));
  run_shuffle_down(y.values.data(), 32);
  EXPECT_EQ(y.values[0], 32);
}

TEST_F(Detection, TooLittleDynamicSharedMemoryIsReported) {
  y.out(operands);
  std::string fault = fault_of([&] { run_dynamic_shared(y.values.data(), 64, 63 * 4); });
  EXPECT_THAT(fault, names("dynamic_shared_kernel", "63"));
  EXPECT_THAT(fault, HasSubstr("at byte 252 of the dynamic shared memory, which has 252"));
  run_dynamic_shared(y.values.data(), 64, 64 * 4);
  EXPECT_EQ(y.values[0], 63);
}

TEST_F(Detection, AVectorWritePastTheEndIsReported) {
  Operand<float> a(1025), b(1025), c(1024);
  std::string fault = fault_of([&] { run_vector_copy(a.out(operands), b.in(operands), 1025); });
  EXPECT_THAT(fault, names("vector_copy_kernel", "0"));
  EXPECT_THAT(fault, HasSubstr("at byte 4096 of output, which has 4100"));
  run_vector_copy(c.out(operands), b.values.data(), 1024);
  EXPECT_EQ(c.values[1023], b.values[1023]);
}

TEST_F(Detection, AVectorWriteToAnUnalignedAddressIsReported) {
  EXPECT_THAT(fault_of([&] { run_vector_copy(y.out(operands) + 1, x.in(operands), 64); }),
              AllOf(names("vector_copy_kernel", "0"), HasSubstr("not a multiple of 16")));
}

TEST_F(Detection, AnOverrunOfASharedArrayIsReported) {
  y.out(operands);
  std::string fault = fault_of([&] { run_overrun_of_static_shared(y.values.data(), 65); });
  EXPECT_THAT(fault, names("overrun_of_static_shared_kernel", "64"));
  EXPECT_THAT(fault, HasSubstr("outside the kernel's own shared memory"));
  run_overrun_of_static_shared(y.values.data(), 64);
}

// A copy is there for its thread after a wait for its group, and for the others behind a barrier after that.
TEST_F(Detection, AnAsynchronousCopyThatIsReadTooEarlyIsReported) {
  x.in(operands), y.out(operands);
  auto run = [&](CopyFault fault) {
    return fault_of([&] { run_async_copy(y.values.data(), x.values.data(), fault); });
  };
  EXPECT_EQ(run(CopyFault::none), "no fault");
  for (int t = 0; t < 64; ++t) ASSERT_EQ(y.values[size_t(t)], x.values[size_t(255 - t)]);
  auto on_its_way = AllOf(names("async_copy_kernel", "0"), HasSubstr("'tile' that a copy begun at sim/planted.cu:"));
  EXPECT_THAT(run(CopyFault::no_wait), on_its_way);
  EXPECT_THAT(run(CopyFault::no_group), on_its_way);
  EXPECT_THAT(run(CopyFault::too_early), on_its_way);
  EXPECT_THAT(run(CopyFault::no_barrier),
              AllOf(names("async_copy_kernel", "50"), HasSubstr("'tile' that thread (51, 0, 0) wrote")));
  EXPECT_THAT(run(CopyFault::not_waited_for), HasSubstr("ends before it has waited for a copy that it began"));
  EXPECT_EQ(run(CopyFault::none), "no fault");  // nothing stays behind
}

TEST_F(Detection, LoadMatricesGivesEachLaneItsElements) {
  y.out(operands);
  for (bool transposed : {false, true}) {
    run_load_matrices(y.values.data(), transposed);
    for (int lane = 0; lane < 32; ++lane)
      for (int m = 0; m < 4; ++m)
        for (int e = 0; e < 2; ++e) {
          int row = transposed ? lane % 4 * 2 + e : lane / 4, column = transposed ? lane / 4 : lane % 4 * 2 + e;
          ASSERT_EQ(y.values[size_t((lane * 4 + m) * 2 + e)], float(100 * (8 * m + row) + column))
              << transposed << ", lane " << lane << ", matrix " << m << ", element " << e;
        }
  }
}

TEST_F(Detection, AWarpNeedsSynchronisationToo) {
  std::string fault = fault_of([&] { run_warp_tree(y.out(operands), x.in(operands), false); });
  EXPECT_THAT(fault, HasSubstr(fault_line("warp_tree_kernel")));
  run_warp_tree(y.values.data(), x.values.data(), true);
  EXPECT_EQ(y.values[0], 32 * 33 / 2);
}

// Thread 1 has read the word itself before it writes, after thread 0.
TEST_F(Detection, ARaceNamesAnotherThread) {
  std::string fault = fault_of([&] { run_warp_rounds(y.out(operands), x.in(operands)); });
  EXPECT_THAT(fault, names("warp_rounds_kernel", "1"));
  EXPECT_THAT(fault, HasSubstr("writes the shared variable 'tile' that thread (0, 0, 0) read"));
}

TEST_F(Detection, BlocksThatWriteOnePlaceAreARace) {
  std::string fault = fault_of([&] { run_global_race(y.out(operands), 2); });
  EXPECT_THAT(fault, HasSubstr("thread (0, 0, 0) of an earlier block wrote at " + fault_line("global_race_kernel")));
}

TEST_F(Detection, AWriteToAnInputIsReported) {
  EXPECT_THAT(fault_of([&] { run_write_to_input(x.in(operands)); }),
              AllOf(names("write_to_input_kernel", "0"), HasSubstr("may only read")));
}

TEST_F(Detection, MemoryOfNoOperandIsOutOfBounds) {
  x.in(operands);
  EXPECT_THAT(fault_of([&] { run_scale(y.values.data(), x.values.data(), 10, true); }),
              HasSubstr("which belongs to no operand"));
}

TEST_F(Detection, AReadOfUnwrittenGlobalMemoryIsReported) {
  sim::Scratch scratch(Launch{}, 256 * sizeof(float));
  y.out(operands);
  std::string fault = fault_of([&] { run_reverse(y.values.data(), scratch.as<float>(), true); });
  EXPECT_THAT(fault, HasSubstr("reads 4 bytes of scratch memory at byte 0 that nobody has written"));
}

TEST_F(Detection, ThreadsMayAllWriteTheSameValue) {
  Operand<int> found(1);
  run_same_flag(found.out(operands), x.in(operands));
  EXPECT_EQ(found.values[0], 1);
  EXPECT_THAT(fault_of([&] { run_different_flag(found.values.data()); }),
              HasSubstr(fault_line("different_flag_kernel")));
}

TEST_F(Detection, TheLastBlockMayReadWhatOthersPublished) {
  Operand<float> partial(20);
  Operand<unsigned> count(1);
  float* p = partial.out(operands);
  unsigned* c = count.out(operands);
  run_last_block_sum(y.out(operands), p, c, x.in(operands), 20, true);
  EXPECT_EQ(y.values[0], 20 * 21 / 2);
  EXPECT_THAT(fault_of([&] { run_last_block_sum(y.values.data(), p, c, x.values.data(), 20, false); }),
              names("last_block_sum_kernel", "1"));
}

TEST_F(Detection, SharedMemoryMayBeUsedAgainAfterABarrier) {
  run_many_barriers(y.out(operands));
  EXPECT_EQ(y.values[5], 63 * 64 / 2);
}

TEST_F(Detection, VotesAndShufflesGiveWhatCudaGives) {
  Operand<unsigned> results(32 * 6);
  run_votes(results.out(operands));
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* mine = &results.values[lane * 6];
    EXPECT_EQ(mine[0], 0x55555555u);
    EXPECT_EQ(mine[1], 1u);
    EXPECT_EQ(mine[2], 1u);
    EXPECT_EQ(mine[3], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(mine[4], lane / 8 * 8 + 1);
    EXPECT_EQ(mine[5], 5u);
  }
}

TEST_F(Detection, TensorCoresMultiplyWhateverTheShapeOfTheBlock) {
  for (int across : {32, 16, 4}) {
    run_mma(y.out(operands), across, 32 / across);
    for (int row = 0; row < 16; ++row)
      for (int col = 0; col < 8; ++col) {
        int expected = 0;
        for (int k = 0; k < 16; ++k) expected += (row + k) * (k - col);
        EXPECT_EQ(y.values[size_t(row * 8 + col)], float(expected)) << across << " across: " << row << ", " << col;
      }
  }
}

TEST_F(Detection, AfterAFaultTheNextLaunchRuns) {
  y.out(operands);
  for (int i = 0; i < 50; ++i) fault_of([&] { run_dynamic_shared(y.values.data(), 1024, 4); });
  run_dynamic_shared(y.values.data(), 1024, 4096);
  EXPECT_EQ(y.values[0], 1023);
}

TEST_F(Detection, AKernelThatNeverRanIsKnown) {
  run_votes(Operand<unsigned>(32 * 6).out(operands));
  uint64_t votes = 0, never = 1;
  for (const sim::KernelRecord* kernel = sim::KernelRecord::first(); kernel; kernel = kernel->next()) {
    if (kernel->name() == "votes_kernel") votes = kernel->launches();
    if (kernel->name() == "never_kernel") never = kernel->launches();
  }
  EXPECT_GE(votes, 1u);
  EXPECT_EQ(never, 0u);
}

}  // namespace
}  // namespace shardgrad::test
