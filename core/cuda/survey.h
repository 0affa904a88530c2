#pragma once
// The GPUs of this machine, without using one.

#include <cstddef>
#include <string>
#include <vector>

namespace shardgrad {

struct SurveyedGpu {
  std::string name = {};
  int capability = 0;  ///< 10 · major + minor
  size_t bytes = 0;
  std::string why_not = {};  ///< why this build cannot use it, with the remedy; empty when it can
};

struct CudaSurvey {
  bool built = false;        ///< device cuda is part of this build
  int driver = 0;            ///< the newest CUDA that the driver knows: 13000 is 13.0; 0: no driver is loaded
  std::string why_not = {};  ///< why there is no GPU to use; empty where `gpus` has any
  std::vector<SurveyedGpu> gpus = {};
};

/// What cuda_device_count and make_cuda_backend (core/backend.h) go by.
CudaSurvey survey_cuda();

}  // namespace shardgrad
