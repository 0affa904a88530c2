#include <shardgrad/train/fit_module.h>

#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/context.h>

namespace shardgrad::train {

const Tensor& StepOutput::loss(const char* step) const {
  auto found = values.find("loss");
  std::string others;
  for (const auto& [name, value] : values)
    if (name != "loss") others += concat(others.empty() ? " but '" : ", '", name, "'");
  SG_CHECK(found != values.end() && found->second.defined(), step, " gives no 'loss'", others,
           "; return a tensor, or a map in which that to be minimised is named loss");
  return found->second;
}

int TrainerView::rank() const { return context().rank(); }

int TrainerView::world_size() const { return context().world_size(); }

int64_t TrainerView::global_step() const { return int64_t(progress().step); }

void FitModule::on_train_batch_end(const StepOutput&, const data::Batch&, int64_t) { saw_ours_ = true; }

StepOutput FitModule::validation_step(const data::Batch& batch, int64_t i) {
  return training_step(batch, i).loss("training_step");
}

StepOutput FitModule::test_step(const data::Batch& batch, int64_t i) { return validation_step(batch, i); }

Tensor FitModule::predict_step(const data::Batch&, int64_t) {
  fail("module ", type_name(), " has no predict_step(batch, i)");
}

void FitModule::log(const std::string& name, double part) {
  SG_CHECK(logs_, "log('", name,
           "') outside of validation_step and test_step; what training_step gives beside the loss ",
           "goes to on_train_batch_end");
  logged_[name] += part;
}

const TrainerView& FitModule::trainer() const {
  SG_CHECK(trainer_, "module ", type_name(), " has no trainer yet; it has one from configure_sharded_model on");
  return *trainer_;
}

StepOutput FitModule::forward(Stage stage, const data::Batch& batch, int64_t i) {
  if (stage == Stage::train) return training_step(batch, i);
  if (stage == Stage::predict) return std::map<std::string, Tensor>{{"prediction", predict_step(batch, i)}};
  logs_ = true;
  StepOutput output = stage == Stage::test ? test_step(batch, i) : validation_step(batch, i);
  logs_ = false;
  return output;
}

}  // namespace shardgrad::train
