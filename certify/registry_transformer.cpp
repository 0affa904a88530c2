// The cases of what transformers are made of.

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

void add_rms_norms(std::vector<OpCase>& cases) {
  auto scaled = [](Inputs in) { return rms_norm(in[0], in[1]); };
  add_case(cases, "rms_norm", "", scaled, {{{3, 7}}, {{7}}});
  add_case(cases, "rms_norm", "three dimensions", scaled, {{{2, 3, 17}}, {{17}}});
  add_case(cases, "rms_norm", "one row", scaled, {{{5}}, {{5}}});
  add_case(cases, "rms_norm", "no rows", scaled, {{{0, 5}}, {{5}}});
  add_case(cases, "rms_norm", "plain", [](Inputs in) { return rms_norm(in[0], Tensor(), 1e-3); }, {{{3, 7}}});
  add_case(cases, "rms_norm", "frozen weight", scaled, {{{3, 7}}, constant({7})});
  for (const Shape& shape : kOddRows) add_size_case(cases, "rms_norm", scaled, {{shape}, {{shape[1]}}});
  add_speed_case(cases, "rms_norm", scaled, {{{4096, 4096}}, {{4096}}});
}

}  // namespace

void add_transformer_cases(std::vector<OpCase>& cases) { add_rms_norms(cases); }

}  // namespace shardgrad
