#include <bit>
#include <cstring>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/autograd/ops/common.h>
#include <shardgrad/autograd/progress.h>
#include <shardgrad/core/capture.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

Tensor draw(const char* op, const decltype(kernels::random_normal)& slot, const Shape& shape, TensorOptions options,
            uint64_t stream) {
  if (Capture::current())
    refuse_in_capture(concat("a draw of ", op), "draw before the step, into a tensor that stays; dropout is possible");
  Tensor y = empty(shape, options, op);
  check_floating(op, y);
  kernels::RandomArgs args{.seed = context().seed(), .stream = progress().next_stream(stream)};
  args.fine = y.dtype() == DType::f64;
  launch(slot, y, out(y), args);
  return y;
}

// The mask is drawn again in backward: nothing is kept.
struct Dropout final : Node {
  const char* name() const override { return "dropout"; }
  kernels::DropoutArgs args{};
  Tensor drawn;
  void backward(std::span<const Tensor> dy, std::span<GradSlot> dx) override {
    launch(kernels::dropout, dy[0], dx[0].write(), dy[0], drawn, args);
  }
};

Tensor masked(const Tensor& x, double p, const MaskSource& mask) {
  check_floating("dropout", x);
  SG_CHECK(p >= 0 && p < 1, "dropout: probability ", p, " is not within [0, 1)");
  SG_CHECK(mask.first_sample >= 0, "dropout: first_sample ", mask.first_sample, " is negative");
  int64_t samples = x.ndim() ? x.size(0) : 1;
  int64_t first_element = samples ? mask.first_sample * (x.numel() / samples) : 0;
  kernels::DropoutArgs args{p, mask.seed, mask.stream, first_element};
  Tensor y = of_each(kernels::dropout, x, mask.drawn, args);
  if (auto* node = record<Dropout>(y, x)) node->args = args, node->drawn = mask.drawn;
  return y;
}

// Where a mask comes from that is drawn in each replay of a captured step, as next_mask draws it: a region that is
// recomputed has the numbers of its first run.
Tensor drawn_in(Capture& capture, uint64_t seed, uint64_t stream, uint64_t of) {
  const uint64_t now[] = {seed, stream};
  std::function<void(std::byte*)> draw;
  if (!detail::own_progress.of(context())) {
    detail::check_captured_draw();
    draw = [beside = seed - context().seed(), of](std::byte* to) {
      const uint64_t then[] = {context().seed() + beside, progress().next_stream(of)};
      std::memcpy(to, then, sizeof(then));
    };
  }
  return capture.numbers_of(stream, now, 2, DType::i64, std::move(draw));
}

}  // namespace

Generator::Generator(std::string_view name) : stream_(stream_of("user", name)) {}
Tensor Generator::randn(const Shape& shape, TensorOptions options) const {
  return draw("randn", kernels::random_normal, shape, options, stream_);
}
Tensor Generator::rand(const Shape& shape, TensorOptions options) const {
  return draw("rand", kernels::random_uniform, shape, options, stream_);
}

void manual_seed(uint64_t seed) {
  if (Capture::current()) refuse_in_capture("manual_seed()", "seed before the step");
  context().set_seed(seed);
  progress().draws.clear();
}

Tensor randn(const Shape& shape, std::string_view name, TensorOptions options) {
  return Generator(name).randn(shape, options);
}
Tensor randn(const Shape& shape, TensorOptions options) { return randn(shape, "", options); }
Tensor randn_like(const Tensor& x, std::string_view name) { return randn(x.shape(), name, {x.dtype(), x.device()}); }
Tensor rand(const Shape& shape, std::string_view name, TensorOptions options) {
  return Generator(name).rand(shape, options);
}
Tensor rand(const Shape& shape, TensorOptions options) { return rand(shape, "", options); }
Tensor rand_like(const Tensor& x, std::string_view name) { return rand(x.shape(), name, {x.dtype(), x.device()}); }

// From numbers of 53 bits, so that the range may be that large.
Tensor randint(int64_t low, int64_t high, const Shape& shape, std::string_view name, TensorOptions options) {
  constexpr int64_t largest = int64_t(1) << 53;
  SG_CHECK(low < high && low >= -largest && high <= largest && uint64_t(high) - uint64_t(low) <= uint64_t(largest),
           "randint: from ", low, " to ", high, " is not possible");
  bool fits = options.dtype == DType::u8    ? low >= 0 && high <= 256
              : options.dtype == DType::i32 ? low >= INT32_MIN && high <= int64_t(INT32_MAX) + 1
                                            : true;
  SG_CHECK(fits, "randint: not all numbers from ", low, " to ", high - 1, " are ", options.dtype);
  Tensor u = rand(shape, name, {DType::f64, options.device.value_or(context().default_device())});
  Tensor offset = cast(affine(u, double(high - low), 0), DType::i64);  // truncates; below high - low, as u < 1
  return cast(affine(offset, 1, double(low)), options.dtype);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options) {
  return randint(low, high, shape, "", options);
}

Tensor randperm(int64_t count, std::string_view name, std::optional<Device> device) {
  return argsort(rand({count}, name, {DType::f64, device.value_or(context().default_device())}), 0);
}

Tensor bernoulli(const Tensor& p, std::string_view name) {
  check_floating("bernoulli", p);
  Tensor chance = wide(p.detach());
  SG_CHECK(p.device() == kMeta || all((chance >= 0) & (chance <= 1)), "bernoulli: a probability of shape ", p.shape(),
           " is not within [0, 1]");
  return cast(rand(p.shape(), name, {chance.dtype(), p.device()}) < chance, p.dtype());
}

static void check_weights(const Tensor& rows, int64_t needed) {
  if (rows.device() == kMeta) return;
  SG_CHECK(all(isfinite(rows) & (rows >= 0)), "multinomial: a weight of shape ", rows.shape(),
           " is negative or not finite");
  SG_CHECK(all(sum(cast(rows > 0, DType::i64), 1) >= double(needed)), "multinomial: a row of ", rows.shape(),
           " has less than ", needed, " weights above 0");
}

// How many numbers of each row, which ascend, are at most `at` (rows, count): halving what is left.
static Tensor count_up_to(const Tensor& ascending, const Tensor& at) {
  auto columns = double(ascending.size(1));
  Tensor found = zeros(at.shape(), {DType::i64, at.device()});
  for (uint64_t step = std::bit_floor(uint64_t(ascending.size(1))); step > 0; step /= 2) {
    Tensor more = found + double(step), last = clamp(more - 1, 0, columns - 1);
    found = where((more <= columns) & (gather(ascending, 1, last) <= at), more, found);
  }
  return found;
}

// With replacement: where a uniform number lies among the running sums, before the last of them. Without: the largest
// log(p) + Gumbel noise.
Tensor multinomial(const Tensor& p, int64_t count, std::string_view name, bool replacement) {
  NoGrad no_grad;
  check_floating("multinomial", p);
  SG_CHECK((p.ndim() == 1 || p.ndim() == 2) && p.size(-1) > 0, "multinomial: probabilities are (rows, columns) or ",
           "(columns), got ", p.shape());
  SG_CHECK(count >= 1 && (replacement || count <= p.size(-1)), "multinomial: ", count, " of ", p.size(-1),
           " columns without replacement");
  Tensor rows = cast(p.ndim() == 1 ? unsqueeze(p.detach(), 0) : p.detach(), DType::f64), drawn;
  check_weights(rows, replacement ? 1 : count);
  int64_t n = rows.size(0), columns = rows.size(1);
  if (replacement) {
    Tensor sums = cumsum(rows, 1), total = slice(sums, 1, columns - 1, columns);
    Tensor at = rand({n, count}, name, {DType::f64, p.device()}) * total,
           last = sum(cast(sums < total, DType::i64), 1, true);
    drawn = minimum(count_up_to(sums, at), last);  // a product may round up to the total
  } else {
    Tensor u = clamp(rand(rows.shape(), name, {DType::f64, p.device()}), 0x1p-54, 1);
    drawn = topk(log(rows) - log(neg(log(u))), count, 1).index;
  }
  return p.ndim() == 1 ? squeeze(drawn, 0) : drawn;
}

Tensor dropout(const Tensor& x, double p, uint64_t seed, uint64_t stream, int64_t first_sample) {
  return masked(x, p, {seed, stream, first_sample});
}

MaskSource next_mask(std::string_view name) {
  Progress& now = progress();
  Context& rank = context();
  uint64_t of = stream_of("dropout", name), seed = rank.seed(), stream = now.next_stream(of);
  MaskSource mask{seed, stream, now.first_sample};
  if (mask.first_sample < 0) mask = {seed + uint64_t(rank.rank()) * 0x9e3779b97f4a7c15u, stream, 0};
  if (Capture* capture = Capture::current()) mask.drawn = drawn_in(*capture, mask.seed, stream, of);
  return mask;
}

Tensor dropout(const Tensor& x, double p, std::string_view name) { return masked(x, p, next_mask(name)); }

}  // namespace shardgrad
