#include <shardgrad/train/trainer.h>

#include <filesystem>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/notes.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/short_batches.h>
#include <shardgrad/train/start.h>
#include <shardgrad/train/training_run.h>
#include <shardgrad/train/weights.h>

namespace shardgrad::train {

TrainingRun::TrainingRun(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal)
    : config_(config),
      world_(world),
      waiting_(std::in_place, "reading the data", out, world.rank() == 0 ? terminal : Terminal{}),
      data_(open_data(config)),
      train_(make_loader(config, world, data_.train, true)),
      test_(make_loader(config, world, data_.test, false)),
      course_(config, train_.batches()),
      fingerprint_(data_.train->fingerprint()),
      test_fingerprint_(data_.test->fingerprint()),
      scaler_(make_scaler(config, world)),
      agreement_(world),
      trace_(config.trace_steps, world) {
  waiting_.emplace("checking how to begin", out, world.rank() == 0 ? terminal : Terminal{});
  init_from_ = check_start(config, world, data_, fingerprint_, course_.steps());
  std::unique_ptr<RunReport> report;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0) return;
    dist::PretendedRanks ranks{context().default_device(), world.kind()};
    for (int rank = 0; rank < world.size(); ++rank) ranks.machines.push_back(world.machine_of(rank));
    check_short_batches(config, data_.outline(), world.size(), ranks);
    predicted_ = plan(config, data_.outline(), world.size(), kMeta, ranks);
    Terminal shown{terminal.columns, [this] { return running_seconds(); }};
    waiting_.reset();
    report = std::make_unique<RunReport>(as_written(), out, terminal.columns ? shown : terminal);
    report_ = report.get();
  });
  callbacks_.emplace(config, world);
  if (report) callbacks_->add_first(std::move(report));
  if (report_ && terminal.columns) ticker_.emplace(kTick, [this] { report_->tick(); });
  task_ = make_task(config, data_.fields());
  sharded_ = make_sharded(config, *task_, world);
  optimizers_ = make_optimizers(config, *task_);
  rate_.emplace(config, optimizers_, course_.steps());
  metrics_.scores = task_->scores({});
  speak_once(world, task_->module(), *sharded_, optimizers_.all());
  begin();
}

// For who repeats the run: the checkpoint that it began with, and not whatever is that run's last one by then.
Config TrainingRun::as_written() const {
  Config config = config_;
  if (!init_from_.empty() && init_from_ != config.init_from)
    config.init_from = std::filesystem::path(init_from_).parent_path();
  return config;
}

// What a run that is refused does not show.
void TrainingRun::introduce() {
  if (!report_) return;
  report_->settings(as_written());
  report_->say(about_batches(config_, world_.size(), data_.train->size()));
  report_->plan(predicted_);
}

// In the run's folder: anew, or where it was left.
void TrainingRun::begin() {
  folder_ = dist::same_text(world_, {"", "start"}, report_ ? report_->folder() : "");
  TrainingState state{task_->module(), *sharded_, optimizers_.all(), notes_of(data_)};
  auto say_it = [this](const std::string& line) { say(line); };
  saver_.emplace(config_, folder_, state, say_it,
                 [this](const Saved& saved) { callbacks_->tell(&Callback::on_save, saved); });
  check_folder_is_shared(world_, folder_);  // by a file that a job which has the lock would remove
  keep_tokenizer(data_, world_, folder_);
  std::optional<Reached> from;
  std::vector<std::string> said;  // of what is loaded
  auto keep_it = [&said](const std::string& line) { said.push_back(line); };
  auto say_all = [&] {
    for (const std::string& line : said) say(line);
  };
  try {
    if (config_.resume) from = resume(config_, folder_, state, {fingerprint_, test_fingerprint_}, *rate_, keep_it);
    if (!from && !init_from_.empty()) load_model(init_from_, state.model, state.sharded);
  } catch (...) {
    say_all();  // as that it is not the checkpoint that `latest` names
    throw;
  }
  introduce();
  say_all();
  try_evaluation(config_, *task_, *sharded_, data_);
  if (from) pending_ = from->pending;
  if (from && course_.steps() <= from->total_steps) ended_ = from->ended;
  if (report_ && config_.resume)
    report_->resume(as_written(), from ? from->step : 0, course_.steps(), pending_.empty());
  meter_.emplace(from ? from->step : 0, from ? from->samples : 0, work_of(config_, data_, *task_, predicted_, world_));
  if (from) {
    best_ = from->best;
    scaler_.load_state(from->scaler);
  }
  saver_->begin_at(reached(), from.has_value());
  if (report_) report_->begun();
  // With loss scaling a gradient may be too large: the scaler skips the step.
  if (!scaler_.enabled()) watch_.emplace(*sharded_);
}

Reached TrainingRun::reached() const {
  return {meter_->step(),  meter_->samples(), fingerprint_, scaler_.state(),  best_,
          course_.steps(), pending_,          ended_,       test_fingerprint_};
}

Result TrainingRun::run() {
  begun_at_ = Clock::now();
  if (!ended_.empty()) say(concat("it has ended: ", ended_, "; a larger number of epochs (or steps) goes on"));
  if (is_patience_over() && pending_.empty() && !is_done())
    say(concat("it has ended: no better ", task_->scores({})[0].name, " in ", best_->worse,
               " evaluations (early_stop); a larger early_stop goes on"));
  if (pending_.empty() && (is_done() || is_patience_over() || !ended_.empty()))
    return end(!evaluate_all());  // its scores, once more, which are no news to anybody
  write_about(nullptr);
  keep_trace();
  while (true) {
    bool goes_on_in_test = !pending_.empty();
    goes_on_in_test ? take_up_test() : step();
    if (trace_.is_complete()) write_trace();
    int64_t step = meter_->step();
    bool tests = goes_on_in_test || course_.tests_after(step);
    if (tests && !test()) return stop_in_test();
    if (goes_on_in_test)
      tell_line();
    else if (course_.reports_after(step))
      report();
    bool ends = is_done() || (tests && wants_to_end());
    agree(ends || saver_->is_due(step, is_best_));
    saver_->after_step(reached(), agreed_, is_best_);
    if (ends) return finish();
    if (agreed_ && agreed_->stop) return stop();
  }
}

Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal) {
  return TrainingRun(config, world, out, terminal).run();
}

}  // namespace shardgrad::train
