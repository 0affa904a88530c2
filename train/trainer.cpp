#include <shardgrad/train/trainer.h>

#include <optional>

#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/about.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/callbacks.h>
#include <shardgrad/train/course.h>
#include <shardgrad/train/evaluation.h>
#include <shardgrad/train/grains.h>
#include <shardgrad/train/learning_rate.h>
#include <shardgrad/train/loss_scale.h>
#include <shardgrad/train/meter.h>
#include <shardgrad/train/notes.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/run_report.h>
#include <shardgrad/train/saver.h>
#include <shardgrad/train/seconds.h>
#include <shardgrad/train/start.h>
#include <shardgrad/train/step.h>
#include <shardgrad/train/step_log.h>
#include <shardgrad/train/step_trace.h>
#include <shardgrad/train/summary.h>
#include <shardgrad/train/ticker.h>
#include <shardgrad/train/weights.h>

namespace shardgrad::train {
namespace {

class TrainingRun {
 public:
  TrainingRun(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal);
  Result run();

 private:
  void begin();
  void step();
  bool test();
  void take_up_test();
  void report();
  void tell_line();
  void log_steps();
  void agree(bool now);
  bool wants_to_end();
  Result stop();
  Result stop_in_test();
  Result save_and_end();
  Result finish();
  Result end(bool stopped);
  void write_trace();
  void write_records();
  Reached reached() const;
  void say(const std::string& line) {
    if (report_ && !line.empty()) report_->say(line);
  }
  void write_about(const Result* end);

  bool is_done() const { return meter_->step() == course_.steps(); }
  // On a clock that stands while this process does.
  double running_seconds() const { return seconds_since({}) - world_.control().suspended_seconds(); }

  const Config& config_;
  dist::ProcessGroup& world_;
  Clock::time_point begun_at_;
  data::Splits data_;
  data::DataLoader train_, test_;
  Course course_;
  uint64_t fingerprint_;  // of the training samples
  fsdp::Plan predicted_;  // rank 0's
  RunReport* report_ = nullptr;
  std::optional<Callbacks> callbacks_;
  std::optional<Ticker> ticker_;
  std::string folder_;  // of the run
  std::unique_ptr<Task> task_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  Optimizers optimizers_;
  std::optional<LearningRate> rate_;
  optim::GradScaler scaler_;
  Agreement agreement_;
  std::optional<Saver> saver_;
  std::optional<FiniteWatch> watch_;
  std::optional<Agreed> agreed_;  // after the last step, where the ranks have talked
  std::optional<Best> best_;
  bool is_best_ = false;  // of the last step's weights
  std::optional<Meter> meter_;
  StepTrace trace_;
  StepLog step_log_;
  int64_t evaluation_bytes_ = 0;
  Metrics metrics_;
  std::string pending_;  // the line of the last step, whose evaluation was left (Reached::pending)
};

TrainingRun::TrainingRun(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal)
    : config_(config),
      world_(world),
      data_(open_data(config)),
      train_(make_loader(config, world, data_.train, true)),
      test_(make_loader(config, world, data_.test, false)),
      course_(config, train_.batches()),
      fingerprint_(data_.train->fingerprint()),
      scaler_(make_scaler(config, world)),
      agreement_(world),
      trace_(config.trace_steps, world) {
  check_start(config, world, data_, fingerprint_, course_.steps());
  std::unique_ptr<RunReport> report;
  dist::together(world, {"", "start"}, [&] {
    if (world.rank() != 0) return;
    predicted_ = plan(config, data_.outline(), world.size(), kMeta, {context().default_device(), world.kind()});
    Terminal shown{terminal.columns, [this] { return running_seconds(); }};
    report = std::make_unique<RunReport>(config, out, terminal.columns ? shown : terminal);
    report_ = report.get();
    report_->say(about_batches(config, world.size(), data_.train->size()));
    report_->plan(predicted_);
  });
  callbacks_.emplace(config, world);
  if (report) callbacks_->add_first(std::move(report));
  if (report_ && terminal.columns) ticker_.emplace(std::chrono::milliseconds(300), [this] { report_->tick(); });
  task_ = make_task(config, data_.fields());
  sharded_ = fsdp::fully_shard(task_->module(), world, make_sharding(config));
  optimizers_ = make_optimizers(config, *task_);
  rate_.emplace(config, optimizers_, course_.steps());
  metrics_.scores = task_->scores({});
  begin();
}

// In the run's folder: anew, or where it was left.
void TrainingRun::begin() {
  folder_ = dist::same_text(world_, {"", "start"}, report_ ? report_->folder() : "");
  check_folder_is_shared(world_, folder_);
  TrainingState state{task_->module(), *sharded_, *optimizers_.optimizer, notes_of(data_)};
  auto say_it = [this](const std::string& line) { say(line); };
  saver_.emplace(config_, folder_, state, say_it,
                 [this](const Saved& saved) { callbacks_->tell(&Callback::on_save, saved); });
  keep_tokenizer(data_, world_, folder_);
  std::optional<Reached> from;
  if (config_.resume) from = resume(config_, folder_, state, fingerprint_, *rate_, say_it);
  if (!from && !config_.init_from.empty()) load_model(config_.init_from, state.model, state.sharded);
  try_evaluation(config_, *task_, *sharded_, data_);
  if (from) pending_ = from->pending;
  if (report_ && config_.resume) report_->resume(config_, from ? from->step : 0, course_.steps(), pending_.empty());
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
  return {meter_->step(), meter_->samples(), fingerprint_, scaler_.state(), best_, course_.steps(), pending_};
}

// What the ranks know after a step, where they talk; `now`: they do.
void TrainingRun::agree(bool now) {
  agreed_.reset();
  if (!now && !agreement_.is_time(meter_->step())) return;
  News mine = saver_->news();
  mine.trouble = watch_ && watch_->found();
  double pace = meter_->steps_done() > 0 ? meter_->seconds_per_step() : 1;
  agreed_ = agreement_.agree(meter_->step(), pace, mine);
  log_steps();  // before a checkpoint, which a run goes on from with the lines until there
  if (std::string why = lost_scale(scaler_, *meter_); !why.empty()) saver_->end_badly(why);
  if (!agreed_->trouble) return;
  std::string what = watch_->explain();
  watch_.reset();
  if (config_.on_nan == "stop")
    saver_->end_badly(concat(what, ". Nothing is saved from there on; try a smaller optimizer.lr or clip_grad_norm, ",
                             "or go on with on_nan=continue"));
  say(what);
}

void TrainingRun::step() {
  double begin = running_seconds();
  int64_t next = meter_->step() + 1;
  trace_.begin(next);
  data::Batch batch = train_.get(course_.epoch_of(next), course_.batch_of(next));
  progress() = {uint64_t(meter_->step()), batch.first};
  optim::Optimizer& optimizer = *optimizers_.optimizer;
  optimizer.set_lr(rate_->at(meter_->step(), best_));
  StepResult done = train_step({config_, *task_, *sharded_, optimizer, scaler_, watch_ ? &*watch_ : nullptr}, batch,
                               course_.reports_after(next));
  trace_.end(next);
  meter_->add(done, batch.global_count, running_seconds() - begin);
  metrics_.epoch = course_.epoch_of(next) + 1;
  metrics_.lr = optimizer.lr();
  metrics_.grad_norm = done.grad_norm;
  metrics_.eta_seconds = double(course_.steps() - next) * meter_->seconds_per_step();
  metrics_.epoch_done = course_.tests_after(next) || course_.ends_epoch(next);
  if (metrics_.test_count > 0) metrics_.scores = task_->scores({});
  metrics_.test_count = 0;
  is_best_ = false;
  if (config_.log_steps) step_log_.add(meter_->of_last_step(metrics_), done.losses);
  callbacks_->tell(&Callback::on_step, Stepped{next, course_.steps(), meter_->samples(), optimizer.lr(), done.loss,
                                               done.grad_norm, task_->tokens_per_sample()});
}

// What ends an evaluation before its time, on all ranks at once.
struct AskedToEnd {};

// False where the ranks were asked to end before all was tested.
bool TrainingRun::test() {
  int64_t sent_before = context().recorder().total_bytes_sent();
  Agreement talks(world_);
  double begin = running_seconds();
  Progress training = progress();
  Evaluation evaluation;
  try {
    evaluation = evaluate(*task_, test_, world_, forward_dtype(config_), [&](int64_t done) {
      if (report_) report_->testing(done, test_.batches());
      if (done == test_.batches() || !talks.is_time(done)) return;
      if (talks.agree(done, (running_seconds() - begin) / double(done), {}).stop) throw AskedToEnd();
    });
  } catch (const AskedToEnd&) {
    progress() = training;
    return false;
  }
  evaluation_bytes_ += context().recorder().total_bytes_sent() - sent_before;
  metrics_.scores = evaluation.scores;
  metrics_.test_count = evaluation.count;
  step_log_.add_scores(evaluation.scores, evaluation.count);
  is_best_ = is_better(evaluation.scores[0], meter_->step(), config_.schedule.patience, best_);
  callbacks_->tell(&Callback::on_eval, Evaluated{meter_->step(), evaluation.scores, is_best_, best_->worse});
  say(rate_->plateau_note(meter_->step(), evaluation.scores[0].name, *best_));
  return true;
}

// Where a run goes on that was asked to end while the last step's weights were tested: its line is whole but for that.
void TrainingRun::take_up_test() {
  say(concat("tests the weights of step ", meter_->step(), ", where it was asked to end"));
  Metrics line = parse_line(pending_);
  line.scores = task_->scores({});
  line.epoch_done = true;
  metrics_ = line;
}

void TrainingRun::report() {
  meter_->fill(metrics_, world_);
  if (!config_.log_steps) callbacks_->tell(&Callback::on_logged, metrics_);
  log_steps();
  callbacks_->tell(&Callback::on_metrics, metrics_);
}

// That which was pending.
void TrainingRun::tell_line() {
  pending_.clear();
  callbacks_->tell(&Callback::on_logged, metrics_);
  callbacks_->tell(&Callback::on_metrics, metrics_);
}

void TrainingRun::log_steps() {
  for (const Metrics& line : step_log_.take(world_)) callbacks_->tell(&Callback::on_logged, line);
}

// Whether a callback wants it, which is known where the weights were tested.
bool TrainingRun::wants_to_end() {
  std::optional<std::string> reason = callbacks_->reason_to_end();
  if (reason) say(concat("ends after step ", meter_->step(), ": ", *reason));
  return reason.has_value();
}

void TrainingRun::write_trace() {
  if (std::string text = trace_.gather(); report_) report_->try_write("trace.json", text);
}

void TrainingRun::write_about(const Result* end) {
  if (!report_) return;
  std::string text = about_run(
      {config_, world_, data_, predicted_, course_.steps(), end, meter_->samples_per_s(), meter_->tokens_per_s()});
  if (!end) forget_earlier(folder_, text);
  report_->try_write(kAboutFile, text);
}

void TrainingRun::write_records() {
  if (trace_.has_steps()) write_trace();
  if (report_) report_->write_ledger(context().ledger());
}

Result TrainingRun::end(bool stopped) {
  Result result{metrics_.scores, meter_->step(), course_.steps(),      seconds_since(begun_at_),
                stopped,         folder_,        meter_->step_bytes(), predicted_.bytes_sent};
  if (meter_->steps_done() > 0) write_about(&result);
  callbacks_->tell(&Callback::on_end, result);
  return result;
}

Result TrainingRun::save_and_end() {
  write_records();
  if (!saver_->save_at_end(reached()))
    fail_as(ErrorKind::rank_failed, "stopped as asked after step ", meter_->step(),
            ", and nothing is saved of it, for it is not finite");
  return end(true);
}

Result TrainingRun::stop() {
  metrics_.epoch_done = true;  // its line stays
  if (meter_->has_news()) report();
  return save_and_end();
}

// The line of the step waits in the checkpoint for its scores, and the evaluation is made where the run goes on.
Result TrainingRun::stop_in_test() {
  std::vector<Metrics> lines = step_log_.take(world_);
  if (pending_.empty()) {
    if (lines.empty()) meter_->fill(lines.emplace_back(metrics_), world_);
    pending_ = to_json_line(lines.back());
    lines.pop_back();
  }
  for (const Metrics& line : lines) callbacks_->tell(&Callback::on_logged, line);
  agree(true);
  return save_and_end();
}

Result TrainingRun::finish() {
  write_records();
  if (report_) report_->table(summary(config_, world_, predicted_, metrics_, *meter_, evaluation_bytes_));
  saver_->save_at_end(reached());
  return end(false);
}

Result TrainingRun::run() {
  begun_at_ = Clock::now();
  bool has_ended = config_.early_stop > 0 && best_ && best_->worse >= config_.early_stop;
  if (pending_.empty() && (is_done() || has_ended)) return end(!test());
  write_about(nullptr);
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

}  // namespace

Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, const Terminal& terminal) {
  return TrainingRun(config, world, out, terminal).run();
}

}  // namespace shardgrad::train
