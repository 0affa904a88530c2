// In the place of the CUDA backend in builds without CUDA.

#include <shardgrad/core/backend.h>
#include <shardgrad/core/cuda/survey.h>
#include <shardgrad/core/error.h>

namespace shardgrad {

int cuda_device_count() { return 0; }
int cuda_number_of(Device device, const Context&) { return device.index; }
void wait_for_gpu(int) noexcept {}

CudaSurvey survey_cuda() { return {.why_not = "device cuda is not part of this build"}; }

std::unique_ptr<Backend> make_cuda_backend(Device device, Context&) {
  fail_as(ErrorKind::missing, "device ", device,
          " is not part of this build; configure with -DSHARDGRAD_CUDA=ON where the CUDA toolkit (12.0 or newer) is");
}

}  // namespace shardgrad
