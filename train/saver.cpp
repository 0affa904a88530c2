#include <shardgrad/train/saver.h>

#include <filesystem>

#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/launch/launch.h>
#include <shardgrad/train/run_report.h>

namespace shardgrad::train {

Saver::Saver(const Config& config, const std::string& run, TrainingState state, Say say, Tell tell)
    : config_(config),
      run_(run),
      state_(state),
      say_(std::move(say)),
      tell_(std::move(tell)),
      world_(state.sharded.group()),
      begun_at_(Clock::now()) {
  check_keep({config_.keep});
  int64_t bytes = checkpoint_bytes(state);
  dist::together(world_, {"", "start"}, [&] {
    if (world_.rank() != 0) return;
    lock_.emplace(run);
    remove_unfinished(run);
    check_room(run, bytes, config_.keep + 1 + config_.keep_best);
  });
}

void Saver::begin_at(const Reached& reached, bool saved) {
  saved_step_ = saved ? reached.step : -1;
  state_.finite_buffers = finite_buffers(state_.sharded);
  dist::together(world_, {"", "start"}, [&] {
    if (lock_) check_free_after(run_, reached.step);
  });
}

bool Saver::is_due(int64_t step, bool best) const {
  return (config_.save_every > 0 && step % config_.save_every == 0) || (best && config_.keep_best);
}

News Saver::news() const {
  bool late = config_.save_minutes > 0 && seconds_since(begun_at_) > 60 * config_.save_minutes;
  return {.save = world_.rank() == 0 && late && !under_way_, .writing = under_way_ && !under_way_->written()};
}

void Saver::after_step(const Reached& reached, const std::optional<Agreed>& agreed, bool best) {
  if (under_way_ && agreed && !agreed->writing) finish();
  if (is_due(reached.step, best) || (agreed && agreed->save)) begin(reached, best);
}

bool Saver::save_at_end(const Reached& reached) {
  begin(reached, false);
  finish();
  return saved_step_ == reached.step;
}

void Saver::end_badly(const std::string& why) {
  if (under_way_ && under_way_->not_finite().empty()) finish();
  fail_as(ErrorKind::rank_failed, why);
}

// What a save that fails leaves, and how to go on.
template <class Call> void Saver::or_say_what_is_left(const Call& call) const {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input || saved_step_ < 0) throw;
    std::string last = concat(run_, "/", step_folder(saved_step_)), name = run_.substr(run_.rfind('/') + 1);
    std::error_code unknown;
    if (!std::filesystem::is_directory(last, unknown)) throw;
    fail(error.what(), ". The last checkpoint, '", last,
         "', is whole: the same command goes on from it with name set to ", dist::shell_line({name}),
         " and resume to true");
  }
}

// Where the run was asked to end in its evaluation, what that has brought is not in the checkpoint yet.
void Saver::complete(const Reached& reached, bool best) {
  dist::together(world_, {"", "checkpoint"}, [&] {
    if (world_.rank() != 0) return;
    if (lock_) lock_->check();
    tell_reached(concat(run_, "/", step_folder(reached.step)), reached);
    if (best && config_.keep_best) say_(find_best(run_, reached.step, reached.best->value));
  });
}

// Another job may have the folder by now, and an unfinished checkpoint in it.
void Saver::check_lock() {
  dist::together(world_, {"", "checkpoint"}, [&] {
    if (lock_) lock_->check();
  });
}

void Saver::begin(const Reached& reached, bool best) {
  finish();
  if (saved_step_ == reached.step) return complete(reached, best);
  check_lock();
  begun_at_ = Clock::now();
  under_way_is_best_ = best;
  auto how = config_.save_beside ? CheckpointSave::How::beside : CheckpointSave::How::now;
  or_say_what_is_left([&] { under_way_ = std::make_unique<CheckpointSave>(run_, config_, reached, state_, how); });
  if (!config_.save_beside) finish();
}

void Saver::finish() {
  if (!under_way_) return;
  std::unique_ptr<CheckpointSave> save = std::move(under_way_);
  if (config_.on_nan == "continue") {
    if (std::string what = save->not_finite(); !what.empty())
      return say_(concat("step ", save->step(), " is not saved: ", what, " is not finite"));
  }
  check_lock();
  std::string hash;
  or_say_what_is_left([&] { hash = save->finish({config_.keep, config_.keep_best && under_way_is_best_}); });
  saved_step_ = save->step();
  if (!save->note().empty()) say_(save->note());
  say_(concat("saved step ", saved_step_, " in ", format_fixed(seconds_since(begun_at_), 1), " s, hash ", hash));
  tell_({saved_step_, concat(run_, "/step-", saved_step_), hash});
}

}  // namespace shardgrad::train
