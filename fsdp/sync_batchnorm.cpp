#include <shardgrad/fsdp/sync_batchnorm.h>

#include <shardgrad/nn/normalization.h>

namespace shardgrad::fsdp {

void convert_sync_batchnorm(nn::Module& module, dist::ProcessGroup& group) {
  for (auto& [name, each] : module.named_modules())
    if (auto* norm = dynamic_cast<nn::BatchNorm1d*>(each))
      norm->synchronise([&group, life = group.life(), unit = each->full_name()](const Tensor& sums) {
        SG_CHECK(!life.expired(), "batch_norm of '", unit, "': the process group that it sums over is gone");
        if (group.size() > 1)
          group.all_reduce(sums, {{unit, "batch_norm"}}).wait(context().backend(sums.device()).compute());
      });
}

}  // namespace shardgrad::fsdp
