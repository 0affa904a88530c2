// Methods that write over a tensor's elements. None is recorded for backward.

#include <algorithm>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>

#include <shardgrad/python/functions.h>

namespace shardgrad::python {

void write_over(const char* op, const Tensor& x, bool loses, const std::function<Tensor()>& made) {
  check_changeable(op, x);
  SG_CHECK(!loses, op, ": ", x, " is changed in place, and its gradient, or that of what it is changed by, would be ",
           "lost; write x = …, or do it under no_grad()");
  NoGrad no_grad;
  Tensor values = made();
  SG_CHECK(values.shape() == x.shape(), op, ": what ", x,
           " is changed in place by does not broadcast to it, and makes ", values.shape(), " of it; write x = …");
  SG_CHECK(values.dtype() == x.dtype(), op, ": ", x, " is changed in place, and cannot hold what is ", values.dtype(),
           "; write x = …");
  copy_into(x, values);
}

namespace {

void bind_values(TensorClass& tensor) {
  tensor.def(
      "zero_",
      [](const Tensor& x) {
        fill_(x, 0);
        return x;
      },
      Waits(), "Zeros in place; the tensor itself.");
  tensor.def(
      "fill_",
      [](const Tensor& x, const Operand& value) {
        auto* tensor = std::get_if<Tensor>(&value);
        SG_CHECK(!tensor || !will_record(*tensor), "fill_: the value's gradient would be lost; give its item()");
        if (!tensor) {
          fill_(x, scalar_of(number_in(value)));
          return x;
        }
        SG_CHECK(tensor->numel() == 1, "fill_: ", *tensor, " is given where one number belongs");
        check_changeable("fill_", x);
        copy_into(x, expand(tensor->detach().reshape({}).to(x.dtype()).to(x.device()), x.shape()));
        return x;
      },
      "value"_a, Waits(), "One number everywhere, in place; the tensor itself.");
  tensor.def(
      "copy_",
      [](const Tensor& x, const Tensor& from) {
        SG_CHECK(!grad_enabled() || !from.requires_grad(),
                 "copy_: the other's gradient would be lost; copy its detach(), ", "or under no_grad()");
        SG_CHECK(broadcast_shapes("copy_", from.shape(), x.shape()) == x.shape(), "copy_: ", from,
                 " does not broadcast to ", x);
        Tensor values = from.shape() == x.shape() ? from.detach() : expand(from.detach(), x.shape());
        copy_into(x, values.to(x.dtype()));
        return x;
      },
      "other"_a, Waits(),
      "The other's elements over these, broadcast to their shape and converted to their dtype, not recorded for "
      "backward.");
}

// Of what x is and others, refused where a gradient would be lost.
template <class Of>
nb::object written(const char* op, nb::handle self, std::initializer_list<const Operand*> others, const Of& of) {
  Tensor x = nb::cast<Tensor>(self);
  {
    Wait wait;
    auto loses = [](const Operand* other) {
      auto* tensor = other ? std::get_if<Tensor>(other) : nullptr;
      return tensor && will_record(*tensor);
    };
    write_over(op, x, will_record(x) || std::ranges::any_of(others, loses), [&] { return of(x.detach()); });
  }
  return nb::borrow(self);
}

void bind_changes(TensorClass& tensor) {
  tensor.def(
      "clamp_",
      [](nb::handle self, const End& min, const End& max) {
        return written("clamp_", self, {min ? &*min : nullptr, max ? &*max : nullptr},
                       [&](const Tensor& x) { return clamped(x, min, max); });
      },
      "min"_a = nb::none(), "max"_a = nb::none(), "Within these bounds, in place; the tensor itself.");
  tensor.def(
      "masked_fill_",
      [](nb::handle self, const Tensor& mask, const Operand& value) {
        return written("masked_fill_", self, {&value}, [&](const Tensor& x) { return filled(x, mask, value); });
      },
      "mask"_a, "value"_a, "The value where the mask (uint8) is not 0, in place; the tensor itself.");
  tensor.def(
      "scatter_",
      [](nb::handle self, int dim, const Tensor& index, const Operand& src) {
        return written("scatter_", self, {&src}, [&](const Tensor& x) { return scatter(x, dim, index, src); });
      },
      "dim"_a, "index"_a, "src"_a, "src, a tensor or a number, at index along dim, in place; the tensor itself.");
  tensor.def(
      "scatter_add_",
      [](nb::handle self, int dim, const Tensor& index, const Tensor& src) {
        Operand other = src;
        return written("scatter_add_", self, {&other},
                       [&](const Tensor& x) { return scatter_add(x, dim, index, src); });
      },
      "dim"_a, "index"_a, "src"_a, "src added at index along dim, in place; the tensor itself.");
}

// Drawn from the sequence `name`, over what was there.
template <class Draw>
void def_drawn(TensorClass& tensor, const char* op, nb::arg_v first, nb::arg_v second, Draw draw, const char* doc) {
  tensor.def(
      op,
      [op, draw](nb::handle self, double a, double b, std::string_view name) {
        Tensor x = nb::cast<Tensor>(self);
        {
          Wait wait;
          check_floating(op, x);
          write_over(op, x, will_record(x), [&] { return draw(x, a, b, name); });
        }
        return nb::borrow(self);
      },
      first, second, nb::kw_only(), "name"_a = "", doc);
}

void bind_draws(TensorClass& tensor) {
  def_drawn(
      tensor, "normal_", "mean"_a = 0., "std"_a = 1.,
      [](const Tensor& x, double mean, double std, std::string_view name) {
        return randn(x.shape(), name, {x.dtype(), x.device()}) * std + mean;
      },
      "Normal numbers, the next of the sequence `name`, in place; the tensor itself.");
  def_drawn(
      tensor, "uniform_", "low"_a = 0., "high"_a = 1.,
      [](const Tensor& x, double low, double high, std::string_view name) {
        return rand(x.shape(), name, {x.dtype(), x.device()}) * (high - low) + low;
      },
      "Uniform numbers from low to high, likewise.");
}

}  // namespace

void bind_writes(TensorClass& tensor) {
  bind_values(tensor);
  bind_changes(tensor);
  bind_draws(tensor);
}

}  // namespace shardgrad::python
