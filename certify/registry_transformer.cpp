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

void add_swiglus(std::vector<OpCase>& cases) {
  auto halves = [](Inputs in) { return swiglu(in[0]); };
  for (const Shape& shape : {Shape{3, 10}, Shape{2, 3, 34}, Shape{6}, Shape{0, 4}, Shape{3, 0}})
    add_case(cases, "swiglu", concat(shape), halves, {{shape}});
  for (const Shape& shape : {Shape{33, 62}, Shape{257, 10}, Shape{3, 2050}})
    add_size_case(cases, "swiglu", halves, {{shape}});
  add_speed_case(cases, "swiglu", halves, {{{4096, 8192}}});
}

}  // namespace

void add_transformer_cases(std::vector<OpCase>& cases) {
  add_rms_norms(cases);
  add_swiglus(cases);
}

}  // namespace shardgrad
