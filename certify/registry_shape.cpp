#include <utility>

#include <shardgrad/certify/registry_cases.h>

namespace shardgrad {
namespace {

TensorOptions like(const Tensor& x) { return {x.dtype(), x.device()}; }

void add_moves(std::vector<OpCase>& cases) {
  add_case(cases, "reshape", "two to three", [](Inputs in) { return reshape(in[0], {2, 3, 2}); }, {{{4, 3}}});
  add_case(cases, "reshape", "open extent", [](Inputs in) { return reshape(in[0], {-1, 2}); }, {{{4, 3}}});
  add_case(cases, "reshape", "to a scalar", [](Inputs in) { return reshape(in[0], Shape{}); }, {{{1, 1}}});
  add_case(cases, "reshape", "empty", [](Inputs in) { return reshape(in[0], {3, 0}); }, {{{0, 5}}});
  add_case(cases, "permute", "three", [](Inputs in) { return permute(in[0], {2, 0, 1}); }, {{{2, 3, 5}}});
  add_case(cases, "permute", "four", [](Inputs in) { return permute(in[0], {0, 2, -3, 3}); }, {{{2, 3, 5, 7}}});
  add_case(cases, "permute", "empty", [](Inputs in) { return permute(in[0], {1, 0}); }, {{{0, 3}}});
  add_case(cases, "transpose", "matrix", [](Inputs in) { return transpose(in[0], 0, 1); }, {{{33, 17}}});
  add_case(cases, "transpose", "last two", [](Inputs in) { return transpose(in[0], -1, -2); }, {{{2, 3, 5}}});
  add_case(cases, "transpose", "with itself", [](Inputs in) { return transpose(in[0], 0, 0); }, {{{2, 3}}});
  add_case(cases, "expand", "rows", [](Inputs in) { return expand(in[0], {3, 5}); }, {{{5}}});
  add_case(cases, "expand", "columns", [](Inputs in) { return expand(in[0], {2, 3, 5}); }, {{{3, 1}}});
  add_case(cases, "expand", "a scalar", [](Inputs in) { return expand(in[0], {4, 3}); }, {{{}}});
  add_case(cases, "expand", "to nothing", [](Inputs in) { return expand(in[0], {0, 5}); }, {{{1, 5}}});
  add_case(cases, "expand", "to itself", [](Inputs in) { return expand(in[0], {2, 5}); }, {{{2, 5}}});
}

void add_move_sizes(std::vector<OpCase>& cases) {
  add_size_case(cases, "reshape", [](Inputs in) { return reshape(in[0], {31, 33}); }, {{{33, 31}}});
  add_size_case(cases, "reshape", [](Inputs in) { return reshape(in[0], {-1}); }, {{{3, 1025}}});
  add_size_case(cases, "permute", [](Inputs in) { return permute(in[0], {2, 0, 1}); }, {{{5, 33, 31}}});
  add_size_case(cases, "permute", [](Inputs in) { return permute(in[0], {0, 2, 1, 3}); }, {{{3, 5, 33, 7}}});
  add_size_case(cases, "transpose", [](Inputs in) { return transpose(in[0], 0, 1); }, {{{65, 33}}});
  add_size_case(cases, "transpose", [](Inputs in) { return transpose(in[0], 0, 1); }, {{{3, 1025}}});
  add_size_case(cases, "transpose", [](Inputs in) { return transpose(in[0], -1, -2); }, {{{3, 33, 31}}});
  add_size_case(
      cases, "expand",
      [](Inputs in) {
        return expand(in[0], {5, 257});
      },
      {{{257}}}, "rows ");
  add_size_case(
      cases, "expand",
      [](Inputs in) {
        return expand(in[0], {3, 33, 31});
      },
      {{{33, 1}}}, "columns ");
  add_size_case(
      cases, "expand", [](Inputs in) { return expand(in[0], {4099}); }, {{{1}}}, "one ");
}

void add_parts(std::vector<OpCase>& cases) {
  for (int dim : {0, 1, -1}) {
    add_case(cases, "slice", concat("dim ", dim), [dim](Inputs in) { return slice(in[0], dim, 1, 3); }, {{{4, 3, 5}}});
    add_case(cases, "slice", concat("nothing of dim ", dim), [dim](Inputs in) { return slice(in[0], dim, 1, 1); },
             {{{4, 3, 5}}});
    auto join = [dim](Inputs in) { return cat(in, dim); };
    Shape base{2, 3, 5};
    add_case(cases, "cat", concat("dim ", dim), join, {{base}, {base.with(dim, 1)}, {base.with(dim, 4)}});
    add_case(cases, "cat", concat("with an empty part, dim ", dim), join, {{base.with(dim, 0)}, {base}});
    add_case(cases, "cat", concat("one tensor, dim ", dim), join, {{base}});
    auto parts = [dim](Inputs in) {
      const int64_t sizes[] = {1, 0, 3};
      return split(in[0], sizes, dim);
    };
    Shape whole = Shape{2, 3, 5}.with(dim, 4);
    cases.push_back({"split", concat("dim ", dim), parts, {{whole}}});
    add_case(cases, "split", concat("one part used, dim ", dim), [parts](Inputs in) { return parts(in)[2]; },
             {{whole}});
  }
  add_case(cases, "cat", "a tensor with itself",
           [](Inputs in) {
             const Tensor twice[] = {in[0], in[0]};
             return cat(twice, 0);
           },
           {{{3, 2}}});
}

void add_part_sizes(std::vector<OpCase>& cases) {
  for (const Shape& shape : {Shape{4099}, Shape{3, 1025}, Shape{33, 31}}) {
    int dim = shape.ndim() - 1;
    int64_t extent = shape[dim];
    std::string label = concat("dim ", dim, " of ");
    add_size_case(
        cases, "slice", [=](Inputs in) { return slice(in[0], dim, 1, extent - 1); }, {{shape}}, label);
    add_size_case(
        cases, "cat", [dim](Inputs in) { return cat(in, dim); }, {{shape}, {shape.with(dim, 17)}}, label);
    auto parts = [=](Inputs in) {
      const int64_t sizes[] = {17, extent - 17};
      return split(in[0], sizes, dim);
    };
    add_size_case(cases, "split", parts, {{shape}}, label);
  }
  add_size_case(
      cases, "slice", [](Inputs in) { return slice(in[0], 0, 1, 33); }, {{{33, 31}}}, "dim 0 of ");
  add_size_case(
      cases, "cat", [](Inputs in) { return cat(in, 0); }, {{{33, 31}}, {{5, 31}}}, "dim 0 of ");
}

void add_indexing(std::vector<OpCase>& cases) {
  for (int dim : {0, 1, -1}) {
    Shape shape{4, 3, 5};
    int64_t extent = shape[dim];
    add_case(cases, "index_select", concat("dim ", dim), [dim](Inputs in) { return index_select(in[0], dim, in[1]); },
             {{shape}, index_below(extent, {7})});
    add_case(cases, "index_select", concat("nothing of dim ", dim),
             [dim](Inputs in) { return index_select(in[0], dim, in[1]); }, {{shape}, index_below(extent, {0})});
    add_case(cases, "gather", concat("dim ", dim), [dim](Inputs in) { return gather(in[0], dim, in[1]); },
             {{shape}, index_below(extent, shape.with(dim, 6))});
    add_case(cases, "gather", concat("smaller index, dim ", dim),
             [dim](Inputs in) { return gather(in[0], dim, in[1]); }, {{shape}, index_below(extent, {2, 2, 2})});
    add_case(cases, "scatter_add", concat("dim ", dim),
             [dim](Inputs in) { return scatter_add(in[0], dim, in[1], in[2]); },
             {{shape}, index_below(extent, shape.with(dim, 6)), {shape.with(dim, 6)}});
  }
  auto look_up = [](Inputs in) { return embedding(in[0], in[1]); };
  add_case(cases, "embedding", "ids (9)", look_up, {{{5, 3}}, index_below(5, {9})});
  add_case(cases, "embedding", "ids (2, 4)", look_up, {{{5, 17}}, index_below(5, {2, 4})});
  add_case(cases, "embedding", "one id", look_up, {{{5, 3}}, index_below(5, {})});
  add_case(cases, "embedding", "no ids", look_up, {{{5, 3}}, index_below(5, {0})});
  add_case(cases, "one_hot", "", [](Inputs in) { return one_hot(in[0], 6); }, {index_below(6, {9})});
  add_case(cases, "one_hot", "no labels", [](Inputs in) { return one_hot(in[0], 6); }, {index_below(6, {0})});
}

void add_indexing_sizes(std::vector<OpCase>& cases) {
  Shape shape{33, 31};
  for (int dim : {0, 1}) {
    std::string label = concat("dim ", dim, " of ");
    InputSpec index = index_below(shape[dim], shape.with(dim, 129));
    add_size_case(
        cases, "index_select", [dim](Inputs in) { return index_select(in[0], dim, in[1]); },
        {{shape}, index_below(shape[dim], {33})}, label);
    add_size_case(
        cases, "gather", [dim](Inputs in) { return gather(in[0], dim, in[1]); }, {{shape}, index}, label);
    add_size_case(
        cases, "scatter_add", [dim](Inputs in) { return scatter_add(in[0], dim, in[1], in[2]); },
        {{shape}, index, {index.shape}}, label);
  }
  auto look_up = [](Inputs in) { return embedding(in[0], in[1]); };
  add_size_case(cases, "embedding", look_up, {{{33, 31}}, index_below(33, {257})});
  add_size_case(cases, "embedding", look_up, {{{5, 1025}}, index_below(5, {7})});
  add_size_case(cases, "embedding", look_up, {{{300, 5}}, index_below(300, {1100})});
  add_size_case(cases, "one_hot", [](Inputs in) { return one_hot(in[0], 33); }, {index_below(33, {257})});
  add_size_case(cases, "one_hot", [](Inputs in) { return one_hot(in[0], 1025); }, {index_below(1025, {3})});
}

}  // namespace

// What they make has the dtype and device of the input, which is otherwise not used.
void add_creation_cases(std::vector<OpCase>& cases) {
  auto add = [&](const char* op, auto call) {
    for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 5}, Shape{0, 3}})
      add_case(cases, op, concat(shape), call, {constant(shape)});
    for (const Shape& shape : kOddSizes) add_size_case(cases, op, call, {constant(shape)});
  };
  add("full", [](Inputs in) { return full(in[0].shape(), 2.5, like(in[0])); });
  add("zeros", [](Inputs in) { return zeros(in[0].shape(), like(in[0])); });
  add("ones", [](Inputs in) { return ones(in[0].shape(), like(in[0])); });
  add("randn", [](Inputs in) { return first_of([&] { return randn(in[0].shape(), "sample", like(in[0])); }); });
  add("rand", [](Inputs in) { return first_of([&] { return rand(in[0].shape(), "sample", like(in[0])); }); });
  add("arange", [](Inputs in) { return arange(in[0].numel(), like(in[0])); });
  add("fill_", [](Inputs in) {
    Tensor x = clone(in[0]);
    fill_(x, -3);
    return x;
  });
}

void add_shape_cases(std::vector<OpCase>& cases) {
  add_moves(cases);
  add_move_sizes(cases);
  add_parts(cases);
  add_part_sizes(cases);
  add_indexing(cases);
  add_indexing_sizes(cases);
}

}  // namespace shardgrad
