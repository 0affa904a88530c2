// Kill and resume: ranks that are processes are killed in a step and inside a save, go on, also on other ranks, and
// meet over TCP as those of several hosts do.

#include <signal.h>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/tutorials/15_kill_and_resume/machines.h>
#include <shardgrad/tutorials/by_hand.h>

using sg::Tensor;
using sg::dist::ProcessGroup;

constexpr int64_t kWidth = 128, kSamples = 16, kSteps = 12, kEvery = 4, kKilled = 11;

// A rank's model under training.
struct Run {
  Run(ProcessGroup& ranks, std::string where, Told& to, Accident will_be = {})
      : world(ranks), folder(std::move(where)), told(to), accident(will_be) {}

  int64_t load(const std::string& checkpoint) {
    return sg::train::load_checkpoint(checkpoint, config, state).reached.step;
  }
  void step(int64_t number) {
    if (number == accident.in_step) world.barrier();
    if (number == accident.in_step && world.rank() == 1) raise(SIGKILL);
    Tensor all = sg::randn({kSamples, kWidth}, "samples of step " + std::to_string(number));
    int64_t mine = kSamples / world.size(), first = world.rank() * mine;
    Tensor x = sg::clone(all.rows(first, first + mine));
    sg::mse_loss(model(x), sg::abs(x), double(kSamples * kWidth)).backward();
    optimizer.step();
    optimizer.zero_grad();
    if (world.rank() == 0) ++told.steps;
  }
  void save(int64_t done) {
    sg::train::Reached reached{.step = done, .samples = done * kSamples};
    sg::train::CheckpointSave begun(folder, config, reached, state, sg::train::CheckpointSave::How::now);
    if (done == accident.in_save && world.rank() == 0) raise(SIGKILL);
    begun.finish({});
  }

  ProcessGroup& world;
  std::string folder;
  Told& told;
  Accident accident;
  sg::train::Config config;
  sg::nn::Child<sg::nn::Sequential> model = by_hand::make_model(kWidth);
  std::shared_ptr<sg::fsdp::Sharded> sharded = sg::fsdp::fully_shard(model.module(), world);
  sg::optim::AdamW optimizer{model->named_parameters(), {.lr = 0.01}};
  sg::train::TrainingState state{model.module(), *sharded, optimizer};
};

#include YOURS  // solution.cpp, or your copy of exercise.cpp

// Your save, with the power cut after none of its actions, after one, …
void cut_power(const learn::Rung& rung) {
  std::string old_state(64, 'a'), new_state(64, 'b');
  for (int actions = 0, done = false; !done; ++actions) {
    Disk disk;
    save(disk, 4, old_state);
    disk.cut_power_after(actions);
    try {
      save(disk, 8, new_state);
      done = true;
    } catch (const Disk::PowerGone&) {
    }
    disk.lose_power();
    std::string latest = disk.read("latest").value_or(""), state = disk.read(latest).value_or("");
    bool whole = (latest == "step-4" && state == old_state && !done) || (latest == "step-8" && state == new_state);
    rung.require(whole, sg::concat("the power goes after ", actions, " actions of the save of step 8: latest names '",
                                   latest, "', which holds '", state, "'"));
    if (done) std::cout << "power cut in " << actions << " places of your save: a whole checkpoint each time\n";
  }
}

// Runs, each in a folder of its own, and what they have learned.
struct Runs {
  std::function<void(ProcessGroup&)> training(const std::string& where, Accident accident = {}) {
    return [this, where, accident](ProcessGroup& world) {
      Run run(world, where, told, accident);
      train(run, kSteps, kEvery);
    };
  }
  // The run's last checkpoint, whose hash is added.
  std::string learned(const std::string& where) {
    std::optional<std::string> last = sg::train::latest_checkpoint(where);
    rung.require(last.has_value(), "nothing was saved in " + where);
    hashes.insert(sg::train::read_manifest(*last).hash());
    return *last;
  }
  Ends hosts(const char* what, const std::function<void(ProcessGroup&)>& body) {
    return on_hosts(what, 2, {0, 1}, root.path(what), body);
  }
  double resumed(const char* what, Accident accident, int64_t lost) {
    std::string where = root.folder(what);
    told.steps = 0;
    Ends killed = job(2, training(where, accident));
    std::cout << what << ": code " << killed.codes[0] << ", and there is " << names_in(where) << "\n";
    Ends whole = job(2, training(where));
    rung.require(whole.codes[0] == 0, whole.last_line);
    learned(where);
    rung.require(told.steps == kSteps + lost, sg::concat("steps in all: ", told.steps, ", and lost were ", lost));
    std::cout << what << ": steps done again: " << lost << "\n";
    return double(lost);
  }
  learn::Rung& rung;
  TemporaryFolder root{};
  Told& told = shared<Told>();
  std::set<std::string> hashes{};
};

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    cut_power(rung);
    Runs runs{rung};
    std::string whole_run = runs.root.folder("whole"), moved = runs.root.folder("moved");
    Ends whole = runs.hosts("two hosts", runs.training(whole_run));
    rung.require(whole.codes == std::vector{0, 0}, whole.last_line);
    Ends killed = runs.hosts("one is killed", runs.training(runs.root.folder("killed"), {.in_step = kKilled}));
    Ends refused = runs.hosts("one refuses", [](ProcessGroup& world) {
      if (world.rank() == 1) sg::fail("there is no data on this host");
      world.barrier();
    });
    rung.count("code_killed", killed.codes[0]), rung.count("code_refused", refused.codes[0]);
    rung.count("again_after_step", runs.resumed("killed in a step", {.in_step = kKilled}, kKilled % kEvery));
    rung.count("again_after_save", runs.resumed("killed in a save", {.in_save = kSteps}, kEvery));
    std::string last = runs.learned(whole_run);
    Ends four = job(4, [&](ProcessGroup& world) {
      Run run(world, moved, runs.told);
      run.save(run.load(last));
      if (world.rank() == 0) runs.told.shard_bytes = sg::context().ledger().current(sg::Category::parameter_shard);
    });
    rung.require(four.codes[0] == 0, four.last_line);
    runs.learned(moved);
    rung.require(runs.hashes.size() == 1, "a run that was killed has learned something else");
    rung.count("hashes", double(runs.hashes.size())), rung.count("slice_bytes", double(runs.told.shard_bytes));
    rung.count("checkpoint_bytes", double(tensor_bytes(last)));
    rung.term("L", by_hand::kLayers), rung.term("D", double(kWidth)), rung.term("F", sizeof(float)), rung.term("M", 2);
    rung.term("I", sizeof(int64_t)), rung.term("R", sizeof(double)), rung.term("V", 4), rung.term("E", kEvery),
        rung.term("A", kKilled), rung.term("B", kSteps);
  });
}
