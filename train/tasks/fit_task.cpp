#include <shardgrad/train/tasks/fit_task.h>

#include <algorithm>

#include <shardgrad/core/capture.h>
#include <shardgrad/fsdp/setup/wrap.h>
#include <shardgrad/nn/recompute.h>
#include <shardgrad/train/fit.h>

namespace shardgrad::train {

FitTask::FitTask(nn::Child<FitModule> module, const TrainerOptions& options, Stage stage)
    : module_(std::move(module)), stage_(stage) {
  module_->attach({options, *module_});
  {
    fsdp::EnableWrap scope;
    module_->configure_sharded_model();
  }
  if (!options.activation_checkpointing.empty()) nn::recompute_by_type(*module_, options.activation_checkpointing);
}

Tensor FitTask::loss(const data::Batch& batch) {
  StepOutput output = module_(Stage::train, batch, batch.step);
  Tensor loss = output.loss("training_step");
  for (auto& [name, value] : output.values)
    if (value.defined()) value = value.detach();
  if (Capture::current() && module_->ends_batches())
    refuse_in_capture(concat("on_train_batch_end of module ", module_->type_name()), "leave it out");
  if (has_values(loss.device())) module_->on_train_batch_end(output, batch, batch.step);
  return loss;
}

Optimizers FitTask::configure_optimizers(std::vector<NamedParameter> parameters) {
  Optimizers made = module_->configure_optimizers(std::move(parameters));
  SG_CHECK(made.optimizer, "configure_optimizers of module ", module_->type_name(), " gives no optimizer");
  return made;
}

void FitTask::evaluate(const data::Batch& batch, Sums& sums) {
  const char* step = stage_ == Stage::test ? "test_step" : "validation_step";
  StepOutput output = module_(stage_, batch, batch.step);
  std::map<std::string, double> given = module_->take_logged();
  for (const auto& [name, value] : output.values) {
    SG_CHECK(value.defined(), step, " gives '", name, "', which is no tensor");
    SG_CHECK(value.numel() == 1, step, " gives '", name, "' of shape ", value.shape(), "; it must be one number");
    given[name] += double(value.item());
  }
  std::vector<Monitor> monitors = module_->monitors();
  for (const Monitor& monitor : monitors)
    SG_CHECK(given.contains(monitor.name), step, " gives and logs no '", monitor.name, "', which monitors() names");
  for (const auto& [name, part] : given) {
    SG_CHECK(std::ranges::count(monitors, name, &Monitor::name), step, " gives '", name,
             "', which monitors() does not name");
    sums.add(name, part * double(batch.global_count));
  }
  sums.add("count", double(batch.count));
}

std::vector<Score> FitTask::scores(const Sums& sums) const {
  std::vector<Score> scores;
  for (const Monitor& monitor : module_->monitors())
    scores.push_back({monitor.name, sums[monitor.name] / sums["count"], monitor.higher_is_better});
  return scores;
}

Tensor FitTask::predict_rows(const data::Batch& batch) {
  Tensor rows = module_(Stage::predict, batch, batch.step).values.at("prediction");
  SG_CHECK(rows.defined(), "predict_step gives no tensor");
  SG_CHECK(rows.ndim() > 0 && rows.size(0) == batch.count, "predict_step gives ", rows.shape(), " for ", batch.count,
           " samples; it must be (rows, …) with a row for each");
  return rows;
}

}  // namespace shardgrad::train
