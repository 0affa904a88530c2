// Products and layers as functions.

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/rope_table.h>

#include <shardgrad/python/bind.h>
#include <shardgrad/python/windows.h>

namespace shardgrad::python {
namespace {

using Maybe = std::optional<Tensor>;

// Row `padding` gets no gradient.
Tensor looked_up(const Tensor& ids, const Tensor& weight, std::optional<int64_t> padding) {
  Tensor rows = embedding(weight, ids);
  if (!padding) return rows;
  int64_t row = *padding < 0 ? *padding + weight.size(0) : *padding;
  SG_CHECK(row >= 0 && row < weight.size(0), "embedding: there is no row ", *padding, " of ", weight.size(0),
           " that could be padding");
  return where(unsqueeze(ids == double(row), -1), rows.detach(), rows);
}

void bind_products(nb::module_& m, TensorClass& tensor) {
  def_both(m, tensor, "matmul", matmul, "other"_a, "trans_a"_a = false, "trans_b"_a = false,
           "The product of the last two dimensions; leading ones broadcast.");
  def_both(
      m, tensor, "mm", [](const Tensor& x, const Tensor& other) { return matmul(x, other); }, "other"_a,
      "The product of two matrices.");
  def_both(
      m, tensor, "bmm", [](const Tensor& x, const Tensor& other) { return matmul(x, other); }, "other"_a,
      "The products of two batches of matrices, (B, n, k) and (B, k, m).");
  m.def(
      "einsum",
      [](std::string_view equation, const nb::args& given) {
        nb::object operands = given;
        if (given.size() == 1 && (nb::isinstance<nb::list>(given[0]) || nb::isinstance<nb::tuple>(given[0])))
          operands = given[0];
        std::vector<Tensor> tensors;
        for (nb::handle each : operands)
          SG_CHECK(nb::try_cast(each, tensors.emplace_back()), "einsum: '", nb::repr(each).c_str(), "' is no tensor");
        Wait wait;
        return einsum(equation, tensors);
      },
      "equation"_a, "operands"_a,
      "Sums of products of dimensions that have names: einsum('bij,bjk->bik', a, b) is bmm(a, b).");
  def_both(m, tensor, "outer", outer, "other"_a, "Each element with each.");
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const Maybe& bias) { return linear(x, weight, or_undefined(bias)); },
      "x"_a, "weight"_a, "bias"_a = nb::none(), Waits(), "x · weightᵀ + bias");
  m.def("embedding", looked_up, "ids"_a, "weight"_a, "padding_idx"_a = nb::none(), Waits(),
        "Rows of weight at ids; row padding_idx gets no gradient.");
}

// PyTorch's normalized_shape, which here is the last dimension.
void check_last(const char* op, const Tensor& x, const std::vector<int64_t>& shape) {
  SG_CHECK(x.ndim() > 0 && shape.size() == 1 && shape[0] == x.size(-1), op, ": normalized_shape ", Shape(shape),
           " is not the last dimension of ", x.shape(), "; flatten what is to be normalised together");
}

void bind_group_norm(nb::module_& m) {
  m.def(
      "group_norm",
      [](const Tensor& x, int64_t groups, const Maybe& weight, const Maybe& bias, double eps) {
        return group_norm(x, groups, or_undefined(weight), or_undefined(bias), eps);
      },
      "x"_a, "num_groups"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5, Waits(),
      "Each of num_groups parts of the channels of x (N, C, …), in each sample.");
}

void bind_normalisations(nb::module_& m) {
  m.def(
      "layer_norm",
      [](const Tensor& x, const Maybe& weight, const Maybe& bias, double eps) {
        return layer_norm(x, or_undefined(weight), or_undefined(bias), eps);
      },
      "x"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5, Waits(), "Over the last dimension.");
  m.def(
      "layer_norm",
      [](const Tensor& x, const std::vector<int64_t>& shape, const Maybe& weight, const Maybe& bias, double eps) {
        check_last("layer_norm", x, shape);
        return layer_norm(x, or_undefined(weight), or_undefined(bias), eps);
      },
      "x"_a, "normalized_shape"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5, Waits(),
      "As PyTorch writes it: normalized_shape is (x.shape[-1],).");
  m.def(
      "rms_norm",
      [](const Tensor& x, const std::vector<int64_t>& shape, const Maybe& weight, double eps) {
        check_last("rms_norm", x, shape);
        return rms_norm(x, or_undefined(weight), eps);
      },
      "x"_a, "normalized_shape"_a, "weight"_a = nb::none(), "eps"_a = 1e-6, Waits(),
      "As PyTorch writes it: normalized_shape is (x.shape[-1],).");
  m.def(
      "rms_norm",
      [](const Tensor& x, const Maybe& weight, double eps) { return rms_norm(x, or_undefined(weight), eps); }, "x"_a,
      "weight"_a = nb::none(), "eps"_a = 1e-6, Waits(), "x / √(mean(x²) + eps) · weight over the last dimension.");
  m.def("swiglu", swiglu, "gate_up"_a, Waits(), "silu(gate) · up of rows that hold both.");
  m.def(
      "dropout",
      [](const Tensor& x, double p, bool training, bool, std::string_view name) {
        return training && p != 0 ? dropout(x, p, name) : x;
      },
      "x"_a, "p"_a = 0.5, "training"_a = true, "inplace"_a = false, "name"_a = "", Waits(),
      "Zeroes each element with probability p, never in place. The mask follows from the seed and the step.");
}

void bind_attention(nb::module_& m) {
  m.def(
      "attention",
      [](const Tensor& qkv, int64_t heads, int64_t kv_heads, const Maybe& starts, double scale, double dropout,
         std::string_view name) {
        return attention(qkv, or_undefined(starts),
                         {.heads = heads, .kv_heads = kv_heads, .scale = scale, .dropout = dropout}, name);
      },
      "qkv"_a, nb::kw_only(), "heads"_a, "kv_heads"_a = 0, "starts"_a = nb::none(), "scale"_a = 0., "dropout"_a = 0.,
      "name"_a = "", Waits(),
      "Causal attention of rows (B, T, (heads + 2 kv_heads) · d) that hold queries, keys and values: (B, T, heads · "
      "d).");
  m.def(
      "rope",
      [](const Tensor& qkv, const Tensor& table, int64_t heads, int64_t kv_heads, const Maybe& starts, int64_t first) {
        return rope(qkv, table, heads, kv_heads, or_undefined(starts), first);
      },
      "qkv"_a, "table"_a, "heads"_a, "kv_heads"_a, "starts"_a = nb::none(), "first_position"_a = 0, Waits(),
      "Rotary positions of the query and key heads in rows qkv.");
}

void bind_convolutions(nb::module_& m) {
  m.def(
      "conv2d",
      [](const Tensor& x, const Tensor& weight, const Maybe& bias, const Extent& stride, const Padding& padding,
         const Extent& dilation, int64_t groups) {
        Size2d kernel = weight.ndim() == 4 ? Size2d(weight.size(2), weight.size(3)) : 1;
        return conv2d(x, weight, or_undefined(bias),
                      conv2d_options("conv2d", kernel, stride, padding, dilation, groups));
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      Waits(), "x (N, C, H, W), weight (O, C / groups, kernel height, kernel width).");
  m.def(
      "conv1d",
      [](const Tensor& x, const Tensor& weight, const Maybe& bias, const Extent& stride, const Padding& padding,
         const Extent& dilation, int64_t groups) {
        int64_t kernel = weight.ndim() == 3 ? weight.size(2) : 1;
        return conv1d(x, weight, or_undefined(bias),
                      conv1d_options("conv1d", kernel, stride, padding, dilation, groups));
      },
      "x"_a, "weight"_a, "bias"_a = nb::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      Waits(), "x (N, C, L), weight (O, C / groups, kernel).");
}

void bind_pooling(nb::module_& m) {
  m.def(
      "max_pool2d",
      [](const Tensor& x, const Extent& kernel, const std::optional<Extent>& stride, const Extent& padding,
         const Extent& dilation, bool ceil_mode, bool return_indices) {
        check_max_pool("max_pool2d", dilation, return_indices);
        return max_pool2d(x, size_of("max_pool2d", kernel),
                          pool_options("max_pool2d", stride, padding, ceil_mode, true));
      },
      "x"_a, "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "dilation"_a = 1, "ceil_mode"_a = false,
      "return_indices"_a = false, Waits(), "The largest of each window; stride is the kernel's size unless given.");
  m.def(
      "avg_pool2d",
      [](const Tensor& x, const Extent& kernel, const std::optional<Extent>& stride, const Extent& padding,
         bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
        check_avg_pool("avg_pool2d", divisor_override);
        return avg_pool2d(x, size_of("avg_pool2d", kernel),
                          pool_options("avg_pool2d", stride, padding, ceil_mode, count_include_pad));
      },
      "x"_a, "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "ceil_mode"_a = false,
      "count_include_pad"_a = true, "divisor_override"_a = nb::none(), Waits(), "The mean of each window.");
  m.def(
      "adaptive_avg_pool2d",
      [](const Tensor& x, const Places& size) {
        return adaptive_avg_pool2d(x, places_of("adaptive_avg_pool2d", size));
      },
      "x"_a, "output_size"_a, Waits(),
      "The means of output_size parts of each image down, and across; None keeps an extent.");
}

}  // namespace

void bind_layers(nb::module_& m, TensorClass& tensor) {
  bind_products(m, tensor);
  bind_normalisations(m);
  bind_group_norm(m);
  bind_attention(m);
  bind_convolutions(m);
  bind_pooling(m);
}

}  // namespace shardgrad::python
