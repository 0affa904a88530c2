#include <shardgrad/train/captured_step.h>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/registry.h>

namespace shardgrad::train {

void check_graph(const Config& config, const dist::ProcessGroup& world) {
  if (!config.graph) return;
  Device device = context().default_device();
  SG_CHECK(world.size() == 1, "graph: a captured step has no collectives, and this job has ", world.size(),
           " ranks; start one, or leave graph out");
  SG_CHECK(computes_by_itself(device), "graph: device ", device,
           " computes in the thread that launches, which a graph ",
           "makes no faster; set device to cuda, or leave graph out");
  try {
    context().backend(device).make_capture();  // throws where there is none
  } catch (const Error& error) {
    fail_as(error.kind(), "graph: ", error.what(), ", or leave graph out");
  }
  const std::string& optimizer = config.optimizer.name;
  bool makes_own = config.registry->has_own_optimizer(config.task.name);
  SG_CHECK(makes_own || optimizer == "sgd" || optimizer == "adam" || optimizer == "adamw", "graph: a step of ",
           optimizer, " cannot be captured; set optimizer.name to sgd, adam or adamw, or leave graph out");
  SG_CHECK(config.autocast != "f16" && config.fsdp.options.param_dtype != DType::f16,
           "graph: f16 needs loss scaling, whose host looks at gradients in every step; use bf16, or leave graph out");
  const fsdp::Config& sharding = config.fsdp.options;
  SG_CHECK(!sharding.move_params_to_cpu && !sharding.grads_to_cpu(),
           "graph: parameters and gradients that move to host ",
           "memory are waited for in every step; leave fsdp.move_params_to_cpu, fsdp.move_grads_to_cpu or graph out");
  SG_CHECK(config.grains == 0, "graph: grains are for runs of several ranks; set micro_batches, or leave graph out");
}

CapturedStep::CapturedStep(const Training& training) : training_(training), graph_([this] { return queue(); }) {}

CapturedStep::Form CapturedStep::form_of(const data::Batch& batch) {
  Form form{batch.count, batch.global_count, batch.first, batch.global_ignored};
  for (const Tensor& field : batch.fields) form.fields.emplace_back(field.shape(), field.dtype());
  return form;
}

// A larger batch, for the one before was an epoch's last; or another one that comes twice in a row, for that was odd.
void CapturedStep::settle_form(const Form& form) {
  bool again = std::exchange(last_, form) == form;
  if (batch_ && form != form_ && (form.count > form_.count || (again && form.count == form_.count))) batch_.reset();
  if (!batch_) form_ = form;
}

void CapturedStep::take(const data::Batch& batch) {
  NoGrad no_grad;
  TagScope owner(Category::data);
  if (!batch_) {
    batch_ = batch;
    for (Tensor& field : batch_->fields) field = clone(field);
    return;
  }
  batch_->step = batch.step;
  for (size_t i = 0; i < batch.fields.size(); ++i) copy_into(batch_->fields[i], batch.fields[i]);
}

Tensor CapturedStep::queue() {
  queued_ = queue_step(training_, *batch_, true);
  return queued_.result.loss;
}

// The next step overwrites what this one has left.
QueuedStep CapturedStep::copied_out() const {
  NoGrad no_grad;
  TagScope owner(Category::other);
  QueuedStep queued = queued_;
  queued.result.loss = queued.result.losses = clone(queued_.result.loss);
  if (queued_.power.defined()) queued.power = clone(queued_.power);
  if (queued.look)
    for (Tensor& numbers : queued.look->numbers) numbers = clone(numbers);
  return queued;
}

StepResult CapturedStep::operator()(const data::Batch& batch, bool norm_wanted) {
  if (context().recorder().tracing()) return train_step(training_, batch, norm_wanted);
  Form form = form_of(batch);
  if (!is_captured()) settle_form(form);
  if (form != form_) return train_step(training_, batch, norm_wanted);
  take(batch);
  try {
    graph_();
  } catch (const CaptureRefused& refused) {
    fail(refused.what(), ", or set graph to false");
  }
  return finish_step(training_, copied_out(), norm_wanted);
}

}  // namespace shardgrad::train
