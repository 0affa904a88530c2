// A matrix product on the simulator in which each thread has many elements: how often is shared memory read for a
// multiplication?

#include <shardgrad/tutorials/k4_many_each/kernels.h>
#include <shardgrad/tutorials/kernel_rung.h>

using sg::Tensor;

constinit learn::Kernel many_each{"many_each"};

constexpr int64_t kDepth = 16, kEach = 4;

learn::Counts product(learn::Rung& rung, int64_t n) {
  Tensor a = learn::whole_numbers(n, n, 5), b = learn::whole_numbers(n, n, 7), c = sg::empty({n, n});
  learn::Counts counts = learn::launch(many_each, c, a, b);
  learn::require_product(rung, c, a, b);
  learn::require_at_most(rung, counts.most[learn::global_reads], 2 * kEach * n / kDepth, "reads in global memory");
  learn::require_at_most(rung, counts.most[learn::shared_reads], 2 * kEach * n, "reads in shared memory");
  return counts;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    sg::Context context({.device = sg::kSim});
    const int64_t n = 64;
    learn::Counts counts = product(rung, n);
    learn::print_head("a product of 64 x 64 matrices, 4 x 4 elements for each thread");
    learn::print("many each", counts);
    std::printf("all threads together read %d elements, and multiply %d times\n", int(counts.all[learn::global_reads]),
                int(counts.all[learn::multiplications]));
    product(rung, 128);
    rung.term("n", double(n)), rung.term("t", double(kDepth)), rung.term("E", double(kEach));
    rung.count("global_reads", double(counts.most[learn::global_reads]));
    rung.count("shared_reads", double(counts.most[learn::shared_reads]));
    rung.count("multiplications", double(counts.most[learn::multiplications]));
    rung.count("shared_reads_of_a_multiplication",
               double(counts.most[learn::shared_reads]) / double(counts.most[learn::multiplications]));
    rung.count("global_reads_of_all", double(counts.all[learn::global_reads]));
  });
}
