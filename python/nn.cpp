// The library's layers as modules of Python.

#include <algorithm>

#include <shardgrad/python/layer.h>
#include <shardgrad/python/windows.h>

namespace shardgrad::python {
namespace {

Activation activation_of(std::string_view name) {
  if (name == "none") return Activation::none;
  if (name == "relu") return Activation::relu;
  SG_CHECK(name == "gelu_tanh", "Linear: activation '", name, "' is none of none, relu, gelu_tanh");
  return Activation::gelu_tanh;
}

void bind_linear(nb::module_& m) {
  Layer<nn::Linear, Tensor> linear(m, "Linear", "y = activation(x · weightᵀ + bias)");
  linear
      .def_prop_ro(
          "in_features", [](const nn::Linear& layer) { return layer.weight.size(1); }, "Extent of x's last dimension.")
      .def_prop_ro(
          "out_features", [](const nn::Linear& layer) { return layer.weight.size(0); },
          "Extent of the result's last dimension.");
  linear.def_weight_and_bias().def_forward("x"_a).def_init(
      [](nn::Linear* self, int64_t in, int64_t out, bool bias, std::string_view activation) {
        make(self, in, out, bias, activation_of(activation));
      },
      "in_features"_a, "out_features"_a, "bias"_a = true, nb::kw_only(), "activation"_a = "none",
      "`activation`: relu or gelu_tanh, computed along with the product.");
  Layer<nn::Embedding, Tensor>(m, "Embedding", "Rows of weight at ids.")
      .def_parameter("weight", &nn::Embedding::weight)
      .def_forward("ids"_a)
      .def_init(
          [](nn::Embedding* self, int64_t count, int64_t features, std::optional<int64_t> padding,
             std::optional<nn::Init> init) { make(self, count, features, init.value_or(nn::init::normal()), padding); },
          "num_embeddings"_a, "embedding_dim"_a, "padding_idx"_a = nb::none(), nb::kw_only(), "init"_a = nb::none(),
          "`padding_idx`: a row that counts as zeros, and has no gradient.");
  Layer<nn::Dropout, Tensor>(m, "Dropout", "Zeroes each element with probability p in training.")
      .def_forward("x"_a)
      .def_init([](nn::Dropout* self, double p, bool) { make(self, p); }, "p"_a = 0.5, "inplace"_a = false);
}

// `inplace` is PyTorch's; they compute out of place.
template <class M> void bind_activation(nb::module_& m, const char* name, const char* doc) {
  Layer<M, Tensor>(m, name, doc).def_forward("x"_a).def_init([](M* self, bool) { make(self); }, "inplace"_a = false);
}
template <class M>
void bind_activation_with(nb::module_& m, const char* name, const char* option, double otherwise, const char* doc) {
  Layer<M, Tensor>(m, name, doc)
      .def_forward("x"_a)
      .def_init([](M* self, double value, bool) { make(self, value); }, nb::arg(option) = otherwise,
                "inplace"_a = false);
}
template <class M> void bind_along(nb::module_& m, const char* name, const char* doc) {
  Layer<M, Tensor>(m, name, doc).def_forward("x"_a).def_init([](M* self, int dim) { make(self, dim); }, "dim"_a = -1);
}
template <class M> void bind_plain(nb::module_& m, const char* name, const char* doc) {
  Layer<M, Tensor>(m, name, doc).def_forward("x"_a).def_init([](M* self) { make(self); });
}

void bind_activations(nb::module_& m) {
  bind_activation<nn::ReLU>(m, "ReLU", "x where x > 0, else 0.");
  bind_plain<nn::Tanh>(m, "Tanh", "(eˣ - e⁻ˣ) / (eˣ + e⁻ˣ)");
  bind_plain<nn::Sigmoid>(m, "Sigmoid", "σ(x) = 1 / (1 + e⁻ˣ)");
  bind_activation<nn::SiLU>(m, "SiLU", "x · σ(x)");
  bind_plain<nn::Softplus>(m, "Softplus", "log(1 + exp(x))");
  bind_along<nn::Softmax>(m, "Softmax", "exp(x) / Σ exp(x) along dim.");
  bind_along<nn::LogSoftmax>(m, "LogSoftmax", "The logarithm of softmax.");
  bind_plain<nn::Identity>(m, "Identity", "x");
  Layer<nn::Flatten, Tensor>(m, "Flatten", "Dimensions start_dim to end_dim as one: all but that of the samples.")
      .def_forward("x"_a)
      .def_init([](nn::Flatten* self, int first, int last) { make(self, first, last); }, "start_dim"_a = 1,
                "end_dim"_a = -1);
  bind_activation_with<nn::LeakyReLU>(m, "LeakyReLU", "negative_slope", 0.01, "x where x > 0, else slope · x.");
  bind_activation_with<nn::ELU>(m, "ELU", "alpha", 1, "x where x > 0, else alpha · (exp(x) - 1).");
  Layer<nn::GELU, Tensor>(m, "GELU", "x · Φ(x), exactly or by tanh.")
      .def_forward("x"_a)
      .def_init(
          [](nn::GELU* self, std::string_view approximate) {
            SG_CHECK(approximate == "none" || approximate == "tanh", "GELU: approximate='", approximate,
                     "' is neither 'none' nor 'tanh'");
            make(self, approximate == "tanh");
          },
          "approximate"_a = "none");
}

template <class M> void bind_conv(nb::module_& m, const char* name, const char* doc) {
  Layer<M, Tensor>(m, name, doc)
      .def_weight_and_bias()
      .def_forward("x"_a)
      .def_init(
          [name](M* self, int64_t in, int64_t out, const Extent& kernel, const Extent& stride, const Padding& padding,
                 const Extent& dilation, int64_t groups, bool bias) {
            if constexpr (std::is_same_v<M, nn::Conv1d>) {
              int64_t window = length_of(name, kernel);
              make(self, in, out, window, conv1d_options(name, window, stride, padding, dilation, groups), bias);
            } else {
              Size2d window = size_of(name, kernel);
              make(self, in, out, window, conv2d_options(name, window, stride, padding, dilation, groups), bias);
            }
          },
          "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
          "groups"_a = 1, "bias"_a = true);
}

void bind_pooling(nb::module_& m) {
  Layer<nn::MaxPool2d, Tensor>(m, "MaxPool2d", "The largest of each window.")
      .def_forward("x"_a)
      .def_init(
          [](nn::MaxPool2d* self, const Extent& kernel, const std::optional<Extent>& stride, const Extent& padding,
             const Extent& dilation, bool return_indices, bool ceil_mode) {
            check_max_pool("MaxPool2d", dilation, return_indices);
            make(self, size_of("MaxPool2d", kernel), pool_options("MaxPool2d", stride, padding, ceil_mode, true));
          },
          "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "dilation"_a = 1, "return_indices"_a = false,
          "ceil_mode"_a = false);
  Layer<nn::AvgPool2d, Tensor>(m, "AvgPool2d", "The mean of each window.")
      .def_forward("x"_a)
      .def_init(
          [](nn::AvgPool2d* self, const Extent& kernel, const std::optional<Extent>& stride, const Extent& padding,
             bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
            check_avg_pool("AvgPool2d", divisor_override);
            make(self, size_of("AvgPool2d", kernel),
                 pool_options("AvgPool2d", stride, padding, ceil_mode, count_include_pad));
          },
          "kernel_size"_a, "stride"_a = nb::none(), "padding"_a = 0, "ceil_mode"_a = false,
          "count_include_pad"_a = true, "divisor_override"_a = nb::none());
  Layer<nn::AdaptiveAvgPool2d, Tensor>(m, "AdaptiveAvgPool2d",
                                       "The means of so many parts of each image down, and across.")
      .def_forward("x"_a)
      .def_init(
          [](nn::AdaptiveAvgPool2d* self, const Places& size) { make(self, places_of("AdaptiveAvgPool2d", size)); },
          "output_size"_a);
}

template <class M> void bind_batch_norm(nb::module_& m, const char* name, const char* doc) {
  Layer<M, Tensor> type(m, name, doc);
  type.def_forward("x"_a).def_init([](M* self, int64_t channels, double eps, double momentum,
                                      bool affine) { make(self, channels, eps, momentum, affine); },
                                   "num_features"_a, "eps"_a = 1e-5, "momentum"_a = 0.1, "affine"_a = true);
  type.def_weight_and_bias().def_buffer("running_mean", &M::running_mean).def_buffer("running_var", &M::running_var);
}

// (features,) is one dimension; several are not possible.
int64_t last(const Extent& features) {
  auto* all = std::get_if<std::vector<int64_t>>(&features);
  SG_CHECK(!all || all->size() == 1, "normalized_shape: the last dimension alone is normalised here");
  return all ? all->at(0) : std::get<int64_t>(features);
}

void bind_normalisations(nb::module_& m) {
  Layer<nn::LayerNorm, Tensor>(m, "LayerNorm", "The last dimension to mean 0 and variance 1, scaled and shifted.")
      .def_weight_and_bias()
      .def_forward("x"_a)
      .def_init([](nn::LayerNorm* self, const Extent& features, double eps,
                   bool affine) { make(self, last(features), eps, affine); },
                "normalized_shape"_a, "eps"_a = 1e-5, "elementwise_affine"_a = true);
  Layer<nn::RMSNorm, Tensor>(m, "RMSNorm", "The last dimension divided by its root mean square, scaled.")
      .def_parameter("weight", &nn::RMSNorm::weight)
      .def_forward("x"_a)
      .def_init([](nn::RMSNorm* self, const Extent& features, double eps,
                   bool affine) { make(self, last(features), eps, affine); },
                "normalized_shape"_a, "eps"_a = 1e-6, "elementwise_affine"_a = true);
  Layer<nn::GroupNorm, Tensor>(m, "GroupNorm", "Parts of the channels to mean 0 and variance 1, scaled and shifted.")
      .def_weight_and_bias()
      .def_forward("x"_a)
      .def_init([](nn::GroupNorm* self, int64_t groups, int64_t channels, double eps,
                   bool affine) { make(self, groups, channels, eps, affine); },
                "num_groups"_a, "num_channels"_a, "eps"_a = 1e-5, "affine"_a = true);
  bind_batch_norm<nn::BatchNorm1d>(m, "BatchNorm1d", "Each channel of (samples, channels[, length]).");
  bind_batch_norm<nn::BatchNorm2d>(m, "BatchNorm2d", "Each channel of (samples, channels, height, width).");
}

nn::RecurrentOptions recurrent(int64_t layers, bool bias, bool batch_first, double dropout, bool bidirectional) {
  return {layers, bias, batch_first, dropout, bidirectional};
}
template <class M, class L> void def_recurrent(L& type) {
  type.def_init(
      [](M* self, int64_t in, int64_t hidden, int64_t layers, bool bias, bool batch_first, double dropout,
         bool bidirectional) { make(self, in, hidden, recurrent(layers, bias, batch_first, dropout, bidirectional)); },
      "input_size"_a, "hidden_size"_a, "num_layers"_a = 1, "bias"_a = true, "batch_first"_a = false, "dropout"_a = 0.,
      "bidirectional"_a = false);
  // Parameters, whose names depend on the layers that there are.
  type.def("__getattr__", [](nb::handle self, const std::string& name) {
    Tensor* parameter = nb::inst_ready(self) ? member_of(nb::cast<nn::Module&>(self), name) : nullptr;
    if (!parameter) throw nb::attribute_error(concat("there is no attribute '", name, "'").c_str());
    return parameter->defined() ? object_of(self, name, *parameter) : nb::none();
  });
}
void bind_recurrent(nb::module_& m) {
  Layer<nn::LSTM, Tensor, States> lstm(m, "LSTM", "lstm(x, (h, c)) gives (y, (h, c)).");
  lstm.def_forward("x"_a, "hx"_a = nb::none());
  def_recurrent<nn::LSTM>(lstm);
  Layer<nn::GRU, Tensor, Maybe> gru(m, "GRU", "gru(x, h) gives (y, h).");
  gru.def_forward("x"_a, "hx"_a = nb::none());
  def_recurrent<nn::GRU>(gru);
}

}  // namespace

void bind_nn(nb::module_& m) {
  bind_linear(m);
  bind_activations(m);
  bind_conv<nn::Conv2d>(m, "Conv2d", "x (N, in, H, W) to (N, out, H', W').");
  bind_conv<nn::Conv1d>(m, "Conv1d", "x (N, in, L) to (N, out, L').");
  bind_pooling(m);
  bind_normalisations(m);
  bind_recurrent(m);
}

}  // namespace shardgrad::python
