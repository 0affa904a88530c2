// The sums of rows on the simulator: a block of threads for each, which share memory and wait for each other.

#include <cstdio>

#include <shardgrad/tutorials/k2_row_sum/kernels.h>
#include <shardgrad/tutorials/kernel_rung.h>

using sg::Tensor;

constinit learn::Kernel row_sum{"row_sum"};

constexpr int64_t kThreads = 64, kRounds = 6;  // 2 to the power of 6

learn::Counts sums(learn::Rung& rung, int64_t rows, int64_t columns) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) values.push_back(float(i * 7 % 11));
  Tensor x = sg::from_vector(values, {rows, columns}), y = sg::empty({rows});
  learn::Counts counts = learn::launch(row_sum, y, x);
  learn::require_elements(rung, y, [&](size_t row) {
    double sum = 0;
    for (size_t column = 0; column < size_t(columns); ++column) sum += values[row * size_t(columns) + column];
    return sum;
  });
  learn::require_at_most(rung, counts.most[learn::global_reads], columns / kThreads, "reads in global memory");
  learn::require_at_most(rung, counts.most[learn::shared_reads], 2 * kRounds + 1, "reads in shared memory");
  return counts;
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    sg::Context context({.device = sg::kSim});
    const int64_t rows = 8, columns = 1024;
    const auto [most, all] = sums(rung, rows, columns);
    auto print = [&, &most = most, &all = all](const char* what, learn::Kind kind) {
      std::printf("%-16s %9d %9d\n", what, int(most[kind]), int(all[kind]));
    };
    std::printf("8 rows of 1024 elements, a block of 64 threads for each\n");
    std::printf("%-16s %9s %9s\n", "", "a thread", "all");
    print("global reads", learn::global_reads);
    print("global writes", learn::global_writes);
    print("shared reads", learn::shared_reads);
    print("shared writes", learn::shared_writes);
    sums(rung, 3, 64), sums(rung, 1, 320);
    rung.term("C", double(columns)), rung.term("R", double(rows)), rung.term("T", double(kThreads));
    rung.term("K", double(kRounds));
    rung.count("global_reads_of_a_thread", double(most[learn::global_reads]));
    rung.count("global_reads_of_all", double(all[learn::global_reads]));
    rung.count("shared_reads_of_thread_0", double(most[learn::shared_reads]));
    rung.count("shared_writes_of_thread_0", double(most[learn::shared_writes]));
  });
}
