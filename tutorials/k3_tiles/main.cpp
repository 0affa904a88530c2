// A matrix product on the simulator: how often is an element read, where each thread reads for itself, and where the
// threads of a block bring tiles for each other?

#include <shardgrad/picture/bars.h>
#include <shardgrad/tutorials/k3_tiles/kernels.h>
#include <shardgrad/tutorials/kernel_rung.h>

using sg::Tensor;

constinit learn::Kernel naive{"naive"}, tiled{"tiled"};

constexpr int64_t kTile = 16;

learn::Counts product(learn::Rung& rung, const learn::Kernel& kernel, int64_t n) {
  Tensor a = learn::whole_numbers(n, n, 5), b = learn::whole_numbers(n, n, 7), c = sg::empty({n, n});
  learn::Counts counts = learn::launch(kernel, c, a, b);
  learn::require_product(rung, c, a, b);
  return counts;
}

learn::Counts in_tiles(learn::Rung& rung, int64_t n) {
  learn::Counts counts = product(rung, tiled, n);
  learn::require_at_most(rung, counts.most[learn::global_reads], 2 * n / kTile, "reads in global memory");
  learn::require_at_most(rung, counts.most[learn::shared_reads], 2 * n, "reads in shared memory");
  return counts;
}

std::string drawn(const learn::Counts& alone, const learn::Counts& shared) {
  sg::picture::Bars bars{{"tiles", "A product of 64 x 64 matrices", "What a thread reads and multiplies."}};
  bars.measured = "alone", bars.formula = "in tiles";
  auto add = [&](const char* what, learn::Kind kind) {
    bars.pairs.push_back({what, double(alone.most[kind]), double(shared.most[kind])});
  };
  add("global reads", learn::global_reads), add("shared reads", learn::shared_reads);
  add("multiplications", learn::multiplications);
  return draw(bars);
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    sg::Context context({.device = sg::kSim});
    const int64_t n = 64;
    learn::Counts alone = product(rung, naive, n), shared = in_tiles(rung, n);
    learn::print_head("a product of 64 x 64 matrices, a thread for each element");
    learn::print("naive", alone), learn::print("tiled", shared);
    std::printf("all threads together read %d elements, and %d\n", int(alone.all[learn::global_reads]),
                int(shared.all[learn::global_reads]));
    for (int64_t other : {16, 48}) in_tiles(rung, other);
    rung.picture(drawn(alone, shared));
    rung.term("n", double(n)), rung.term("t", double(kTile));
    rung.count("naive_global_reads", double(alone.most[learn::global_reads]));
    rung.count("tiled_global_reads", double(shared.most[learn::global_reads]));
    rung.count("tiled_shared_reads", double(shared.most[learn::shared_reads]));
    rung.count("multiplications", double(shared.most[learn::multiplications]));
    rung.count("tiled_global_reads_of_all", double(shared.all[learn::global_reads]));
  });
}
