#include <shardgrad/train/checkpoint/weights.h>

#include <cmath>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/checkpoint/finite.h>

namespace shardgrad::train {

StateSpecs FileWeights::specs(const StateSpecs&) const {
  StateSpecs specs;
  for (const auto& [name, entry] : file_.tensors()) specs[name] = entry.spec;
  return specs;
}

void FileWeights::read(const std::string& name, int64_t first, const Tensor& values) {
  read_converted(file_, name, first, values);
}

std::string FileWeights::place(const std::string& name, int64_t) const {
  return concat("'", path(), "': tensor '", name, "'");
}

void read_converted(const SafetensorsFile& file, const std::string& name, int64_t first, const Tensor& values) {
  auto found = file.tensors().find(name);
  DType dtype = found == file.tensors().end() ? values.dtype() : found->second.spec.dtype;
  if (dtype == values.dtype()) return file.read(name, first, values);
  NoGrad no_grad;
  Tensor read = empty(values.shape(), {dtype, kCpu});
  file.read(name, first, read);
  copy_into(values, read.to(values.dtype()));
}

void check_fits(const Weights& weights, const StateSpecs& expected, bool any_float) {
  StateSpecs given = weights.specs(expected);
  for (auto& [name, spec] : given) {
    auto wanted = expected.find(name);
    if (any_float && wanted != expected.end() && is_floating(spec.dtype) && is_floating(wanted->second.dtype))
      spec.dtype = wanted->second.dtype;
  }
  StateCheck check(given);
  for (const auto& [name, spec] : expected) check.expect(name, spec.shape, spec.dtype);
  std::string faults = check.faults();
  for (const auto& [name, why] : weights.unreadable()) faults += concat("\n  '", name, "' cannot be read: ", why);
  SG_CHECK(faults.empty(), "'", weights.path(), "' does not fit the model; nothing was loaded:", faults);
}

std::vector<NamedParameter> buffers_of(nn::Module& model) {
  model.materialize();
  return model.saved_buffers();
}

void read_finite(Weights& weights, const std::string& name, int64_t first, const Tensor& values) {
  weights.read(name, first, values);
  std::optional<int64_t> at = first_not_finite(values);
  if (!at) return;
  double number = values.rows(*at, *at + 1).item();
  DType saved = weights.specs({}).at(name).dtype;
  fail(weights.place(name, first + *at), " holds ",
       std::isnan(number) ? "NaN"
       : number > 0       ? "inf"
                          : "-inf",
       saved == values.dtype() ? "" : concat(" when its ", saved, " are made ", values.dtype()),
       "; weights must be finite: take a model that was saved before its training failed");
}

void fill_model(nn::Module& model, fsdp::Sharded& sharded, Weights& weights, bool finite) {
  fsdp::fill_pieces(sharded, [&](const auto& piece) {
    finite ? read_finite(weights, piece.name, piece.begin, piece.values)
           : weights.read(piece.name, piece.begin, piece.values);
  });
  dist::together(sharded.group(), {"", "checkpoint"}, [&] {
    for (const NamedParameter& buffer : buffers_of(model)) {
      Tensor copy = empty({buffer.tensor.numel()}, {buffer.tensor.dtype(), kCpu});
      weights.read(buffer.name, 0, copy);
      copy_into(buffer.tensor, copy.view(buffer.tensor.shape()));
    }
  });
}

}  // namespace shardgrad::train
