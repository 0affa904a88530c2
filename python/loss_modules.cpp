// The library's losses as modules of Python; those with weights are written there.

#include <shardgrad/python/layer.h>

namespace shardgrad::python {
namespace {

using Count = std::optional<double>;

LossOptions loss_options(std::string_view reduction) { return {{}, reduction_of(reduction)}; }

template <class M> Layer<M, Tensor, Tensor, Count> loss(nb::module_& m, const char* name) {
  Layer<M, Tensor, Tensor, Count> type(m, name,
                                       "loss(x, target, count): the mean divides by count, or by what there is.");
  type.def_forward("x"_a, "target"_a, "count"_a = nb::none());
  return type;
}
template <class M> void bind_element_loss(nb::module_& m, const char* name) {
  loss<M>(m, name).def_init([](M* self, std::string_view reduction) { make(self, loss_options(reduction)); },
                            "reduction"_a = "mean");
}

}  // namespace

void bind_loss_modules(nb::module_& m) {
  bind_element_loss<nn::MSELoss>(m, "MSELoss");
  bind_element_loss<nn::L1Loss>(m, "L1Loss");
  loss<nn::KLDivLoss>(m, "KLDivLoss")
      .def_init(
          [](nn::KLDivLoss* self, std::string_view reduction) {
            bool batchmean = reduction == "batchmean";
            make(self, loss_options(batchmean ? "mean" : reduction), batchmean);
          },
          "reduction"_a = "mean");
  loss<nn::SmoothL1Loss>(m, "SmoothL1Loss")
      .def_init([](nn::SmoothL1Loss* self, std::string_view reduction,
                   double beta) { make(self, beta, loss_options(reduction)); },
                "reduction"_a = "mean", "beta"_a = 1.);
  loss<nn::HuberLoss>(m, "HuberLoss")
      .def_init([](nn::HuberLoss* self, std::string_view reduction,
                   double delta) { make(self, delta, loss_options(reduction)); },
                "reduction"_a = "mean", "delta"_a = 1.);
}

}  // namespace shardgrad::python
