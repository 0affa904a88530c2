#include <shardgrad/train/trainer.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/train/agreement.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/checkpoint/checkpoint.h>
#include <shardgrad/train/chrome_trace.h>
#include <shardgrad/train/data/data_loader.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/run_report.h>
#include <shardgrad/train/step.h>

namespace shardgrad::train {

namespace {

using Clock = std::chrono::steady_clock;
using data::FashionMnist;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

data::DataLoader make_loader(const Config& config, dist::ProcessGroup& world, FashionMnist::Split split) {
  return {std::make_shared<FashionMnist>(config.data.dir, split),
          {.batch = config.batch,
           .shuffle = split == FashionMnist::Split::train,
           .seed = uint64_t(config.seed),
           .rank = world.rank(),
           .world_size = world.size(),
           .device = context().default_device()}};
}

/// Refuses, on every rank, what would only fail later.
void check_start(const Config& config, dist::ProcessGroup& world, const data::DataLoader& train,
                 const data::DataLoader& test) {
  const auto& layers = config.model.layers;
  SG_CHECK(layers.front() == FashionMnist::kPixels && layers.back() == FashionMnist::kClasses,
           "model.layers begins with ", layers.front(), " and ends with ", layers.back(),
           "; fashion_mnist has pictures of ", FashionMnist::kPixels, " pixels and ", FashionMnist::kClasses,
           " classes");
  check_same(world, "the configuration", stream_of(to_json(config)));
  check_same(world, "the training data", train.dataset().fingerprint());
  check_same(world, "the test data", test.dataset().fingerprint());
}

class Trainer {
 public:
  Trainer(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal);
  Result run();

 private:
  void step(const data::Batch& batch, bool reported);
  void evaluate();
  void report(int64_t epoch, bool epoch_done);
  void resume();
  void save();
  Result stop(int64_t epoch, double seconds);
  Result finish(double seconds);
  Result result(double seconds, bool stopped) const;
  RunReport::Rows summary() const;
  // On a clock that stands while this process does.
  double running_seconds() const { return seconds_since({}) - world_.control().suspended_seconds(); }
  double seconds_per_step() const { return training_seconds_ / double(step_ - first_step_); }

  const Config& config_;
  dist::ProcessGroup& world_;
  data::DataLoader train_, test_;
  std::optional<RunReport> report_;  // rank 0's
  std::string folder_;               // of the run
  nn::Child<nn::Sequential> model_;
  std::shared_ptr<fsdp::Sharded> sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::GradScaler scaler_;
  fsdp::Plan predicted_;  // rank 0's
  int64_t total_steps_;
  optim::Schedule schedule_;
  StopAgreement agreement_;

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
  folder_ = same_text(world, report_ ? report_->folder() : "");
  check_folder_is_shared(world, folder_);
  if (config.resume) resume();
}

void Trainer::resume() {
  std::string last = same_text(world_, report_ ? latest_checkpoint(folder_).value_or("") : "");
  if (!last.empty()) {
    Reached reached = load_checkpoint(last, config_, {model_.module(), *sharded_, *optimizer_});
    SG_CHECK(reached.data == train_.dataset().fingerprint(), "'", last, "' was saved by a run on other training data");
    SG_CHECK(reached.step > 0 && reached.step <= total_steps_, "'", last, "' is of step ", reached.step,
             ", the run has ", total_steps_);
    first_step_ = step_ = reported_step_ = reached.step;
    first_samples_ = samples_ = reported_samples_ = reached.samples;
    scaler_.load_state(reached.scaler);
  }
  if (report_) report_->resume(config_, step_, total_steps_);
}

void Trainer::save() {
  save_checkpoint(folder_, config_, {step_, samples_, train_.dataset().fingerprint(), scaler_.state()},
                  {model_.module(), *sharded_, *optimizer_});
}

void Trainer::step(const data::Batch& batch, bool reported) {
  progress() = {uint64_t(step_), batch.first};
  metrics_.grad_norm.reset();
  metrics_.test_accuracy.reset();
  metrics_.test_count = 0;
  optimizer_->set_lr(config_.optimizer.lr * schedule_(step_));
  StepResult done = train_step({config_, model_, *sharded_, *optimizer_, scaler_}, batch.fields[0], batch.fields[1],
                               batch.global_count, reported);
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
  save();
  if (report_) report_->stopped(step_, total_steps_);
  return result(seconds, true);
}

// What this process did.
RunReport::Rows Trainer::summary() const {
  Context& ctx = context();
  const Ledger& ledger = ctx.ledger();
  int64_t steps = step_ - first_step_;
  RunReport::Rows rows{
      {"ranks", concat(world_.size(), " (", world_.kind(), "), ", ctx.threads(), " threads each")},
      {"strategy", config_.strategy},
      {"steps", std::to_string(steps)},
      {"test accuracy", concat(format_fixed(*metrics_.test_accuracy, 4), " on ", metrics_.test_count, " samples")},
      {"training loss", format_fixed(metrics_.loss, 5)},
      {"samples/s", format_fixed(double(samples_ - first_samples_) / training_seconds_, 0)},
      {"sent by a step and rank",
       concat(format_bytes(step_bytes_), ", predicted ", format_bytes(predicted_.bytes_sent))},
      {"sent by evaluation", concat(format_bytes(evaluation_bytes_), " in all")}};
  std::set<Category::Kind> categories;
  for (const auto& [category, bytes] : predicted_.peaks) categories.insert(category);
  for (Category::Kind category : ledger.categories()) categories.insert(category);
  for (Category::Kind category : categories) {
    auto predicted = predicted_.peaks.find(category);
    int64_t peak = ledger.peak(category);
    bool known = predicted != predicted_.peaks.end() && category != Category::data;  // a step sees one batch of it
    if (peak == 0 && !known) continue;
    rows.push_back({concat("peak ", category.name()), format_bytes(peak)});
    if (known) rows.back().second += ", predicted " + format_bytes(predicted->second);
  }
  rows.push_back({"peak of everything", format_bytes(ledger.peak())});
  return rows;
}

Result Trainer::finish(double seconds) {
  if (report_) {
    report_->write_ledger(context().ledger());
    if (config_.trace) report_->write_trace(chrome_trace(context().recorder(), context().rank()));
    report_->table(summary());
  }
  save();
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
    bool last = batch + 1 == train_.batches(), reported = last || (step_ + 1) % config_.log_interval == 0;
    double step_begin = running_seconds();
    step(train_.get(epoch, batch), reported);
    training_seconds_ += running_seconds() - step_begin;
    if (last) evaluate();
    if (reported) report(epoch + 1, last);
    bool asked = step_ < total_steps_ && agreement_.asked_to_stop(step_, seconds_per_step());
    if (asked) return stop(epoch + 1, seconds_since(begin));
  }
  return finish(seconds_since(begin));
}

}  // namespace

Result train(const Config& config, dist::ProcessGroup& world, std::ostream& out, bool terminal) {
  return Trainer(config, world, out, terminal).run();
}

}  // namespace shardgrad::train
