// The real NCCL of this build: with a GPU one rank can use it, without one its failure says why.

#include <gtest/gtest.h>

#include <shardgrad/core/backend.h>
#include <shardgrad/core/error.h>
#include <shardgrad/dist/transports/nccl/nccl.h>

namespace shardgrad::dist {
namespace {

TEST(Nccl, OneRankConnectsOrIsToldWhyNot) {
  if (nccl_library().empty()) GTEST_SKIP() << "this build has no NCCL";
  EXPECT_TRUE(nccl_library().starts_with("NCCL 2.")) << nccl_library();
  if (cuda_device_count() > 0) return try_nccl(0);
  try {
    try_nccl(0);
    FAIL() << "NCCL connects without a GPU";
  } catch (const Error& error) {  // after it has made the id of the job, which needs none
    std::string text = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::missing);
    EXPECT_NE(text.find(nccl_library() + " cannot connect rank 0 of 1 on GPU 0: "), text.npos) << text;
    EXPECT_NE(text.find("; CUDA says: "), text.npos) << text;
  }
}

}  // namespace
}  // namespace shardgrad::dist
