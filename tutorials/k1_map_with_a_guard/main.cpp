// A map on the simulator: a thread for each element. What do threads do that have none?

#include <cstdio>

#include <shardgrad/tutorials/k1_map_with_a_guard/kernels.h>
#include <shardgrad/tutorials/kernel_rung.h>

using sg::Tensor;

constinit learn::Kernel polynomial{"polynomial"};

constexpr int64_t kThreads = 256, kDegree = 3;

// Of n elements 0, 1/n, 2/n, …
learn::Counts map(learn::Rung& rung, int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(float(i) / float(n));
  Tensor x = sg::from_vector(values, {n}), y = sg::empty({n});
  learn::Counts counts = learn::launch(polynomial, y, x);
  learn::require_elements(rung, y, [&](size_t i) {
    double at = values[i];
    return 2 * at * at * at + 3 * at * at + 5 * at + 7;
  });
  learn::require_at_most(rung, counts.most[learn::global_reads], 1, "reads");
  learn::require_at_most(rung, counts.most[learn::multiplications], kDegree, "multiplications");
  return counts;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    sg::Context context({.device = sg::kSim});
    const int64_t n = 1000, blocks = (n + kThreads - 1) / kThreads;
    learn::Counts counts = map(rung, n);
    const auto& [most, all] = counts;
    std::printf("1000 elements, %d blocks of 256 threads\n", int(blocks));
    std::printf("%-16s %9s %9s\n", "", "a thread", "all");
    std::printf("%-16s %9d %9d\n", "reads", int(most[learn::global_reads]), int(all[learn::global_reads]));
    std::printf("%-16s %9d %9d\n", "writes", int(most[learn::global_writes]), int(all[learn::global_writes]));
    std::printf("%-16s %9d %9d\n", "multiplications", int(most[learn::multiplications]),
                int(all[learn::multiplications]));
    for (int64_t other : {1, 256, 257}) map(rung, other);
    rung.term("N", double(n)), rung.term("T", double(kThreads)), rung.term("B", double(blocks));
    rung.term("D", double(kDegree));
    rung.count("threads_without_an_element", double(blocks * kThreads - all[learn::global_writes]));
    rung.count("reads_of_a_thread", double(most[learn::global_reads]));
    rung.count("reads_of_all", double(all[learn::global_reads]));
    rung.count("multiplications_of_a_thread", double(most[learn::multiplications]));
  });
}
