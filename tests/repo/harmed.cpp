// A model and samples for faults.py, whose model throws on rank R once there is a file throw.R in the rank's folder,
// and whose samples keep the rank waiting as long as there is a file stall.R.

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <shardgrad/shardgrad.h>

namespace data = sg::data;
namespace nn = sg::nn;
namespace train = sg::train;

namespace {

bool told_to(const char* what) {
  for (const char* variable : {"SHARDGRAD_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* rank = std::getenv(variable)) return std::filesystem::exists(sg::concat(what, '.', rank));
  return false;
}

class Samples : public data::Dataset {
 public:
  explicit Samples(int64_t count) : count_(count) {}
  int64_t size() const override { return count_; }
  std::vector<data::Field> fields() const override {
    return {{{kWidth}, sg::DType::f32}, {{}, sg::DType::i64, kClasses}};
  }
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override {
    while (told_to("stall")) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (size_t row = 0; row < indices.size(); ++row) {
      float* input = static_cast<float*>(to[0]) + int64_t(row) * kWidth;
      for (int64_t k = 0; k < kWidth; ++k) input[k] = float((indices[row] * 31 + k * 7) % 11) / 11;
      static_cast<int64_t*>(to[1])[row] = indices[row] % kClasses;
    }
  }
  uint64_t fingerprint() const override { return 1; }

  static constexpr int64_t kWidth = 784, kClasses = 10;

 private:
  int64_t count_;
};

struct Harmed : nn::Module {
  nn::Child<nn::Linear> linear = child<nn::Linear>("linear", Samples::kWidth, Samples::kClasses);
  sg::Tensor forward(const sg::Tensor& x) {
    if (told_to("throw")) throw std::runtime_error("this model throws");
    return linear(x);
  }
};

}  // namespace

extern "C" void shardgrad_register(train::Registry& registry) {
  registry.add_model("harmed", "a model that can be told to throw", [] { return nn::make<Harmed>(); });
  registry.add_data("harmed", "samples that can be told to wait", [] {
    return data::Splits{std::make_shared<Samples>(20000), std::make_shared<Samples>(1000)};
  });
}
