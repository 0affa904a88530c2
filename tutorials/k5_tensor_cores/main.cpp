// Products on tensor cores, on the simulator: one instruction, whose operands lie spread over a warp's registers, and a
// whole product of them.

#include <shardgrad/tutorials/k5_tensor_cores/kernels.h>
#include <shardgrad/tutorials/kernel_rung.h>

using sg::DType, sg::Tensor;

constinit learn::Kernel one_mma{"one_mma"}, tensor_cores{"tensor_cores"};

constexpr int64_t kDepth = 16, kEach = 4;

learn::Counts product(learn::Rung& rung, const learn::Kernel& kernel, int64_t rows, int64_t depth, int64_t columns) {
  Tensor a = learn::whole_numbers(rows, depth, 5).to(DType::bf16), b = learn::whole_numbers(depth, columns, 7);
  Tensor c = sg::empty({rows, columns});
  learn::Counts counts = learn::launch(kernel, c, a, b.to(DType::bf16));
  learn::require_product(rung, c, a, b);
  return counts;
}

learn::Counts of_tiles(learn::Rung& rung, int64_t n) {
  learn::Counts counts = product(rung, tensor_cores, n, n, n);
  learn::require_at_most(rung, counts.most[learn::shared_reads], 12 * n / kDepth, "reads in shared memory");
  return counts;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    sg::Context context({.device = sg::kSim});
    const int64_t n = 64;
    learn::Counts one = product(rung, one_mma, 16, 16, 8), many = of_tiles(rung, n);
    learn::print_head("one mma of 16 x 16 by 16 x 8, and a product of 64 x 64 matrices");
    learn::print("one mma", one), learn::print("64 x 64", many);
    of_tiles(rung, 128);
    rung.term("n", double(n)), rung.term("t", double(kDepth)), rung.term("E", double(kEach));
    rung.term("S", 64), rung.term("T", 256), rung.term("L", 32);
    rung.count("global_reads_of_one", double(one.most[learn::global_reads]));
    rung.count("global_reads", double(many.most[learn::global_reads]));
    rung.count("shared_reads", double(many.most[learn::shared_reads]));
    rung.count("products_of_a_lane_in_an_mma", double(n * n * n) / double(many.all[learn::multiplications]));
    rung.count("mma_instructions", double(many.most[learn::multiplications]));
  });
}
