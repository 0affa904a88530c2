#include <shardgrad/train/training_run.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/train/about.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/loss_scale.h>
#include <shardgrad/train/metrics_line.h>
#include <shardgrad/train/step.h>
#include <shardgrad/train/summary.h>
#include <shardgrad/train/text/utf8.h>

namespace shardgrad::train {

double TrainingRun::running_seconds() const { return seconds_since({}) - world_.control().suspended_seconds(); }

// What the ranks know after a step, where they talk; `now`: they do.
void TrainingRun::agree(bool now) {
  agreed_.reset();
  if (!now && !agreement_.is_time(meter_->step())) return;
  News mine = saver_->news();
  mine.trouble = watch_ && watch_->found();
  agreed_ = agreement_.agree(meter_->step(), meter_->seconds_per_step(), mine);
  log_steps();  // before a checkpoint, which a run goes on from with the lines until there
  if (std::string why = lost_scale(scaler_, *meter_); !why.empty()) saver_->end_badly(why);
  if (!agreed_->trouble) return;
  std::string what = watch_->explain();
  captured_.reset();  // which has it
  watch_.reset();
  if (config_.on_nan == "stop")
    saver_->end_badly(concat(what, ". Nothing is saved from there on; try a smaller optimizer.lr or clip_grad_norm, ",
                             "or go on with on_nan=continue"));
  say(what);
}

Training TrainingRun::training() {
  return {config_, *task_, *sharded_, optimizers_.all(), scaler_, watch_ ? &*watch_ : nullptr};
}

StepResult TrainingRun::make_step(const data::Batch& batch, bool norm_wanted) {
  if (!config_.graph) return train_step(training(), batch, norm_wanted);
  if (!captured_) captured_.emplace(training());
  StepResult done = (*captured_)(batch, norm_wanted);
  ever_captured_ |= captured_->is_captured();
  return done;
}

void TrainingRun::step() {
  double begin = running_seconds();
  int64_t next = meter_->step() + 1;
  trace_.begin(next);
  data::Batch batch = train_.get(course_.epoch_of(next), course_.batch_of(next));
  progress() = {uint64_t(meter_->step()), batch.first};
  std::vector<optim::Optimizer*> optimizers = optimizers_.all();
  for (optim::Optimizer* optimizer : optimizers) optimizer->set_lr(rate_->at(meter_->step(), best_));
  bool logs_norm = config_.log_steps && config_.clip_grad_norm > 0;
  StepResult done = make_step(batch, course_.reports_after(next) || logs_norm);
  trace_.end(next);
  meter_->add(done, batch.global_count, running_seconds() - begin);
  metrics_.epoch = course_.epoch_of(next) + 1;
  metrics_.lr = optimizers[0]->lr();
  metrics_.grad_norm = done.grad_norm;
  metrics_.eta_seconds = double(course_.steps() - next) * meter_->seconds_per_step();
  metrics_.epoch_done = course_.tests_after(next) || course_.ends_epoch(next);
  if (metrics_.test_count > 0) metrics_.scores = task_->scores({});
  metrics_.test_count = 0;
  is_best_ = false;
  if (config_.log_steps) step_log_.add(meter_->of_last_step(metrics_), done.losses);
  callbacks_->tell(&Callback::on_step, Stepped{next, course_.steps(), meter_->samples(), metrics_.lr, done.loss,
                                               done.grad_norm, task_->tokens_per_sample()});
}

// False where the ranks were asked to end before all was tested.
bool TrainingRun::evaluate_all() {
  int64_t sent_before = context().recorder().total_bytes_sent();
  Interruptible talks(world_, test_.batches(), [this] { return running_seconds(); });
  Evaluation evaluation;
  try {
    evaluation = evaluate(*task_, test_, world_, forward_dtype(config_), [&](int64_t done) {
      if (report_) report_->testing(done, test_.batches());
      talks.done(done);
    });
  } catch (const AskedToEnd&) {
    return false;
  }
  evaluation_bytes_ += context().recorder().total_bytes_sent() - sent_before - talks.bytes_sent();
  metrics_.scores = evaluation.scores;
  metrics_.test_count = evaluation.count;
  return true;
}

// Likewise. What it brings may end the run, lower the learning rate, and keep the weights.
bool TrainingRun::test() {
  if (!evaluate_all()) return false;
  const Score& score = metrics_.scores[0];
  step_log_.add_scores(metrics_.scores, metrics_.test_count);
  is_best_ = is_better(score, meter_->step(), config_.schedule.patience, best_);
  if (!std::isfinite(score.value) && !std::exchange(told_not_finite_, true))
    say(concat("test_", score.name, " is ", format_fixed(score.value, 4), " after step ", meter_->step(),
               ", which is never better: neither keep_best nor early_stop nor schedule plateau takes it for one"));
  callbacks_->tell(&Callback::on_eval, Evaluated{meter_->step(), metrics_.scores, is_best_, best_->worse});
  say(rate_->plateau_note(meter_->step(), score.name, *best_));
  return true;
}

// Where a run goes on that was asked to end while the last step's weights were tested: its line is whole but for that.
void TrainingRun::take_up_test() {
  say(concat("tests the weights of step ", meter_->step(), ", where it was asked to end"));
  took_up_ = true;
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

// The line that was pending, now with its scores: it is counted already.
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
  if (!reason) return false;
  std::string why = text::whole_characters(*reason);  // as checkpoints keep it
  say(concat("ends after step ", meter_->step(), ": ", why));
  if (!is_patience_over()) ended_ = why;
  return true;
}

// The trace there is tells more than what is left of the steps to trace would.
void TrainingRun::keep_trace() {
  if (!trace_.is_mostly_done(meter_->step())) return;
  bool is_there = report_ && std::filesystem::exists(folder_ + "/trace.json");
  if (!dist::same_text(world_, {"", "start"}, is_there ? "there" : "").empty()) trace_.leave_out();
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
  if (meter_->steps_done() > 0 || took_up_) write_about(&result);
  callbacks_->tell(&Callback::on_end, result);
  return result;
}

void TrainingRun::save_at_end(const char* how) {
  if (!saver_->save_at_end(reached()))
    fail_as(ErrorKind::rank_failed, how, " after step ", meter_->step(),
            ", and nothing is saved of it, for it is not finite");
}

Result TrainingRun::save_and_end() {
  write_records();
  save_at_end("stopped as asked");
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
  if (config_.graph && meter_->steps_done() > 0 && !ever_captured_)
    say("graph: no step was captured, for it takes three that are not traced, whose batches have the same counts of "
        "samples and labels");
  if (report_ && meter_->steps_done() > 0)
    report_->table(summary(config_, world_, predicted_, metrics_, *meter_, evaluation_bytes_));
  save_at_end("trained to its end");
  return end(false);
}

}  // namespace shardgrad::train
