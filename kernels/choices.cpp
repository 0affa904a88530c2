#include <shardgrad/kernels/choices.h>

namespace shardgrad {

bool own_products_wanted() { return environment_choice(kProductsChoice) == "own"; }

bool timed_products_wanted() { return environment_choice(kProductsChoice) == "timed"; }

bool tf32_wanted() { return environment_flag(kTf32Choice); }

void check_kernel_choices() { best_isa(), own_products_wanted(), tf32_wanted(); }

}  // namespace shardgrad
