#include <shardgrad/train/start.h>

#include <algorithm>

#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/captured_step.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/kept_tokenizer.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/seconds.h>
#include <shardgrad/train/weights.h>

namespace shardgrad::train {

// Weights to begin with, which a run that goes on needs no more. Whether it does is rank 0's to see, until it is known
// that all see the run's folder, and which they are, too.
static std::string check_init_from(const Config& config, dist::ProcessGroup& world) {
  std::string from;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0 || config.init_from.empty()) return;
    bool begins = !config.resume || !last_checkpoint(config.runs + "/" + config.name).folder;
    if (begins) from = weights_of(config.init_from);
  });
  from = dist::same_text(world, {"", "start"}, from);
  if (from.empty()) return from;
  std::unique_ptr<Task> task;
  dist::together(world, {"", "start"}, [&] {
    task = make_task(config);
    check_model(from, task->module());
  });
  check_same_weights(from, task->module(), world);
  return from;
}

void check_ranks(const Config& config, const dist::ProcessGroup& world, const char* command) {
  SG_CHECK(config.ranks.count == 0 || config.ranks.count == world.size(), config.ranks.said, ", and this job has ",
           world.size(), world.size() == 1 ? " rank" : " ranks", "; the number is said when they are started, with ",
           "`shardgrad launch -n ", config.ranks.count, " ", command, " …`");
}

// Of a checkpoint that this run goes on with.
static void check_reached(const std::string& folder, const Reached& reached, uint64_t data, int64_t total_steps) {
  SG_CHECK(reached.data == data, "'", folder, "' was saved by a run on other training data: what data.path ",
           "(or data.inputs and data.targets) names has changed, or is another file; give it that run's again, or set ",
           "another name");
  SG_CHECK(reached.step > 0 && reached.step <= total_steps, "'", folder, "' is of step ", reached.step,
           ", the run has ", total_steps, "; set epochs (or steps) to a larger number to train longer");
}

// What its manifest refuses is said before the settings and the plan are shown.
static void check_resume(const Config& config, dist::ProcessGroup& world, uint64_t data, int64_t total_steps) {
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0 || !config.resume) return;
    std::optional<std::string> folder = last_checkpoint(config.runs + "/" + config.name).folder;
    if (!folder) return;
    Manifest manifest = read_manifest(*folder);
    check_same_run(*folder, manifest, config);
    check_reached(*folder, manifest.reached, data, total_steps);
  });
}

std::string check_start(const Config& config, dist::ProcessGroup& world, const data::Splits& data, uint64_t fingerprint,
                        int64_t total_steps) {
  SG_CHECK(config.schedule.warmup_steps <= total_steps, "schedule.warmup_steps is ", config.schedule.warmup_steps,
           ", but the run has only ", total_steps,
           " steps and would end before the warm-up; set fewer, or more epochs");
  check_same_program(world);
  check_ranks(config, world, "train");
  check_grains(config, world);
  check_graph(config, world);
  check_same(world, "the configuration", stream_of(to_json(config)));
  check_same(world, "the training data", fingerprint);
  check_same(world, "the test data", data.test->fingerprint());
  check_resume(config, world, fingerprint, total_steps);
  return check_init_from(config, world);
}

void keep_tokenizer(const data::Splits& data, dist::ProcessGroup& world, const std::string& run) {
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() == 0 && data.tokenizer) keep_tokenizer(run, *data.tokenizer);
  });
}

void try_evaluation(const Config& config, Task& task, fsdp::Sharded& sharded, const data::Splits& data) {
  if (config.sanity_steps == 0) return;
  dist::ProcessGroup& world = sharded.group();
  data::DataLoader samples = make_loader(config, world, data.test, false);  // takes along what it has read ahead
  Interruptible talks(world, config.sanity_steps, [] { return seconds_since({}); });
  try {
    evaluate(
        task, samples, world, forward_dtype(config), [&](int64_t done) { talks.done(done); }, config.sanity_steps);
  } catch (const AskedToEnd&) {  // as the first step will hear
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    fail(error.what(),
         " (found before training begins, when an evaluation of the first batches is tried; "
         "sanity_steps=0 leaves that out)");
  }
  sharded.settle("an evaluation");
  for (fsdp::FlatParam* flat : sharded.flats()) flat->shard_written();  // the first step gathers all that it needs
}

Work work_of(const Config& config, const data::Splits& data, Task& task, const fsdp::Plan& predicted,
             dist::ProcessGroup& world) {
  double flops = predicted.flops / double(most_samples(config, data.train->size(), world.size()));
  return {task.tokens_per_sample(), world.share<double>({flops}, {"", "start"})[0]};
}

std::optional<Reached> resume(const Config& config, const std::string& run, TrainingState state, Fingerprints data,
                              const LearningRate& rate, const std::function<void(const std::string& line)>& say) {
  dist::ProcessGroup& world = state.sharded.group();
  Last last;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0) return;
    last = last_checkpoint(run);
    if (last.folder) link_model(run, last.folder->substr(last.folder->rfind('/') + 1));
  });
  std::string folder = dist::same_text(world, {"", "start"}, last.folder.value_or(""));
  if (!last.note.empty()) say(last.note);
  if (folder.empty()) {
    say(concat("nothing is saved in '", run, "': begins with step 1"));
    return {};
  }
  Manifest manifest = load_checkpoint(folder, config, state);
  Reached reached = manifest.reached;
  int64_t total_steps = rate.total_steps();
  check_reached(folder, reached, data.training, total_steps);
  say(concat("loaded step ", reached.step, ", hash ", manifest.hash()));
  if (reached.test_data != 0 && reached.test_data != data.test) {
    say(concat("it is tested on other samples than before: which scores were best is forgotten",
               config.keep_best ? ", and the next better ones, which any are, take the place of `best`" : ""));
    if (reached.best) reached.best = Best{.plateaus = reached.best->plateaus};
  }
  if (config.keep_best && reached.best && reached.best->step > 0)
    dist::together(world, {"", "start"}, [&] {
      if (world.rank() == 0) say(find_best(run, reached.best->step, reached.best->value));
    });
  if (reached.total_steps != total_steps) {
    std::string what = concat("the run has ", total_steps, " steps, had ", reached.total_steps);
    if (config.schedule.name != "constant" && config.schedule.name != "plateau")
      what += concat(": the learning rate follows the schedule of ", total_steps, " steps from here on, ",
                     rate.at(reached.step, reached.best), " at step ", reached.step + 1);
    say(what);
  }
  return reached;
}

}  // namespace shardgrad::train
