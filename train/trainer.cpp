#include <shardgrad/train/trainer.h>

#include <cmath>
#include <optional>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/chrome_trace.h>
#include <shardgrad/train/loaders.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/run_report.h>
#include <shardgrad/train/saver.h>
#include <shardgrad/train/seconds.h>
#include <shardgrad/train/step.h>
#include <shardgrad/train/summary.h>

namespace shardgrad::train {

namespace {

using data::FashionMnist;

class Trainer {
 public:
  Trainer(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal);
  Result run();

 private:
  void step(const data::Batch& batch, bool reported);
  void evaluate();
  void report(int64_t epoch, bool epoch_done);
  void start();
  bool resume();
  void agree(bool now);
  Reached reached() const;
  void write_records();
  Result stop(int64_t epoch, double seconds);
  Result finish(double seconds);
  Result result(double seconds, bool stopped) const;
  // On a clock that stands while this process does.
  double running_seconds() const { return seconds_since({}) - world_.control().suspended_seconds(); }
  double seconds_per_step() const { return training_seconds_ / double(step_ - first_step_); }

  const Config& config_;
  dist::ProcessGroup& world_;
  data::DataLoader train_, test_;
  uint64_t fingerprint_;             // of the training samples
  std::optional<RunReport> report_;  // rank 0's
  std::string folder_;               // of the run
  nn::Child<nn::Sequential> model_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  fsdp::Plan predicted_;  // rank 0's
  int64_t total_steps_;
  optim::Schedule schedule_;
  Agreement agreement_;
  std::optional<Saver> saver_;
  std::optional<FiniteWatch> watch_;
  std::optional<Agreed> agreed_;  // after the last step, where the ranks have talked
  std::optional<double> best_;    // test accuracy
  bool is_best_ = false;          // of the last step's weights

  int64_t step_ = 0, samples_ = 0, reported_step_ = 0, reported_samples_ = 0;
  int64_t first_step_ = 0, first_samples_ = 0;  // where this process began
  double training_seconds_ = 0, reported_seconds_ = 0;
  int64_t step_bytes_ = 0;  // most that a step sent: less where evaluation had gathered for it (zero1)
  int64_t evaluation_bytes_ = 0;
  Tensor loss_sum_;  // this rank's parts of the losses since the last report
  Metrics metrics_;
};

Trainer::Trainer(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal)
    : config_(config),
      world_(world),
      train_(make_loader(config, world, FashionMnist::Split::train)),
      test_(make_loader(config, world, FashionMnist::Split::test)),
      fingerprint_(train_.dataset().fingerprint()),
      scaler_(make_scaler(config, world)),
      total_steps_(train_.batches() * config.epochs),
      schedule_(make_schedule(config.schedule, total_steps_)),
      agreement_(world) {
  check_start(config, world, train_, test_);
  if (world.rank() == 0) {
    report_.emplace(config, out, terminal);
    bool one_node = world.kind() == "shared_memory" && context().default_device() == kCpu;
    predicted_ = plan(config, world.size(), kMeta, one_node ? world.kind() : "");
    report_->plan(predicted_);
  }
  context().recorder().set_tracing(config.trace);
  model_ = make_mlp(config.model);
  sharded_ = fsdp::fully_shard(model_.module(), world, make_sharding(config));
  optimizer_ = make_optimizer(config.optimizer, model_->named_parameters());
  loss_sum_ = zeros({});
  start();
}

// In the run's folder: anew, or where it was left.
void Trainer::start() {
  folder_ = dist::same_text(world_, {"", "start"}, report_ ? report_->folder() : "");
  check_folder_is_shared(world_, folder_);
  TrainingState state{model_.module(), *sharded_, *optimizer_};
  saver_.emplace(config_, folder_, state, [this](const std::string& line) {
    if (report_) report_->say(line);
  });
  bool resumed = config_.resume && resume();
  if (!resumed && !config_.init_from.empty()) load_model(config_.init_from, state);
  saver_->begin_at(reached(), resumed);
  // With loss scaling a gradient may be too large: the scaler skips the step.
  if (!scaler_.enabled()) watch_.emplace(*sharded_);
}

bool Trainer::resume() {
  Last last;
  dist::together(world_, {"", "start"}, [&] {
    if (report_) last = last_checkpoint(folder_);
  });
  std::string folder = dist::same_text(world_, {"", "start"}, last.folder.value_or(""));
  if (report_ && !last.note.empty()) report_->say(last.note);
  if (folder.empty()) {
    if (report_) report_->resume(config_, 0, total_steps_);
    return false;
  }
  Manifest manifest = load_checkpoint(folder, config_, {model_.module(), *sharded_, *optimizer_});
  const Reached& reached = manifest.reached;
  SG_CHECK(reached.data == fingerprint_, "'", folder, "' was saved by a run on other training data");
  SG_CHECK(reached.step > 0 && reached.step <= total_steps_, "'", folder, "' is of step ", reached.step,
           ", the run has ", total_steps_, "; set epochs to a larger number to train longer");
  first_step_ = step_ = reported_step_ = reached.step;
  first_samples_ = samples_ = reported_samples_ = reached.samples;
  best_ = reached.best;
  scaler_.load_state(reached.scaler);
  if (!report_) return true;
  report_->resume(config_, step_, total_steps_);
  report_->say(concat("loaded step ", step_, ", hash ", manifest.hash()));
  if (int64_t epochs = epochs_of(manifest); epochs != config_.epochs)
    report_->say(concat("epochs is ", config_.epochs, ", was ", epochs, ": the learning rate follows the schedule of ",
                        total_steps_, " steps from here on, ", config_.optimizer.lr * schedule_(step_), " at step ",
                        step_ + 1));
  return true;
}

Reached Trainer::reached() const { return {step_, samples_, fingerprint_, scaler_.state(), best_}; }

// What the ranks know after a step, where they talk; `now`: they do.
void Trainer::agree(bool now) {
  agreed_.reset();
  if (!now && !agreement_.is_time(step_)) return;
  News mine = saver_->news();
  mine.trouble = watch_ && watch_->found();
  agreed_ = agreement_.agree(step_, seconds_per_step(), mine);
  if (!agreed_->trouble) return;
  std::string what = watch_->explain();
  watch_.reset();
  if (config_.on_nan == "stop") {
    saver_->finish_if_good();
    fail_as(ErrorKind::rank_failed, what, ". Nothing is saved from there on; try a smaller optimizer.lr or ",
            "clip_grad_norm, or go on with on_nan=continue");
  }
  if (report_) report_->say(what);
}

void Trainer::step(const data::Batch& batch, bool reported) {
  progress() = {uint64_t(step_), batch.first};
  metrics_.grad_norm.reset();
  metrics_.test_accuracy.reset();
  metrics_.test_count = 0;
  optimizer_->set_lr(config_.optimizer.lr * schedule_(step_));
  FiniteWatch* watch = watch_ ? &*watch_ : nullptr;
  StepResult done = train_step({config_, model_, *sharded_, *optimizer_, scaler_, watch}, batch.fields[0],
                               batch.fields[1], batch.global_count, reported);
  metrics_.grad_norm = done.grad_norm;
  bool settled = step_ > first_step_ + 1;  // the first step does not know yet which unit is last
  step_bytes_ = settled ? std::max(step_bytes_, done.bytes_sent) : done.bytes_sent;
  NoGrad no_grad;
  loss_sum_ = loss_sum_ + reshape(done.loss, Shape());
  ++step_;
  samples_ += batch.global_count;
}

// Exact for any number of ranks: every test sample is counted once, and counts are added as integers.
void Trainer::evaluate() {
  NoGrad no_grad;
  int64_t sent_before = context().recorder().total_bytes_sent();
  model_->eval();
  int64_t correct = 0;
  for (const data::Batch& batch : test_.epoch(0)) {
    auto classes = argmax(model_(batch.fields[0]), 1).to_vector<int64_t>();
    auto labels = batch.fields[1].to_vector<int64_t>();
    for (size_t i = 0; i < labels.size(); ++i) correct += classes[i] == labels[i];
  }
  model_->train();
  metrics_.test_count = test_.dataset().size();
  metrics_.test_accuracy = double(sum_over_ranks(world_, correct, "evaluate")) / double(metrics_.test_count);
  evaluation_bytes_ += context().recorder().total_bytes_sent() - sent_before;
  is_best_ = !best_ || *metrics_.test_accuracy > *best_;
  if (is_best_) best_ = metrics_.test_accuracy;
}

void Trainer::report(int64_t epoch, bool epoch_done) {
  world_.all_reduce(loss_sum_, dist::Label{"", "report"}).host_wait();
  double seconds = training_seconds_ - reported_seconds_;
  metrics_.step = step_;
  metrics_.epoch = epoch;
  metrics_.samples = samples_;
  metrics_.loss = loss_sum_.item() / double(std::max<int64_t>(1, step_ - reported_step_));
  metrics_.lr = optimizer_->lr();
  metrics_.samples_per_s = double(samples_ - reported_samples_) / seconds;
  metrics_.peak_bytes = context().ledger().peak();
  if (report_) report_->progress_line(metrics_, total_steps_ - step_, seconds_per_step(), epoch_done);
  loss_sum_ = zeros({});
  reported_step_ = step_;
  reported_samples_ = samples_;
  reported_seconds_ = training_seconds_;
}

Result Trainer::result(double seconds, bool stopped) const {
  return {metrics_.test_accuracy.value_or(0),
          step_,
          seconds,
          stopped,
          report_ ? folder_ : "",
          step_bytes_,
          predicted_.bytes_sent};
}

Result Trainer::stop(int64_t epoch, double seconds) {
  if (step_ > reported_step_) report(epoch, true);
  write_records();
  if (!saver_->save_at_end(reached()))
    fail_as(ErrorKind::rank_failed, "stopped as asked after step ", step_,
            ", and nothing is saved of it, for it is not finite");
  if (report_) report_->stopped(step_, total_steps_);
  return result(seconds, true);
}

void Trainer::write_records() {
  if (!report_) return;
  report_->write_ledger(context().ledger());
  if (config_.trace) report_->write_trace(chrome_trace(context().recorder(), context().rank()));
}

Result Trainer::finish(double seconds) {
  write_records();
  if (report_)
    report_->table(summary(
        config_, world_, predicted_,
        {metrics_, step_ - first_step_, samples_ - first_samples_, training_seconds_, step_bytes_, evaluation_bytes_}));
  saver_->save_at_end(reached());
  if (report_) report_->done(*metrics_.test_accuracy, step_, seconds);
  return result(seconds, false);
}

Result Trainer::run() {
  auto begin = Clock::now();
  if (step_ == total_steps_) {
    evaluate();
    if (report_) report_->done(*metrics_.test_accuracy, step_, seconds_since(begin));
    return result(seconds_since(begin), false);
  }
  while (step_ < total_steps_) {
    int64_t epoch = step_ / train_.batches(), batch = step_ % train_.batches();
    bool last = batch + 1 == train_.batches(), to_report = last || (step_ + 1) % config_.log_interval == 0;
    double step_begin = running_seconds();
    step(train_.get(epoch, batch), to_report);
    training_seconds_ += running_seconds() - step_begin;
    is_best_ = false;
    if (last) evaluate();
    if (to_report) report(epoch + 1, last);
    agree(step_ == total_steps_ || saver_->is_due(step_, is_best_));
    saver_->after_step(reached(), agreed_, is_best_);
    if (step_ < total_steps_ && agreed_ && agreed_->stop) return stop(epoch + 1, seconds_since(begin));
  }
  return finish(seconds_since(begin));
}

}  // namespace

Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal) {
  return Trainer(config, world, out, terminal).run();
}

}  // namespace shardgrad::train
