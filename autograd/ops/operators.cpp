#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

// A view of x on other elements of it than x[i] itself has, as in x -= x[0], would change while it is read.
Tensor apart_from(const Tensor& x, const Tensor& y) {
  bool same_elements = y.offset() == x.offset() && y.shape() == x.shape();
  return y.storage() == x.storage() && !same_elements ? clone(y) : y;
}

Tensor& change(const char* op, const Slot<OutView, View, View>& kernel, Tensor& x, const Tensor& y) {
  check_changeable(op, x);
  check_same_kind(op, x, y);
  SG_CHECK(!grad_enabled() || (!needs_grad(y) && !needs_grad(x)), op, ": ", x, " is changed in place by ", y,
           ", and one of them has a gradient, which would be lost; write x = x + y, or do it in a scope of ", "NoGrad");
  SG_CHECK(broadcast_shapes(op, x.shape(), y.shape()) == x.shape(), op, ": ", y.shape(), " does not broadcast to ",
           x.shape(), ", which is changed in place");
  launch(kernel, x, out(x), x, apart_from(x, y));
  x.bump_version();
  return x;
}

}  // namespace

Truth::operator bool() const {
  SG_CHECK(numel() == 1, "a comparison of tensors of shape ", shape(), " has ", numel(),
           " answers; say any(…) or all(…) of them, and logical_and in the place of &&");
  return item() != 0;
}

Tensor operator/(Scalar value, const Tensor& x) {
  check_floating("div", x);
  return div(number_beside("div", x, value), x);
}

Tensor operator%(Scalar value, const Tensor& divisor) {
  return remainder(number_beside("remainder", divisor, value), divisor);
}

#define SG_COMPARISON(symbol, name)                                                                        \
  Truth operator symbol(const Tensor& a, const Tensor& b) { return name(a, b); }                           \
  Truth operator symbol(const Tensor& x, Scalar value) { return name(x, number_beside(#name, x, value)); } \
  Truth operator symbol(Scalar value, const Tensor& x) { return name(number_beside(#name, x, value), x); }
SG_COMPARISON(==, eq)
SG_COMPARISON(!=, ne)
SG_COMPARISON(<, lt)
SG_COMPARISON(<=, le)
SG_COMPARISON(>, gt)
SG_COMPARISON(>=, ge)
#undef SG_COMPARISON

Truth operator&(const Tensor& a, const Tensor& b) { return logical_and(a, b); }
Truth operator|(const Tensor& a, const Tensor& b) { return logical_or(a, b); }
Truth operator~(const Tensor& x) { return logical_not(x); }

#define SG_CHANGE(symbol, name)                                                                                   \
  Tensor& operator symbol(Tensor& x, const Tensor& y) { return change("operator" #symbol, kernels::name, x, y); } \
  Tensor& operator symbol(Tensor& x, Scalar value) { return x symbol number_beside("operator" #symbol, x, value); }
SG_CHANGE(+=, add)
SG_CHANGE(-=, sub)
SG_CHANGE(*=, mul)
#undef SG_CHANGE

Tensor& operator/=(Tensor& x, const Tensor& y) {
  check_floating("operator/=", x);
  return change("operator/=", kernels::div, x, y);
}
Tensor& operator/=(Tensor& x, Scalar value) { return x /= number_beside("operator/=", x, value); }

// --- methods of core/tensor.h ---------------------------------------------------------------------------------------
Tensor Tensor::index(std::initializer_list<Index> indices) const { return shardgrad::index(*this, indices); }
Tensor Tensor::operator[](std::initializer_list<Index> indices) const { return shardgrad::index(*this, indices); }
Tensor Tensor::operator[](const Index& one) const { return shardgrad::index(*this, {one}); }
Tensor Tensor::reshape(std::initializer_list<int64_t> dims) const { return shardgrad::reshape(*this, dims); }
Tensor Tensor::flatten(int first, int last) const { return shardgrad::flatten(*this, first, last); }
Tensor Tensor::squeeze(int dim) const { return shardgrad::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(int dim) const { return shardgrad::unsqueeze(*this, dim); }
Tensor Tensor::transpose(int a, int b) const { return shardgrad::transpose(*this, a, b); }
Tensor Tensor::permute(std::initializer_list<int> dims) const { return shardgrad::permute(*this, dims); }
Tensor Tensor::t() const { return shardgrad::t(*this); }
Tensor Tensor::expand(const Shape& shape) const { return shardgrad::expand(*this, shape); }
Tensor Tensor::repeat(std::initializer_list<int64_t> times) const { return shardgrad::repeat(*this, times); }
Tensor Tensor::gather(int dim, const Tensor& index) const { return shardgrad::gather(*this, dim, index); }
Tensor Tensor::masked_fill(const Tensor& m, Scalar value) const { return shardgrad::masked_fill(*this, m, value); }
Tensor Tensor::matmul(const Tensor& b) const { return shardgrad::matmul(*this, b); }
Tensor Tensor::sum() const { return shardgrad::sum(*this); }
Tensor Tensor::sum(int dim, bool keepdim) const { return shardgrad::sum(*this, dim, keepdim); }
Tensor Tensor::sum(std::initializer_list<int> dims, bool keepdim) const { return shardgrad::sum(*this, dims, keepdim); }
Tensor Tensor::mean() const { return shardgrad::mean(*this); }
Tensor Tensor::mean(int dim, bool keepdim) const { return shardgrad::mean(*this, dim, keepdim); }
Tensor Tensor::mean(std::initializer_list<int> dims, bool keepdim) const {
  return shardgrad::mean(*this, dims, keepdim);
}
Tensor Tensor::max() const { return shardgrad::max(*this); }
ValuesAndIndex Tensor::max(int dim, bool keepdim) const { return shardgrad::max(*this, dim, keepdim); }
Tensor Tensor::min() const { return shardgrad::min(*this); }
ValuesAndIndex Tensor::min(int dim, bool keepdim) const { return shardgrad::min(*this, dim, keepdim); }
Tensor Tensor::amax(int dim, bool keepdim) const { return shardgrad::amax(*this, dim, keepdim); }
Tensor Tensor::amax(std::initializer_list<int> dims, bool keepdim) const {
  return shardgrad::amax(*this, dims, keepdim);
}
Tensor Tensor::amin(int dim, bool keepdim) const { return shardgrad::amin(*this, dim, keepdim); }
Tensor Tensor::amin(std::initializer_list<int> dims, bool keepdim) const {
  return shardgrad::amin(*this, dims, keepdim);
}
Tensor Tensor::argmax() const { return shardgrad::argmax(*this); }
Tensor Tensor::argmax(int dim, bool keepdim) const { return shardgrad::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin() const { return shardgrad::argmin(*this); }
Tensor Tensor::argmin(int dim, bool keepdim) const { return shardgrad::argmin(*this, dim, keepdim); }
Truth Tensor::any() const { return shardgrad::any(*this); }
Truth Tensor::all() const { return shardgrad::all(*this); }
Tensor Tensor::var() const { return shardgrad::var(*this); }
Tensor Tensor::var(int dim, double correction, bool keepdim) const {
  return shardgrad::var(*this, dim, correction, keepdim);
}
Tensor Tensor::std() const { return shardgrad::std(*this); }
Tensor Tensor::std(int dim, double correction, bool keepdim) const {
  return shardgrad::std(*this, dim, correction, keepdim);
}
Tensor Tensor::norm() const { return shardgrad::norm(*this); }
Tensor Tensor::prod() const { return shardgrad::prod(*this); }
Tensor Tensor::prod(int dim, bool keepdim) const { return shardgrad::prod(*this, dim, keepdim); }
Tensor Tensor::cumsum(int dim) const { return shardgrad::cumsum(*this, dim); }
ValuesAndIndex Tensor::sort(int dim, bool descending) const { return shardgrad::sort(*this, dim, descending); }
ValuesAndIndex Tensor::topk(int64_t k, int dim, bool largest) const { return shardgrad::topk(*this, k, dim, largest); }
Tensor Tensor::softmax(int dim) const { return shardgrad::softmax(*this, dim); }
Tensor Tensor::log_softmax(int dim) const { return shardgrad::log_softmax(*this, dim); }
Tensor Tensor::exp() const { return shardgrad::exp(*this); }
Tensor Tensor::log() const { return shardgrad::log(*this); }
Tensor Tensor::sin() const { return shardgrad::sin(*this); }
Tensor Tensor::cos() const { return shardgrad::cos(*this); }
Tensor Tensor::sqrt() const { return shardgrad::sqrt(*this); }
Tensor Tensor::abs() const { return shardgrad::abs(*this); }
Tensor Tensor::relu() const { return shardgrad::relu(*this); }
Tensor Tensor::sigmoid() const { return shardgrad::sigmoid(*this); }
Tensor Tensor::tanh() const { return shardgrad::tanh(*this); }
Tensor Tensor::pow(Scalar exponent) const { return shardgrad::pow(*this, exponent); }
Tensor Tensor::clamp(Scalar low, Scalar high) const { return shardgrad::clamp(*this, low, high); }
Tensor Tensor::clone() const { return shardgrad::clone(*this); }

}  // namespace shardgrad
