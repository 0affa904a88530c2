// The same operation for the CPU alone, which lambdas do for.

#include <cmath>

#include <shardgrad/autograd/elementwise.h>
#include <shardgrad/certify/registry_cases.h>

namespace outside {

using namespace shardgrad;

const auto softsign = elementwise(
    "softsign", [](auto x) { return x / (1 + std::abs(x)); },
    [](auto x) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); });

const OfferCases softsign_cases([](std::vector<OpCase>& all) { add_unary_cases(all, "softsign", softsign); });

}  // namespace outside
