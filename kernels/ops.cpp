#include <algorithm>

#include <shardgrad/kernels/ops.h>

namespace shardgrad::kernels {

// clang-format off
#define SG_SLOTS(SLOT) \
  SLOT(fill) SLOT(copy) SLOT(cast) SLOT(expand) SLOT(sum_to) SLOT(random_uniform) SLOT(random_normal) SLOT(where) \
  SLOT(permute) SLOT(narrow) SLOT(narrow_backward) SLOT(flip) SLOT(triangle) SLOT(scatter) SLOT(prod) SLOT(prod_backward) \
  SLOT(paste) SLOT(index_select) SLOT(index_add) SLOT(gather) SLOT(scatter_add) SLOT(max_dim) SLOT(cumsum) SLOT(sort) SLOT(softmax) \
  SLOT(softmax_backward) SLOT(layer_norm) SLOT(layer_norm_backward) SLOT(rms_norm) SLOT(rms_norm_backward) \
  SLOT(add_layer_norm) SLOT(add_rms_norm) \
  SLOT(batch_norm) SLOT(batch_norm_backward) SLOT(batch_norm_apply) SLOT(group_norm) SLOT(group_norm_backward) \
  SLOT(swiglu) SLOT(swiglu_backward) \
  SLOT(max_pool2d) SLOT(max_pool2d_backward) SLOT(avg_pool2d) SLOT(avg_pool2d_backward) \
  SLOT(rope) SLOT(dropout) SLOT(square_sums) SLOT(mse) SLOT(mse_backward) \
  SLOT(huber_loss) SLOT(huber_loss_backward) \
  SLOT(cross_entropy) SLOT(cross_entropy_backward) SLOT(sgd) SLOT(adam) \
  SLOT(norm_powers) SLOT(join_values) SLOT(clip_scale) SLOT(tree_sum)
#define SG_PRODUCTS(SLOT) \
  SLOT(matmul) SLOT(linear_backward_input) SLOT(linear_backward_weight) \
  SLOT(attention) SLOT(attention_backward) SLOT(attention_cached) \
  SLOT(conv2d) SLOT(conv2d_backward_input) SLOT(conv2d_backward_weight)
#define SG_ELEMENTWISE(ROW) SG_UNARIES(ROW, ROW, ROW) SG_BINARIES(ROW) SG_RELATIONS(ROW)
// clang-format on

// A multiplication and an addition for each pair of numbers that meet.
namespace flops {

static double matmul(const OutView& c, const OutView&, const View& a, const View&, const View&,
                     const MatmulArgs& args) {
  return 2 * double(c.numel()) * double(a.shape[args.trans_a ? -2 : -1]);
}
static double linear_backward_input(const OutView&, const View& dy, const View& w, const View&, const View&) {
  return 2 * double(dy.numel()) * double(w.shape[1]);
}
static double linear_backward_weight(const OutView& dw, const OutView&, const View& dy, const View& x) {
  return dw.defined() ? 2 * double(dy.numel()) * double(x.shape[1]) : 0;
}

// Of `y` (B, n, H · d), whose row t sees first + t + 1 places, each by so many products of d numbers. What `starts`
// leaves out is known to the device alone.
static double attended(const Shape& y, int64_t first, int products) {
  double rows = double(y[1]), pairs = rows * double(first) + rows * (rows + 1) / 2;
  return 2 * products * double(y[0]) * double(y[2]) * pairs;
}
static double attention(const OutView& y, const OutView&, const View&, const View&, const AttentionArgs&) {
  return attended(y.shape, 0, 2);  // scores, and their sum of values
}
static double attention_backward(const OutView&, const View& dy, const View&, const View&, const View&, const View&,
                                 const AttentionArgs&) {
  return attended(dy.shape, 0, 5);  // the scores again, their gradients, and those of queries, keys and values
}
static double attention_cached(const OutView& y, const View&, const View&, const View&, const View&,
                               const CachedAttentionArgs& args) {
  return attended(y.shape, args.first, 2);
}

// The weight has an element for each that a result is the sum of, and one more dimension for the channels of results.
static double convolved(const Shape& y, const Shape& w) {
  return 2 * double(y.numel()) * double(w.numel()) / double(std::max<int64_t>(w[0], 1));
}
static double conv2d(const OutView& y, const View&, const View& w, const View&, const ConvArgs&) {
  return convolved(y.shape, w.shape);
}
static double conv2d_backward_input(const OutView&, const View& dy, const View& w, const ConvArgs&) {
  return convolved(dy.shape, w.shape);
}
static double conv2d_backward_weight(const OutView& dw, const OutView&, const View& dy, const View&, const ConvArgs&) {
  return dw.defined() ? convolved(dy.shape, dw.shape) : 0;
}

}  // namespace flops

#define SG_DEFINE(name, ...) constinit decltype(name) name{#name};
#define SG_DEFINE_PRODUCT(name) constinit decltype(name) name{#name, flops::name};
SG_SLOTS(SG_DEFINE)
SG_PRODUCTS(SG_DEFINE_PRODUCT)
SG_ELEMENTWISE(SG_DEFINE)
SG_DEFINE(relu_mask_bytes)

std::span<const SlotBase* const> all_slots() {
#define SG_ADDRESS(name, ...) &name,
  static constexpr const SlotBase* slots[] = {SG_SLOTS(SG_ADDRESS) SG_PRODUCTS(SG_ADDRESS) SG_ELEMENTWISE(SG_ADDRESS)};
  return slots;
}

}  // namespace shardgrad::kernels
