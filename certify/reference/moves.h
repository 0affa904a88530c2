#pragma once
// Reference versions of the operations that move elements; contracts in kernels/ops.h.

#include <algorithm>
#include <array>
#include <vector>

#include <shardgrad/certify/reference/elementwise.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::reference {

/// The position of element i in a tensor of this shape, one index per dimension, and back.
inline std::array<int64_t, kMaxDims> position_of(const Shape& shape, int64_t i) {
  std::array<int64_t, kMaxDims> position{};
  for (int d = shape.ndim() - 1; d >= 0; --d) {
    position[size_t(d)] = i % shape[d];
    i /= shape[d];
  }
  return position;
}
inline int64_t element_at(const Shape& shape, const std::array<int64_t, kMaxDims>& position) {
  int64_t i = 0;
  for (int d = 0; d < shape.ndim(); ++d) i = i * shape[d] + position[size_t(d)];
  return i;
}

inline void permute(OutView y, View x, kernels::Permutation p) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto to = position_of(y.shape, i);
    std::array<int64_t, kMaxDims> from{};
    for (int d = 0; d < y.shape.ndim(); ++d) from[size_t(p[size_t(d)])] = to[size_t(d)];
    put_element(y, i, x, element_at(x.shape, from));
  }
}

inline void narrow(OutView y, View x, int dim, int64_t start) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = position_of(y.shape, i);
    position[size_t(dim)] += start;
    put_element(y, i, x, element_at(x.shape, position));
  }
}

inline void paste(OutView y, View x, int dim, int64_t start) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto position = position_of(x.shape, i);
    position[size_t(dim)] += start;
    put_element(y, element_at(y.shape, position), x, i);
  }
}

inline void narrow_backward(OutView dx, View dy, int dim, int64_t start) {
  if (dx.beta == 0) std::fill_n(dx.as<char>(), dx.bytes(), 0);
  paste(dx, dy, dim, start);
}

inline void index_select(OutView y, View x, View index, int dim) {
  Around to(y.shape, dim), from(x.shape, dim);
  for (int64_t o = 0; o < to.outer; ++o)
    for (int64_t e = 0; e < to.extent; ++e)
      for (int64_t i = 0; i < to.inner; ++i) put_element(y, to.at(o, e, i), x, from.at(o, get_integer(index, e), i));
}

inline void index_add(OutView y, View x, View index, int dim) {
  std::vector<int64_t> to;
  for (int64_t i = 0; i < x.numel(); ++i) {
    auto position = position_of(x.shape, i);
    position[size_t(dim)] = get_integer(index, position[size_t(dim)]);
    to.push_back(element_at(y.shape, position));
  }
  add_elements(y, x, to);
}

inline void gather(OutView y, View x, View index, int dim) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = position_of(y.shape, i);
    position[size_t(dim)] = get_integer(index, i);
    put_element(y, i, x, element_at(x.shape, position));
  }
}

inline void scatter_add(OutView y, View src, View index, int dim) {
  std::vector<int64_t> to;
  for (int64_t i = 0; i < src.numel(); ++i) {
    auto position = position_of(src.shape, i);
    position[size_t(dim)] = get_integer(index, i);
    to.push_back(element_at(y.shape, position));
  }
  add_elements(y, src, to);
}

inline void scatter(OutView y, View src, View index, int dim) {
  if (int64_t row = index.numel() ? src.numel() / index.numel() : 1; row > 1) {
    for (int64_t i = 0; i < src.numel(); ++i) put_element(y, get_integer(index, i / row) * row + i % row, src, i);
    return;
  }
  for (int64_t i = 0; i < src.numel(); ++i) {
    auto position = position_of(src.shape, i);
    position[size_t(dim)] = get_integer(index, i);
    put_element(y, element_at(y.shape, position), src, i);
  }
}

inline void flip(OutView y, View x, unsigned dims) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = position_of(y.shape, i);
    for (int d = 0; d < y.shape.ndim(); ++d)
      if (dims >> d & 1) position[size_t(d)] = x.shape[d] - 1 - position[size_t(d)];
    put_element(y, i, x, element_at(x.shape, position));
  }
}

inline void triangle(OutView y, View x, int64_t diagonal, bool lower) {
  size_t size = size_of(y.dtype);
  for (int64_t i = 0; i < y.numel(); ++i) {
    auto position = position_of(y.shape, i);
    int64_t number = position[size_t(y.shape.ndim() - 1)] - position[size_t(y.shape.ndim() - 2)];
    if (lower ? number <= diagonal : number >= diagonal)
      put_element(y, i, x, i);
    else if (y.beta == 0)
      std::fill_n(y.as<char>() + size_t(i) * size, size, 0);
  }
}

inline void max_dim(OutView values, OutView index, View x, int dim, bool least) {
  Around from(x.shape, dim);
  for (int64_t o = 0; o < from.outer; ++o)
    for (int64_t i = 0; i < from.inner; ++i) {
      int64_t best = 0;
      for (int64_t e = 1; e < from.extent; ++e) {
        int64_t here = from.at(o, e, i), there = from.at(o, best, i);
        bool larger =
            is_floating(x.dtype) ? get(x, here) > get(x, there) : get_integer(x, here) > get_integer(x, there);
        bool smaller =
            is_floating(x.dtype) ? get(x, here) < get(x, there) : get_integer(x, here) < get_integer(x, there);
        if (std::isnan(get(x, there))) break;
        if ((least ? smaller : larger) || std::isnan(get(x, here))) best = e;
      }
      put_element(values, o * from.inner + i, x, from.at(o, best, i));
      put_integer(index, o * from.inner + i, best);
    }
}

inline void cumsum(OutView y, View x, int dim, bool reverse) {
  Around lines(x.shape, dim);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      double sum = 0;
      uint64_t integer_sum = 0;
      for (int64_t k = 0; k < lines.extent; ++k) {
        int64_t at = lines.at(o, reverse ? lines.extent - 1 - k : k, i);
        if (is_floating(x.dtype))
          put(y, at, sum += get(x, at));
        else
          put_integer(y, at, int64_t(integer_sum += uint64_t(get_integer(x, at))));
      }
    }
}

inline void prod(OutView y, View x, int dim) {
  Around lines(x.shape, dim);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i) {
      double product = 1;
      uint64_t integer_product = 1;
      for (int64_t e = 0; e < lines.extent; ++e)
        if (is_floating(x.dtype))
          product *= get(x, lines.at(o, e, i));
        else
          integer_product *= uint64_t(get_integer(x, lines.at(o, e, i)));
      if (is_floating(x.dtype))
        put(y, o * lines.inner + i, product);
      else
        put_integer(y, o * lines.inner + i, int64_t(integer_product));
    }
}

inline void prod_backward(OutView dx, View dy, View x, int dim) {
  Around lines(x.shape, dim);
  for (int64_t o = 0; o < lines.outer; ++o)
    for (int64_t i = 0; i < lines.inner; ++i)
      for (int64_t e = 0; e < lines.extent; ++e) {
        double others = 1;
        for (int64_t k = 0; k < lines.extent; ++k)
          if (k != e) others *= get(x, lines.at(o, k, i));
        put(dx, lines.at(o, e, i), get(dy, o * lines.inner + i) * others);
      }
}

inline void sort(OutView values, OutView index, View x, int dim, bool descending) {
  Around from(x.shape, dim), to(values.shape, dim);
  for (int64_t o = 0; o < from.outer; ++o)
    for (int64_t i = 0; i < from.inner; ++i) {
      std::vector<int64_t> order(static_cast<size_t>(from.extent));
      for (size_t e = 0; e < order.size(); ++e) order[e] = int64_t(e);
      std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
        if (descending) std::swap(a, b);
        int64_t p = from.at(o, a, i), q = from.at(o, b, i);
        if (!is_floating(x.dtype)) return get_integer(x, p) < get_integer(x, q);
        return get(x, p) < get(x, q) || (std::isnan(get(x, q)) && !std::isnan(get(x, p)));
      });
      for (int64_t e = 0; e < to.extent; ++e) {
        put_element(values, to.at(o, e, i), x, from.at(o, order[size_t(e)], i));
        put_integer(index, to.at(o, e, i), order[size_t(e)]);
      }
    }
}

}  // namespace shardgrad::reference
