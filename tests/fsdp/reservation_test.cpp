// The shared heap gets its memory when a model is sharded, not in the middle of a step.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>

#include <tests/fsdp/training.h>

namespace shardgrad::fsdp::testing {
namespace {

struct Wide : nn::Module {
  nn::Child<nn::Linear> in = child<nn::Linear>("in", 7, 1024), a = child<nn::Linear>("a", 1024, 1024),
                        b = child<nn::Linear>("b", 1024, 1024), c = child<nn::Linear>("c", 1024, 1024),
                        out = child<nn::Linear>("out", 1024, 5);
  Tensor forward(const Tensor& x) { return out(relu(c(relu(b(relu(a(relu(in(x))))))))); }
};

// Bytes of memory that this process's shared heap has.
int64_t heap_bytes() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    std::string target = std::filesystem::read_symlink(entry.path(), gone);
    struct stat status {};
    if (target.find("shardgrad-heap") != std::string::npos && stat(entry.path().c_str(), &status) == 0)
      return status.st_blocks * 512;
  }
  return 0;
}

TEST(Reservation, NoStepGrowsTheSharedHeap) {
  dist::VirtualOptions options{.threads = 1};
  options.group.kind = "shared_memory";
  for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
    for (int prefetch : {0, 2})
      dist::run_ranks(
          2,
          [&](dist::ProcessGroup& group) {
            auto model = nn::make<Wide>();
            group.barrier();
            int64_t before = heap_bytes();
            group.barrier();
            fully_shard(*model, group, {.strategy = strategy, .prefetch = prefetch});
            group.barrier();
            int64_t reserved = heap_bytes();
            EXPECT_GT(reserved, before);
            optim::SGD optimizer(model->named_parameters(), {.lr = 0.01});
            for (int step = 0; step < 3; ++step) {
              Tensor x = rows_of_batch("x", step, 0, 4, 7, DType::f32),
                     t = rows_of_batch("t", step, 0, 4, 5, DType::f32);
              mse_loss(model(x), t, 20).backward();
              optimizer.step();
              optimizer.zero_grad();
            }
            group.barrier();
            EXPECT_EQ(heap_bytes(), reserved) << name_of(strategy) << " prefetch " << prefetch;
          },
          options);
}

TEST(Reservation, AModelThatDoesNotFitIsRefusedWhenItIsSharded) {
  dist::VirtualOptions options{.threads = 1};
  options.group.kind = "shared_memory";
  options.group.heap_limit = size_t(24) << 20;  // the shards fit, a step does not
  dist::run_ranks(
      2,
      [&](dist::ProcessGroup& group) {
        auto model = nn::make<Wide>();
        try {
          fully_shard(*model, group);
          FAIL();
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("in the shared heap"), std::string::npos) << error.what();
        }
      },
      options);
}

}  // namespace
}  // namespace shardgrad::fsdp::testing
