#include <shardgrad/core/step_graph.h>

#include <utility>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/context.h>

namespace shardgrad {

StepGraph::StepGraph(std::function<Tensor()> step, Options options)
    : step_(std::move(step)), options_(options), context_(&context()), device_(context().default_device()) {
  SG_CHECK(bool(step_), "StepGraph: there is no step");
  SG_CHECK(options_.plain_steps >= 1, "StepGraph: plain_steps is ", options_.plain_steps,
           "; one step at least makes the optimizer's state, which outlives the graph");
  capture_ = context().backend(device_).make_capture();
  at_end_ = context().at_end([this] {
    context_ = nullptr;
    captured_ = false;
    result_ = {};
    capture_.reset();
  });
}

StepGraph::~StepGraph() = default;

void StepGraph::capture() {
  if (!capture_) capture_ = context().backend(device_).make_capture();
  capture_->begin();
  try {
    result_ = step_();
    capture_->end();
    captured_ = true;
  } catch (...) {
    capture_->give_up();
    result_ = {};
    capture_.reset();
    throw;
  }
}

Tensor StepGraph::operator()() {
  if (Capture::current()) refuse_in_capture("a call of a StepGraph", "call what that one runs, or call it outside");
  SG_CHECK(context_ == &context(),
           "StepGraph: it was made in another context, whose device has its step; make one here");
  if (!captured_ && calls_ < options_.plain_steps) {
    ++calls_;
    return step_();
  }
  if (!captured_) capture();
  capture_->replay();
  if (result_.defined()) result_.bump_version();
  return result_;
}

}  // namespace shardgrad
