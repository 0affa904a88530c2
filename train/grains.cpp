#include <shardgrad/train/grains.h>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/transports/nccl/nccl.h>
#include <shardgrad/dist/transports/tree_sum.h>
#include <shardgrad/nn/normalization.h>
#include <shardgrad/train/batch_arithmetic.h>

namespace shardgrad::train {

int64_t passes_of(const Config& config, int ranks) {
  return config.grains > 0 ? config.grains / ranks : config.micro_batches;
}

void check_grains(const Config& config, int ranks) {
  if (config.grains == 0) return;
  SG_CHECK((ranks & (ranks - 1)) == 0, "grains: ", ranks,
           " ranks do not add up grains in one tree; start 1, 2, 4, 8, … ", "ranks, or leave grains out");
  int64_t below = config.grains / ranks * ranks;
  SG_CHECK(below == config.grains, "grains is ", config.grains, ", which ", ranks, " ranks cannot share; set it to ",
           below > 0 ? concat(below, " or ") : "", below + ranks,
           ", or another multiple of the most ranks that the run shall have");
}

void check_grains(const Config& config, nn::Module& module) {
  if (config.grains == 0) return;
  for (auto& [name, inner] : module.named_modules())
    SG_CHECK(!dynamic_cast<nn::BatchNorm1d*>(inner) || !inner->training(), "grains: module '", name,
             "' is a BatchNorm1d, which normalises by ", "the samples that pass together: those of a grain alone; use ",
             "LayerNorm, or leave grains out");
}

void check_grains(const Config& config, const dist::ProcessGroup& world) {
  check_grains(config, world.size());
  SG_CHECK(config.grains == 0 || world.kind() != "nccl" || dist::tree_sums_wanted(),
           "grains: NCCL adds in an order of ", "its own; set SHARDGRAD_NCCL_SUMS=tree, or leave grains out");
}

std::string grains_note(const Config& config, int threads) {
  if (config.grains == 0) return "";
  std::string numbers;
  for (int64_t ranks = 1; config.grains % ranks == 0; ranks *= 2) numbers += concat(ranks == 1 ? "" : ", ", ranks);
  return concat("grains: the same bits on ", numbers, numbers == "1" ? " rank" : " ranks", " of ", threads,
                threads == 1 ? " thread" : " threads",
                " each (OMP_NUM_THREADS), or of any number with SHARDGRAD_GEMM=own");
}

std::string about_batches(const Config& config, int ranks, int64_t samples) {
  std::string note = grains_note(config, context().threads());
  return batch_arithmetic(config.batch, ranks, config.micro_batches, config.grains, samples) +
         (note.empty() ? "" : "\n" + note);
}

namespace {

template <class T> std::vector<double> tree_over_rows(const std::vector<T>& rows, int64_t count, DType dtype) {
  std::vector<const void*> parts;
  for (size_t at = 0; at < rows.size(); at += size_t(count)) parts.push_back(&rows[at]);
  std::vector<T> sums(static_cast<size_t>(count));
  dist::tree_sum(sums.data(), parts, count, dtype);
  return {sums.begin(), sums.end()};
}

}  // namespace

std::vector<double> sums_over_ranks(const Tensor& values, int64_t count, dist::ProcessGroup& world,
                                    const dist::Label& label) {
  world.all_reduce(values, label).host_wait();
  if (count == 0) return {};
  if (values.dtype() == DType::f32) return tree_over_rows(values.to_vector<float>(), count, DType::f32);
  return tree_over_rows(values.to_vector<double>(), count, DType::f64);
}

}  // namespace shardgrad::train
