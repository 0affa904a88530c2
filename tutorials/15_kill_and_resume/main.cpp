// Kill and resume: ranks that are processes are killed in a step and inside a save, go on, also on other ranks, and
// meet over TCP as those of several hosts do.

#include <signal.h>

#include <set>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/tutorials/15_kill_and_resume/machines.h>
#include <shardgrad/tutorials/by_hand.h>

using sg::Tensor;
using sg::dist::ProcessGroup;
namespace fs = std::filesystem;

constexpr int64_t kWidth = 128, kSamples = 16, kSteps = 12, kEvery = 4;

// What ranks tell, in memory that their processes share.
struct Told {
  int64_t steps, shard_bytes;
};
// When the run is killed.
struct Accident {
  int64_t in_step = -1, in_save = -1;
};

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

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    cut_power(rung);
    TemporaryFolder root;
    Told& told = shared<Told>();
    std::set<std::string> hashes;
    auto training = [&](const std::string& where, Accident accident = {}) {
      return [&, where, accident](ProcessGroup& world) {
        Run run(world, where, told, accident);
        train(run, kSteps, kEvery);
      };
    };
    auto add_hash = [&](const std::string& where) {
      hashes.insert(sg::train::read_manifest(*sg::train::latest_checkpoint(where)).hash());
    };
    auto hosts = [&](const char* what, const std::function<void(ProcessGroup&)>& body) {
      Ends ends = on_hosts(2, {0, 1}, root.path(std::string(what) + ".txt"), body);
      for (int code : ends.codes) std::cout << what << ": code " << code << "\n";
      if (!ends.last_line.empty()) std::cout << "  " << ends.last_line << "\n";
      return ends;
    };
    auto resumed = [&](const char* what, Accident accident) {
      std::string where = root.folder(what);
      told.steps = 0;
      Ends killed = job(2, training(where, accident));
      std::cout << what << ": code " << killed.codes[0] << ", and there is " << names_in(where) << "\n";
      Ends whole = job(2, training(where));
      rung.require(whole.codes[0] == 0, whole.last_line);
      std::cout << what << ": steps done again: " << told.steps - kSteps << "\n";
      add_hash(where);
      return double(told.steps - kSteps);
    };
    Ends whole = hosts("two hosts", training(root.folder("hosts")));
    rung.require(whole.codes == std::vector{0, 0}, whole.last_line);
    add_hash(root.folder("hosts"));
    Ends killed = hosts("one is killed", training(root.folder("killed"), {.in_step = 6}));
    Ends refused = hosts("one refuses", [](ProcessGroup& world) {
      if (world.rank() == 1) sg::fail("there is no data on this host");
      world.barrier();
    });
    rung.count("code_killed", killed.codes[0]), rung.count("code_refused", refused.codes[0]);
    rung.count("again_after_step", resumed("killed in a step", {.in_step = 6}));
    rung.count("again_after_save", resumed("killed in a save", {.in_save = 8}));
    std::string last = *sg::train::latest_checkpoint(root.folder("hosts")), moved = root.folder("moved");
    Ends four = job(4, [&](ProcessGroup& world) {
      Run run(world, moved, told);
      run.save(run.load(last));
      if (world.rank() == 0) told.shard_bytes = sg::context().ledger().current(sg::Category::parameter_shard);
    });
    rung.require(four.codes[0] == 0, four.last_line);
    add_hash(moved);
    std::cout << "hashes that were found: " << hashes.size() << "\n";
    int64_t bytes = tensor_bytes(last + "/model.safetensors") + tensor_bytes(last + "/optimizer.safetensors");
    rung.count("hashes", double(hashes.size())), rung.count("slice_bytes", double(told.shard_bytes));
    rung.count("checkpoint_bytes", double(bytes));
    rung.term("L", by_hand::kLayers), rung.term("D", double(kWidth)), rung.term("F", sizeof(float)), rung.term("M", 2);
    rung.term("I", sizeof(int64_t)), rung.term("V", 4), rung.term("E", kEvery), rung.term("A", 6), rung.term("B", 8);
  });
}
