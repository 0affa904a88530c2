#include <shardgrad/core/error.h>
#include <shardgrad/train/doctor/checks.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train::doctor {

static std::string version_of(int number) { return concat(number / 1000, ".", number % 1000 / 10); }

static Findings of_cuda(State state, const std::string& what, const std::string& remedy = "") {
  return {{"CUDA", state, what, remedy}};
}

Findings check_cuda(const Machine& m) {
  const CudaSurvey& cuda = m.cuda;
  if (!cuda.built && m.nvidia)
    return of_cuda(State::note, "an NVIDIA driver is loaded, but this build has no device cuda",
                   "configure with -DSHARDGRAD_CUDA=ON where the CUDA toolkit (12.0 or newer) is");
  if (!cuda.built) return of_cuda(State::ok, "not in this build, and no NVIDIA driver here: device=cpu");
  // A login node has no GPU; where there is a driver, somebody wants to use one.
  if (cuda.gpus.empty() && cuda.driver == 0)
    return of_cuda(State::note, cuda.why_not + ": device=cpu", "where there is a GPU, install NVIDIA's driver");
  if (cuda.gpus.empty())
    return {told("CUDA", State::problem, cuda.why_not, "look at CUDA_VISIBLE_DEVICES, or train with device=cpu")};
  Findings findings;
  for (size_t i = 0; i < cuda.gpus.size(); ++i) {
    const SurveyedGpu& gpu = cuda.gpus[i];
    std::string what = concat("GPU ", i, ": ", gpu.name, ", ", gpu.capability / 10, ".", gpu.capability % 10, ", ",
                              format_bytes(int64_t(gpu.bytes)));
    bool usable = gpu.why_not.empty();
    findings.push_back({"CUDA", usable ? State::ok : State::problem, usable ? what : concat(what, "; ", gpu.why_not),
                        usable ? "" : "build for it, hide it with CUDA_VISIBLE_DEVICES, or train with device=cpu"});
  }
  findings[0].what += concat("; the driver knows CUDA ", version_of(cuda.driver));
  if (m.ranks > int(cuda.gpus.size()))
    findings.push_back(
        {"CUDA", State::note,
         concat(m.ranks, " ranks share ", cuda.gpus.size(), " of them: bytes go by way of host memory, slow"),
         concat("as many ranks as GPUs: launch -n ", cuda.gpus.size())});
  return findings;
}

Findings check_nccl(const Machine& m) {
  if (!m.cuda.built) return {};
  if (m.nccl.empty())
    return {{"NCCL", State::note, "not in this build: GPUs send by way of host memory, slow",
             "configure with -DSHARDGRAD_NCCL=ON where nccl.h and libnccl are"}};
  if (m.nccl_fault.empty()) return {{"NCCL", State::ok, m.nccl}};
  return {told("NCCL", m.cuda.gpus.empty() ? State::note : State::problem, m.nccl_fault)};
}

}  // namespace shardgrad::train::doctor
