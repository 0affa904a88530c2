#include <shardgrad/core/cuda/error.h>

#include <charconv>

namespace shardgrad {

// A kernel's fault: the context is lost, and whichever call comes next reports it.
static bool is_kernel_fault(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchTimeout:
      return true;
    default:
      return false;
  }
}

static bool is_missing_code(cudaError_t error) {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
         error == cudaErrorUnsupportedPtxVersion;
}

std::string describe(cudaError_t error) {
  std::string text = concat(cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  if (is_missing_code(error))
    text += concat("; this build has GPU code for ", SHARDGRAD_CUDA_ARCHITECTURES,
                   ": configure again with -DCMAKE_CUDA_ARCHITECTURES=native on the machine with the GPU");
  return text;
}

void throw_cuda(cudaError_t error, std::string_view what, bool at_its_op) {
  std::string hint;
  if (is_kernel_fault(error) && !at_its_op)
    hint = "; an earlier operation may be the cause: SHARDGRAD_CHECK=1 waits for every operation and names the one";
  cudaGetLastError();  // forget it: a later launch must not be blamed
  ErrorKind kind = is_missing_code(error) ? ErrorKind::missing : ErrorKind::internal;
  throw DeviceFault(kind, concat(what, ": ", describe(error), hint));
}

// One entry: "90" is machine code and PTX, "90-real" and "90-virtual" one of them; a letter ("90a") ties to one GPU.
static bool entry_runs_on(std::string_view entry, int capability) {
  int built = 0;
  auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), built);
  if (error != std::errc()) return false;
  std::string_view suffix = entry.substr(size_t(end - entry.data()));
  if (!suffix.empty() && suffix[0] != '-') return built == capability;
  bool same_family = built / 10 == capability / 10 && built <= capability;
  if (suffix == "-real") return same_family;
  return built <= capability;  // PTX is compiled for newer GPUs when the program starts
}

bool runs_on(std::string_view architectures, int capability) {
  while (!architectures.empty()) {
    size_t end = std::min(architectures.find(';'), architectures.size());
    if (entry_runs_on(architectures.substr(0, end), capability)) return true;
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
  }
  return false;
}

}  // namespace shardgrad
