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

void add_sums_and_norms(std::vector<OpCase>& cases) {
  auto both = [](const AddNormResult& result) { return std::vector<Tensor>{result.sum, result.y}; };
  auto layer = [both](Inputs in) { return both(add_layer_norm(in[0], in[1], in[2], in[3])); };
  auto rms = [both](Inputs in) { return both(add_rms_norm(in[0], in[1], in[2])); };
  auto one_used = [&](const char* op, auto call, std::vector<InputSpec> inputs) {
    add_case(
        cases, op, "only the sum used", [call](Inputs in) { return call(in)[0]; }, inputs);
    add_case(
        cases, op, "only the norm used", [call](Inputs in) { return call(in)[1]; }, inputs);
  };
  for (const Shape& shape : {Shape{3, 7}, Shape{2, 3, 17}, Shape{5}, Shape{0, 5}}) {
    InputSpec rows{shape}, columns{{shape[-1]}};
    cases.push_back({"add_layer_norm", concat(shape), layer, {rows, rows, columns, columns}});
    cases.push_back({"add_rms_norm", concat(shape), rms, {rows, rows, columns}});
  }
  one_used("add_layer_norm", layer, {{{3, 7}}, {{3, 7}}, {{7}}, {{7}}});
  one_used("add_rms_norm", rms, {{{3, 7}}, {{3, 7}}, {{7}}});
  cases.push_back({"add_layer_norm", "one summand", layer, {{{3, 7}}, constant({3, 7}), constant({7}), {{7}}}});
  cases.push_back({"add_rms_norm", "frozen summands", rms, {constant({3, 7}), constant({3, 7}), {{7}}}});
  cases.back().made_of_others = true;
  auto plain = [both](Inputs in) { return both(add_layer_norm(in[0], in[1], Tensor(), Tensor())); };
  cases.push_back({"add_layer_norm", "plain", plain, {{{3, 7}}, {{3, 7}}}});
  for (const Shape& shape : kOddRows) {
    add_size_case(cases, "add_layer_norm", layer, {{shape}, {shape}, {{shape[1]}}, {{shape[1]}}});
    add_size_case(cases, "add_rms_norm", rms, {{shape}, {shape}, {{shape[1]}}});
  }
  add_speed_case(cases, "add_layer_norm", layer, {{{4096, 4096}}, {{4096, 4096}}, {{4096}}, {{4096}}});
  add_speed_case(cases, "add_rms_norm", rms, {{{4096, 4096}}, {{4096, 4096}}, {{4096}}});
}

void add_swiglus(std::vector<OpCase>& cases) {
  auto halves = [](Inputs in) { return swiglu(in[0]); };
  for (const Shape& shape : {Shape{3, 10}, Shape{2, 3, 34}, Shape{6}, Shape{0, 4}, Shape{3, 0}})
    add_case(cases, "swiglu", concat(shape), halves, {{shape}});
  for (const Shape& shape : {Shape{33, 62}, Shape{257, 10}, Shape{3, 2050}})
    add_size_case(cases, "swiglu", halves, {{shape}});
  add_speed_case(cases, "swiglu", halves, {{{4096, 8192}}});
}

// The table is a constant of the tried dtype, of any numbers: the operation is linear.
void add_ropes(std::vector<OpCase>& cases) {
  struct Rotation {
    int64_t heads, kv_heads, first = 0;
    Tensor operator()(Inputs in) const {
      Tensor table = in[1].dtype() == DType::f64 ? in[1] : cast(in[1], DType::f32);
      return rope(in[0], table, heads, kv_heads, in.size() > 2 ? in[2] : Tensor(), first);
    }
  };
  add_case(cases, "rope", "", Rotation{2, 1}, {{{2, 3, 16}}, constant({3, 4})});
  add_case(cases, "rope", "starts", Rotation{2, 1}, {{{2, 3, 16}}, constant({3, 4}), index_below(4, {2})});
  add_case(cases, "rope", "later rows", Rotation{2, 2, 4}, {{{1, 5, 36}}, constant({11, 6})});
  add_case(cases, "rope", "no rows", Rotation{2, 1}, {{{2, 0, 16}}, constant({3, 4})});
  add_case(cases, "rope", "no samples", Rotation{2, 1}, {{{0, 3, 16}}, constant({3, 4}), index_below(1, {0})});
  add_size_case(cases, "rope", Rotation{1, 1}, {{{33, 31, 6}}, constant({31, 2}), index_below(32, {33})});
  add_size_case(cases, "rope", Rotation{2, 1, 3}, {{{3, 5, 136}}, constant({9, 34})});
  add_speed_case(cases, "rope", Rotation{32, 8}, {{{4, 1024, 6144}}, constant({1024, 128})});
}

// Rows after `first` places of the caches, which are copied: the call writes to them.
struct CachedRows {
  int64_t first;
  AttentionOptions options;
  Tensor operator()(Inputs in) const {
    Tensor starts = in.size() > 3 ? in[3] : Tensor();
    return attention_cached(in[0], clone(in[1]), clone(in[2]), first, starts, options);
  }
};

// Numbers below 1, as for attention.
void add_cached_attentions(std::vector<OpCase>& cases) {
  auto inputs = [](Shape qkv, const CachedRows& call, int64_t depth, int64_t spare = 1) {
    InputSpec cache = constant({qkv[0], call.options.kv_heads, call.first + qkv[1] + spare, depth}, -1, 1);
    return std::vector<InputSpec>{constant(qkv, -1, 1), cache, cache};
  };
  auto add = [&](const char* note, Shape qkv, CachedRows call, int64_t depth) {
    std::vector<InputSpec> in = inputs(qkv, call, depth);
    add_case(cases, "attention_cached", note, call, in);
    in.push_back(index_below(call.first + 1, {qkv[0]}));
    add_case(cases, "attention_cached", concat(note, ", starts"), call, in);
  };
  add("one head", {2, 1, 12}, {3, {.heads = 1, .kv_heads = 1}}, 4);
  add("shared keys", {2, 3, 16}, {2, {.heads = 4, .kv_heads = 2, .scale = 0.5}}, 2);
  add("the first rows", {2, 4, 12}, {0, {.heads = 1, .kv_heads = 1}}, 4);
  add("no samples", {0, 2, 6}, {1, {.heads = 1, .kv_heads = 1}}, 2);
  auto size_case = [&](Shape qkv, CachedRows call, int64_t depth) {
    std::vector<InputSpec> in = inputs(qkv, call, depth);
    in.push_back(index_below(3, {qkv[0]}));
    add_size_case(cases, "attention_cached", call, in);
  };
  size_case({2, 3, 80}, {33, {.heads = 2, .kv_heads = 1}}, 20);
  size_case({1, 3, 36}, {254, {.heads = 10, .kv_heads = 1}}, 3);
  CachedRows large{1023, {.heads = 12, .kv_heads = 12}};
  add_speed_case(cases, "attention_cached", large, inputs({8, 1, 3 * 768}, large, 64, 0));
}

}  // namespace

void add_transformer_cases(std::vector<OpCase>& cases) {
  add_rms_norms(cases);
  add_sums_and_norms(cases);
  add_swiglus(cases);
  add_ropes(cases);
  add_cached_attentions(cases);
}

}  // namespace shardgrad
