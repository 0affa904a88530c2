// The fibres of processors other than x86-64, compiled here with the switch of ucontext: a thousand of them take turns.

#include <shardgrad/kernels/sim/fibre.h>

#include <cstdio>
#include <vector>

namespace {

using namespace shardgrad::sim;

constexpr int kFibres = 1000, kRounds = 5;
Point main_point;
std::vector<Point> points(kFibres);
std::vector<int> counts(kFibres);
int current = 0;

void count() {
  for (int mine = current;;) {
    ++counts[size_t(mine)];
    switch_to(points[size_t(mine)], main_point);
  }
}

}  // namespace

int main() {
  Stacks stacks(kFibres);
  for (int i = 0; i < kFibres; ++i) prepare(points[size_t(i)], stacks.begin(i), Stacks::kBytes, count);
  for (int round = 0; round < kRounds; ++round)
    for (current = 0; current < kFibres; ++current) switch_to(main_point, points[size_t(current)]);
  for (int turns : counts)
    if (turns != kRounds) return 1;
  std::puts("every fibre had its turns");
}
