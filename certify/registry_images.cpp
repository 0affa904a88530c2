// Cases of convolutions, pooling (autograd/ops/convolution.h), batch_norm and group_norm of images, and of losses that
// are made of other operations (autograd/ops/losses.h).

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

void add_convolutions(std::vector<OpCase>& cases) {
  auto padded = [](Inputs in) { return conv2d(in[0], in[1], in[2], {.stride = 2, .padding = 1}); };
  add_case(cases, "conv2d", "padded", padded, {{{2, 3, 5, 4}}, {{4, 3, 3, 3}}, {{4}}});
  add_size_case(cases, "conv2d", padded, {{{2, 3, 17, 15}}, {{5, 3, 3, 3}}, {{5}}});
  auto wide = [](Inputs in) { return conv2d(in[0], in[1], in[2], {.padding = {1, 2}}); };
  add_size_case(cases, "conv2d", wide, {{{2, 5, 9, 64}}, {{33, 5, 3, 5}}, {{33}}}, "wide ");
  for (OpCase& aligned_or_not : std::span(cases).last(2)) aligned_or_not.slow = true;
  add_case(cases, "conv2d", "no samples", padded, {{{0, 3, 5, 4}}, {{4, 3, 3, 3}}, {{4}}});
  add_case(cases, "conv2d", "in groups",
           [](Inputs in) { return conv2d(in[0], in[1], Tensor(), {.dilation = 2, .groups = 2}); },
           {{{2, 4, 4, 5}}, {{2, 2, 2, 3}}});
}

void add_convolutions_along(std::vector<OpCase>& cases) {
  auto along = [](Inputs in) { return conv1d(in[0], in[1], Tensor(), {.padding = 1}); };
  add_case(cases, "conv1d", "", along, {{{2, 3, 7}}, {{4, 3, 3}}});
  add_size_case(cases, "conv1d", along, {{{3, 3, 129}}, {{4, 3, 3}}});
}

void add_pooling(std::vector<OpCase>& cases) {
  auto largest = [](Size2d kernel, PoolOptions options) {
    return [=](Inputs in) { return max_pool2d(in[0], kernel, options); };
  };
  auto middle = [](Size2d kernel, PoolOptions options) {
    return [=](Inputs in) { return avg_pool2d(in[0], kernel, options); };
  };
  auto add = [&](const char* op, auto of) {
    add_case(cases, op, "", of(2, {}), {{{2, 3, 4, 6}}});
    add_case(cases, op, "padded", of(3, {.stride = 2, .padding = 1}), {{{2, 3, 5, 4}}});
    add_case(cases, op, "overlapping", of(2, {.stride = 1}), {{{1, 2, 4, 3}}});
    add_case(cases, op, "apart", of(2, {.stride = 3, .padding = 1}), {{{1, 2, 7, 8}}});
    add_case(cases, op, "no samples", of(2, {}), {{{0, 3, 4, 4}}});
    PoolOptions up{.stride = {2, 3}, .padding = {1, 0}, .ceil_mode = true, .count_include_pad = false};
    add_case(cases, op, "rounded up", of({3, 2}, up), {{{1, 2, 4, 6}}});
    add_size_case(cases, op, of(2, {}), {{{2, 3, 18, 67}}});
    add_size_case(cases, op, of(3, {.stride = 2, .padding = 1}), {{{2, 3, 17, 33}}}, "padded ");
    add_size_case(cases, op, of(3, {.stride = 1, .padding = 1}), {{{2, 2, 9, 131}}}, "overlapping ");
    add_size_case(cases, op, of(4, {.stride = 5, .padding = 2}), {{{2, 3, 23, 101}}}, "apart ");
  };
  add("max_pool2d", largest);
  add("avg_pool2d", middle);
}

void add_norms(std::vector<OpCase>& cases) {
  auto batch = [](Inputs in) { return batch_norm(in[0], in[1], in[2]).y; };
  auto alone = [](Inputs in) { return sync_batch_norm(in[0], in[1], in[2], [](const Tensor&) {}).y; };
  auto wide = [](const Tensor& x) { return x.dtype() == DType::f64 ? x : cast(x, DType::f32); };
  auto given = [wide](Inputs in) { return batch_norm_apply(in[0], wide(in[1]), wide(in[2]), in[3], in[4]); };
  auto add = [&](auto add_one, const Shape& x, auto... note) {
    InputSpec channel{{x[1]}};
    add_one(cases, "batch_norm", note..., batch, std::vector<InputSpec>{{x}, channel, channel});
    add_one(cases, "sync_batch_norm", note..., alone, std::vector<InputSpec>{{x}, channel, channel});
    add_one(cases, "batch_norm_apply", note..., given,
            std::vector<InputSpec>{{x}, constant({x[1]}), constant({x[1]}, 0.5, 2), channel, channel});
  };
  auto add_small = [](auto&&... args) { add_case(args...); };
  auto add_large = [](auto&&... args) { add_size_case(args...); };
  add(add_small, {3, 2, 3, 5}, "images");
  add(add_small, {2, 3, 5}, "lines");
  for (const Shape& shape : {Shape{3, 5, 33, 31}, Shape{2, 2, 4099}}) add(add_large, shape);
  add_case(cases, "batch_norm", "images, plain", [](Inputs in) { return batch_norm(in[0], Tensor(), Tensor()).y; },
           {{{2, 3, 2, 3}}});
}

void add_group_norms(std::vector<OpCase>& cases) {
  auto call = [](int64_t groups) { return [groups](Inputs in) { return group_norm(in[0], groups, in[1], in[2]); }; };
  auto add = [&](const char* note, const Shape& shape, int64_t groups) {
    add_case(cases, "group_norm", note, call(groups), {{shape}, {{shape[1]}}, {{shape[1]}}});
  };
  add("two groups", {3, 4, 5}, 2);
  add("a group for each channel", {2, 3, 2, 3}, 3);
  add("one group", {2, 4, 3}, 1);
  add("without places", {3, 6}, 2);
  add("no samples", {0, 4, 3}, 2);
  add_case(cases, "group_norm", "plain", [](Inputs in) { return group_norm(in[0], 2, Tensor(), Tensor()); },
           {{{3, 4, 5}}});
  add_case(cases, "group_norm", "frozen weight", call(2), {{{3, 4, 5}}, constant({4}), {{4}}});
  for (const Shape& shape : {Shape{3, 6, 33}, Shape{2, 4, 31, 35}})
    add_size_case(cases, "group_norm", call(2), {{shape}, {{shape[1]}}, {{shape[1]}}});
}

void add_adaptive_pooling(std::vector<OpCase>& cases) {
  for (Size2d size : {Size2d(1), Size2d(2), Size2d(3), Size2d(5, 2)}) {
    auto call = [size](Inputs in) { return adaptive_avg_pool2d(in[0], size); };
    std::string to = concat("to ", size.down, " x ", size.across);
    add_case(cases, "adaptive_avg_pool2d", to, call, {{{2, 3, 4, 6}}});
    add_size_case(cases, "adaptive_avg_pool2d", call, {{{2, 3, 17, 15}}}, to + " ");
  }
}

template <class Call>
void add_loss(std::vector<OpCase>& cases, const char* op, Call call, Numbers x = {}, Numbers target = {}) {
  auto of_both = [call](Inputs in) { return call(in[0], in[1]); };
  auto input = [](const Shape& shape, Numbers n) { return InputSpec{shape, n.low, n.high}; };
  add_case(cases, op, "", of_both, {input({3, 5}, x), constant({3, 5}, target.low, target.high)});
  add_size_case(cases, op, of_both, {input({33, 35}, x), constant({33, 35}, target.low, target.high)});
}

void add_class_losses(std::vector<OpCase>& cases) {
  auto nll = [](Inputs in) { return nll_loss(in[0], in[1], {.weight = in[2]}); };
  add_case(cases, "nll_loss", "weighted", nll, {{{4, 5}}, index_below(5, {4}), constant({5}, 0.5, 2)});
  add_size_case(cases, "nll_loss", nll, {{{33, 35}}, index_below(35, {33}), constant({35}, 0.5, 2)});
  auto smoothed = [](Inputs in) { return cross_entropy(in[0], in[1], ClassOptions{.label_smoothing = 0.1}); };
  add_case(cases, "cross_entropy", "smoothed", smoothed, {{{4, 5}}, index_below(5, {4})});
}

}  // namespace

void add_image_cases(std::vector<OpCase>& cases) {
  add_pooling(cases);
  add_norms(cases);
  add_group_norms(cases);
  add_convolutions(cases);
  size_t first = cases.size();
  add_convolutions_along(cases);
  add_adaptive_pooling(cases);
  auto bce = [](const Tensor& x, const Tensor& t) { return binary_cross_entropy_with_logits(x, t); };
  add_loss(cases, "binary_cross_entropy_with_logits", bce, {}, {0, 1});
  add_loss(cases, "l1_loss", [](const Tensor& x, const Tensor& t) { return l1_loss(x, t); }, {3, 5});
  add_loss(cases, "smooth_l1_loss", [](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t, 0.5); });
  auto each = [](const Tensor& x, const Tensor& t) { return huber_loss(x, t, 1, {.reduction = Reduction::none}); };
  add_loss(cases, "huber_loss", each);
  add_loss(cases, "kl_div", [](const Tensor& x, const Tensor& t) { return kl_div(x, t); }, {-2, 0}, {0, 1});
  add_class_losses(cases);
  for (size_t i = first; i < cases.size(); ++i) cases[i].made_of_others = true;
}

}  // namespace shardgrad
