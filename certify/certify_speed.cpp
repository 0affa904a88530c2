#include <shardgrad/certify/certify_speed.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/certify/cold_timing.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

constexpr double kMostFlopsOfAHost = 4e9;

Tensor draw(const InputSpec& spec, DType dtype, Device device, const std::string& name) {
  NoGrad no_grad;
  DType kind = spec.kind == InputSpec::Kind::index  ? DType::i64
               : spec.kind == InputSpec::Kind::flag ? DType::u8
                                                    : dtype;
  Tensor numbers = empty(spec.shape, {DType::f64, device});  // the same at each call
  launch(kernels::random_uniform, numbers, out(numbers),
         kernels::RandomArgs{context().seed(), stream_of("certificate", name)});
  return cast(affine(numbers, spec.high - spec.low, spec.low), kind);
}

/// An operation on its inputs, called with the kernels of one table.
class BoundOp {
 public:
  BoundOp(const OpCase& op, const std::vector<Tensor>& inputs, const TableCopy& table)
      : op_(op), inputs_(inputs), table_(table) {}

  ColdTiming::Piece forward() {
    return {[this] { reset(); },
            [this] {
              NoGrad no_grad;
              results_ = op_.call(inputs_);
            }};
  }
  ColdTiming::Piece backward() {
    return {[this] { record(); }, [this] { shardgrad::backward(roots_, upstream_); }};
  }

  /// Results, and gradients after them.
  std::vector<Tensor> values() {
    record();
    if (differentiable()) shardgrad::backward(roots_, upstream_);
    std::vector<Tensor> all;
    for (const Tensor& result : results_) all.push_back(result.detach());
    for (const Tensor& input : inputs_)
      if (input.grad().defined()) all.push_back(input.grad());
    return all;
  }
  bool differentiable() const { return !roots_.empty(); }

 private:
  void reset() {
    table_.restore();
    results_.clear();
    roots_.clear();
    for (const Tensor& input : inputs_)
      if (input.requires_grad()) input.zero_grad();
  }
  void record() {
    reset();
    results_ = op_.call(inputs_);
    for (const Tensor& result : results_)
      if (result.requires_grad()) roots_.push_back(result);
    for (size_t i = upstream_.size(); i < roots_.size(); ++i)
      upstream_.push_back(draw({roots_[i].shape(), -1, 1}, roots_[i].dtype(), roots_[i].device(), "upstream"));
  }

  const OpCase& op_;
  const std::vector<Tensor>& inputs_;
  const TableCopy& table_;
  std::vector<Tensor> results_, roots_, upstream_;
};

double length(const Tensor& tensor) { return norm(tensor.to(DType::f32)).item(); }

// What is timed must be right, on these sizes too.
void check_values(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected, DType dtype) {
  NoGrad no_grad;
  double tolerance = dtype == DType::f32 ? 1e-4 : 0x1p-6;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(length(actual[i])))
      fail_as(ErrorKind::internal, "in ", dtype, " a result or gradient of shape ", actual[i].shape(),
              " is not finite");
    if (expected.empty()) continue;
    double error = length(actual[i].to(DType::f32) - expected[i].to(DType::f32)), size = length(expected[i]);
    if (!(error <= tolerance * size))
      fail_as(ErrorKind::internal, "in ", dtype, " a result or gradient of shape ", actual[i].shape(),
              " differs from the built-in kernels' by ", error / size, " of its length");
  }
}

double bytes_of(const std::vector<Tensor>& tensors) {
  size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return double(bytes);
}

/// What limits a device: its memory and its arithmetic, as the library's own kernels use them.
class Limits {
 public:
  Limits(const TableCopy& table, DType dtype, Device device) : table_(table), dtype_(dtype), device_(device) {}

  ColdTiming::Piece copy(double bytes) {
    from_ = zeros({std::max<int64_t>(1, int64_t(bytes / 8))}, {DType::f32, device_});
    to_ = zeros(from_.shape(), {DType::f32, device_});
    return {[this] { table_.restore(); }, [this] { launch(kernels::copy, from_, out(to_), from_); }};
  }
  ColdTiming::Piece product() {
    left_ = draw({{side(), side()}, -1, 1}, dtype_, device_, "left");
    right_ = draw({{side(), side()}, -1, 1}, dtype_, device_, "right");
    return {[this] { table_.restore(); }, [this] { matmul(left_, right_); }};
  }
  double flops_of_product() const { return 2 * std::pow(double(side()), 3); }

 private:
  int64_t side() const { return device_.kind == DeviceKind::cuda ? 8192 : 1024; }
  const TableCopy& table_;
  DType dtype_;
  Device device_;
  Tensor from_, to_, left_, right_;
};

/// Pieces that are timed together, and where each one's seconds go.
class Timed {
 public:
  void add(double& seconds, ColdTiming::Piece piece) {
    places_.push_back(&seconds);
    pieces_.push_back(std::move(piece));
  }
  int run(Device device) const {
    ColdTiming::Result result = ColdTiming(device).medians(pieces_);
    for (size_t i = 0; i < places_.size(); ++i) *places_[i] = result.seconds[i];
    return result.calls;
  }

 private:
  std::vector<double*> places_;
  std::vector<ColdTiming::Piece> pieces_;
};

/// Leaves the kernel table as it was.
struct TableScope {
  TableCopy before;
  ~TableScope() { before.restore(); }
};

std::string why_not_on(Device device) {
  if (device.kind == DeviceKind::cuda || device.kind == DeviceKind::cpu) return "";
  return concat("device ", device, " is for tests, and its times say nothing of a machine's");
}

}  // namespace

double Speed::roof() const { return std::max(copy, peak > 0 ? flops / peak : 0); }

std::vector<Tensor> make_large_inputs(const OpCase& op, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (const InputSpec& spec : op.inputs) {
    inputs.push_back(draw(spec, dtype, device, concat(op.op, " ", inputs.size())));
    if (spec.kind == InputSpec::Kind::differentiable) inputs.back().set_requires_grad();
  }
  return inputs;
}

double flops_of(const OpCase& op) try {
  NoGrad no_grad;
  FlopCount count;
  op.call(make_large_inputs(op, DType::f32, kMeta));
  return count.get();
} catch (const Error&) {
  return 0;
}

double product_rate(DType dtype, Device device) {
  constexpr int kCalls = 5;
  TableScope kernels;
  Limits limits(kernels.before, dtype, device);
  ColdTiming::Piece product = limits.product();
  std::unique_ptr<StreamTimer> timer = context().backend(device).compute().make_timer();
  double best = std::numeric_limits<double>::max();
  for (int call = -1; call < kCalls; ++call) {  // the first warms up
    timer->start();
    product.work();
    timer->stop();
    if (double seconds = timer->seconds(); call >= 0) best = std::min(best, seconds);
  }
  return limits.flops_of_product() / best;
}

Speed measure_speed(const OpCase& op, DType dtype, Device device, const TableCopy* built_in) {
  TableScope scope;
  const TableCopy &chosen = scope.before, &original = built_in ? *built_in : chosen;
  std::vector<Tensor> inputs = make_large_inputs(op, dtype, device);
  BoundOp used(op, inputs, chosen), other(op, inputs, original);
  std::vector<Tensor> expected;
  if (built_in) expected = other.values();
  check_values(used.values(), expected, dtype);

  Speed speed{.shapes = op.variant, .dtype = dtype, .flops = flops_of(op)};
  speed.bytes = bytes_of(inputs) + bytes_of(op.call(inputs));
  Limits limits(original, dtype, device);
  Timed timed;
  double product = 0;
  timed.add(speed.copy, limits.copy(speed.bytes));
  if (speed.flops > 0) timed.add(product, limits.product());
  timed.add(speed.forward, used.forward());
  if (built_in) timed.add(speed.built_in_forward, other.forward());
  if (used.differentiable()) timed.add(speed.backward, used.backward());
  if (used.differentiable() && built_in) timed.add(speed.built_in_backward, other.backward());
  speed.calls = timed.run(device);
  if (speed.flops > 0) speed.peak = limits.flops_of_product() / product;
  return speed;
}

SpeedReport measure_speeds(const std::string& op, Device device, const TableCopy* built_in) {
  SpeedReport report{why_not_on(device), "", {}};
  if (!report.why_not.empty()) return report;
  try {
    for (const OpCase& each : op_cases(Purpose::speed)) {
      if (each.op != op || (device == kCpu && flops_of(each) > kMostFlopsOfAHost)) continue;
      for (DType dtype : {DType::f32, DType::bf16})
        report.speeds.push_back(measure_speed(each, dtype, device, built_in));
    }
    if (report.speeds.empty()) report.why_not = "the registry has no large case of it";
  } catch (const Error& error) {
    bool wrong = error.kind() == ErrorKind::internal;
    report = {wrong ? "" : error.what(), wrong ? error.what() : "", {}};
  }
  return report;
}

}  // namespace shardgrad
