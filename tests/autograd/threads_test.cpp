// Threads of one rank that share parameters: what they may do at once, and that the rest is refused by name.

#include <atomic>
#include <barrier>
#include <thread>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

/// body(number) in two threads of `context` at once, `rounds` times.
template <class Body> void at_once(Context& context, int rounds, const Body& body) {
  std::barrier<> start(2);
  auto run = [&](int number) {
    ContextScope scope(context);
    for (int round = 0; round < rounds; ++round) {
      start.arrive_and_wait();
      body(round, number);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST(Threads, MayUseAParameterForTheFirstTimeAtOnce) {
  Context context({.threads = 1});
  constexpr int kRounds = 2000;
  std::vector<Tensor> parameters;
  for (int i = 0; i < kRounds; ++i) parameters.push_back(leaf({1}, {1}));
  std::vector<Tensor> results[2]{std::vector<Tensor>(kRounds), std::vector<Tensor>(kRounds)};
  at_once(context, kRounds, [&](int round, int number) {
    results[number][size_t(round)] = affine(parameters[size_t(round)], number + 1, 0);
  });
  for (size_t i = 0; i < size_t(kRounds); ++i) {
    for (auto& each : results) each[i].backward();
    ASSERT_EQ(values(parameters[i].grad()), std::vector<double>{3}) << "a gradient was lost in round " << i;
  }
}

TEST(Threads, MayDrawRandomNumbersAtOnce) {
  Context context({.threads = 1});
  constexpr int kRounds = 5000;
  at_once(context, kRounds, [](int round, int number) {
    dropout(ones({1}), 0.5, concat("of thread ", number, " in round ", round));
    dropout(ones({1}), 0.5, "of both");
  });
  auto counts = progress().draws.counts();
  EXPECT_EQ(counts.size(), size_t(2 * kRounds + 1));
  EXPECT_EQ(progress().draws.next(stream_of("dropout", "of both")), uint64_t(2 * kRounds)) << "no draw was lost";
}

TEST(Threads, ThatRunBackwardThroughOneParameterAddUpOrAreRefused) {
  Context context({.threads = 1});
  Tensor shared = leaf({1}, {1});
  shared.set_grad(zeros({1}));
  std::atomic<int> passes{0};
  at_once(context, 500, [&](int, int) {
    Tensor loss = shared;
    for (int i = 0; i < 20; ++i) loss = affine(loss, 1, 0);
    try {
      loss.backward();
      ++passes;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("backward of another thread"), std::string::npos) << error.what();
    }
  });
  EXPECT_EQ(values(shared.grad()), std::vector<double>{double(passes)});
}

TEST(Threads, ThatComeToAParameterInTheMiddleOfAnothersBackwardAreRefused) {
  Context context({.threads = 1});
  Tensor shared = leaf({1}, {1});
  Tensor mine = affine(shared, 2, 0), theirs = affine(shared, 3, 0);
  std::string said;
  node_of(mine)->add_pre_hook([&] {
    std::thread([&] {
      ContextScope scope(context);
      try {
        theirs.backward();
      } catch (const Error& error) {
        said = error.what();
      }
    }).join();
  });
  mine.backward();
  EXPECT_NE(said.find("backward of another thread is at this tensor's gradient"), std::string::npos) << said;
  EXPECT_EQ(values(shared.grad()), std::vector<double>{2});
}

}  // namespace
}  // namespace shardgrad::test
