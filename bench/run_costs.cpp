// `shardgrad` with a callback that writes when each step was over, for bench/run_costs.py: `steps.txt` in the run's
// folder has a line for each, in seconds since the one before. What lies between two steps counts, as a checkpoint
// does.

#include <chrono>
#include <filesystem>
#include <fstream>

#include <shardgrad/train/program.h>

namespace {

using namespace shardgrad;

class StepTimes : public train::Callback {
 public:
  void on_step(const train::Stepped&) override {
    auto now = std::chrono::steady_clock::now();
    if (before_ != Clock::time_point()) seconds_.push_back(std::chrono::duration<double>(now - before_).count());
    before_ = now;
  }
  void on_end(const train::Result& result) override {
    std::ofstream file(std::filesystem::path(result.folder) / "steps.txt");
    for (double seconds : seconds_) file << seconds << "\n";
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point before_;
  std::vector<double> seconds_;
};

}  // namespace

int main(int argc, char** argv) {
  train::Registry registry;
  registry.add_callback([](const train::Config&, dist::ProcessGroup& world) {
    return world.rank() == 0 ? std::unique_ptr<train::Callback>(std::make_unique<StepTimes>())
                             : std::make_unique<train::Callback>();
  });
  return train::program(argc, argv, registry);
}
