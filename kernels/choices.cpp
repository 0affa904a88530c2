#include <shardgrad/kernels/choices.h>

#include <shardgrad/core/environment.h>
#include <shardgrad/kernels/table.h>

namespace shardgrad {

bool own_products_wanted() { return environment_choice("SHARDGRAD_GEMM", {"own"}) == "own"; }

bool tf32_wanted() { return environment_flag("SHARDGRAD_TF32"); }

void check_kernel_choices() { best_isa(), own_products_wanted(), tf32_wanted(); }

}  // namespace shardgrad
