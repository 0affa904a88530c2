#include <shardgrad/certify/cold_timing.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <shardgrad/autograd/launch.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad {
namespace {

constexpr int kCalls = 20, kFewestCalls = 3;
constexpr std::chrono::seconds kLongEnough{2};

int64_t bytes_beyond_caches(Device device) {
  constexpr int64_t mebibyte = int64_t(1) << 20;
  if (device.kind == DeviceKind::cuda) return 256 * mebibyte;
  return std::max(64 * mebibyte, 2 * int64_t(sysconf(_SC_LEVEL3_CACHE_SIZE)));
}

double median(std::vector<double> numbers) {
  auto middle = numbers.begin() + std::ptrdiff_t(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

}  // namespace

ColdTiming::ColdTiming(Device device) : buffer_(zeros({bytes_beyond_caches(device) / 4}, {DType::f32, device})) {}

// After the write the caches hold lines that wait to be written back, which would be charged to the work that is timed;
// after the sum they hold none.
void ColdTiming::flush() const {
  NoGrad no_grad;
  launch(kernels::affine, buffer_, out(buffer_), buffer_, 1.0, 1.0);
  sum(buffer_);
}

ColdTiming::Result ColdTiming::medians(std::span<const Piece> pieces) const {
  std::unique_ptr<StreamTimer> timer = context().backend(buffer_.device()).compute().make_timer();
  std::vector<std::vector<double>> seconds(pieces.size());
  auto begin = std::chrono::steady_clock::now();
  int rounds = -1;  // the first warms up
  for (; rounds < kCalls; ++rounds) {
    if (rounds >= kFewestCalls && std::chrono::steady_clock::now() - begin > kLongEnough) break;
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].prepare();
      flush();
      timer->start();
      pieces[i].work();
      timer->stop();
      double taken = timer->seconds();
      if (rounds >= 0) seconds[i].push_back(taken);
    }
  }
  Result result{{}, rounds};
  for (const std::vector<double>& each : seconds) result.seconds.push_back(median(each));
  return result;
}

}  // namespace shardgrad
