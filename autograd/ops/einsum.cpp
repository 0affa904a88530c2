// einsum by what there is: operands are joined two at a time, from the left, each time by one matmul, or by mul where
// nothing is summed. A dimension's name is a letter; those of "..." are digits, counted from the last one, by which
// they broadcast. What neither the result nor a later operand names is summed as early as can be.

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include <shardgrad/autograd/ops.h>

namespace shardgrad {
namespace {

constexpr std::string_view kDots = "...";

struct NamedOperand {
  Tensor x;
  std::string names;
};
using ExtentOf = std::map<char, int64_t>;

bool has(std::string_view names, char name) { return names.find(name) != std::string_view::npos; }

struct Equation {
  std::string text;
  std::vector<std::string> operands;
  std::optional<std::string> result;

  explicit Equation(std::string_view given) : text(given) {
    std::erase(text, ' ');
    size_t arrow = text.find("->");
    if (arrow != std::string::npos) result = text.substr(arrow + 2);
    std::string left = text.substr(0, arrow);
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = left.find(',', begin);
      operands.push_back(left.substr(begin, end - begin));
    }
  }
};

// The letters of a term, with the names of the `dots` dimensions that "..." stands for.
std::string expanded(const Equation& equation, std::string term, size_t dots) {
  std::string digits;
  for (size_t i = dots; i-- > 0;) digits += char('0' + i);
  size_t at = term.find(kDots);
  if (at != std::string::npos) term.replace(at, kDots.size(), digits);
  for (char c : term)
    SG_CHECK(std::isalpha(static_cast<unsigned char>(c)) || has(digits, c), "einsum: '", equation.text,
             "': dimensions have letters for names, and may begin or end with one '...'; '", c, "' is not possible");
  return term;
}

NamedOperand operand_of(const Equation& equation, size_t i, const Tensor& x) {
  const std::string& term = equation.operands[i];
  bool dots = term.find(kDots) != std::string::npos;
  size_t named = term.size() - (dots ? kDots.size() : 0), dims = size_t(x.ndim());
  SG_CHECK(dots ? named <= dims : named == dims, "einsum: '", equation.text, "' names ", named,
           " dimensions of operand ", i, ", which is ", x.shape());
  return {x, expanded(equation, term, dims - named)};
}

// Of one operand a name's extent may be 1 where another's is not.
ExtentOf extents_of(const std::vector<NamedOperand>& operands) {
  ExtentOf extents;
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t d = 0; d < operands[i].names.size(); ++d) {
      int64_t here = operands[i].x.size(int(d));
      auto [known, first] = extents.emplace(operands[i].names[d], here);
      SG_CHECK(first || here == known->second || here == 1 || known->second == 1, "einsum: dimension ", d,
               " of operand ", i, ", ", operands[i].x.shape(), ", is of extent ", here, ", and where its name '",
               operands[i].names[d], "' stands first it is ", known->second);
      if (known->second == 1) known->second = here;
    }
  return extents;
}

// What is named once, by the alphabet, after the dimensions of "...".
std::string usual_result(const std::vector<NamedOperand>& operands, const ExtentOf& extents) {
  std::string result;
  for (auto [name, extent] : extents) {
    std::ptrdiff_t times = 0;
    for (const NamedOperand& each : operands) times += std::ranges::count(each.names, name);
    if (std::isdigit(static_cast<unsigned char>(name)))
      result.insert(result.begin(), name);  // the last has number 0
    else if (times == 1)
      result += name;
  }
  return result;
}

std::string result_of(const Equation& equation, const std::vector<NamedOperand>& operands, const ExtentOf& extents) {
  if (!equation.result) return usual_result(operands, extents);
  auto is_digit = [](const auto& each) { return std::isdigit(static_cast<unsigned char>(each.first)); };
  std::string result = expanded(equation, *equation.result, size_t(std::ranges::count_if(extents, is_digit)));
  for (char name : result)
    SG_CHECK(extents.contains(name) && std::ranges::count(result, name) == 1, "einsum: '", equation.text,
             "': the result has '", name, "', which ",
             extents.contains(name) ? "it may have once only" : "no operand has");
  return result;
}

Tensor arranged(const NamedOperand& of, const std::string& names) {
  if (of.names == names) return of.x;
  std::vector<int> order;
  for (char name : names) order.push_back(int(of.names.find(name)));
  return permute(of.x, order);
}

// The dimensions i and j as one, which is last.
NamedOperand with_diagonal(const NamedOperand& of, size_t i, size_t j) {
  int64_t n = of.x.size(int(i));
  SG_CHECK(of.x.size(int(j)) == n, "einsum: '", of.names[i], "' is named twice of ", of.x.shape(),
           ", whose extents there differ");
  std::vector<int> order;
  std::vector<int64_t> dims;
  std::string names;
  for (size_t d = 0; d < of.names.size(); ++d)
    if (d != i && d != j) order.push_back(int(d)), dims.push_back(of.x.size(int(d))), names += of.names[d];
  order.insert(order.end(), {int(i), int(j)});
  dims.push_back(n * n);
  return {slice(reshape(permute(of.x, order), dims), -1, 0, n * n, n + 1), names + of.names[i]};
}
NamedOperand with_diagonals(NamedOperand of) {
  for (size_t i = 0; i < of.names.size();) {
    size_t other = of.names.find(of.names[i], i + 1);
    if (other == std::string::npos)
      ++i;
    else
      of = with_diagonal(of, i, other), i = 0;
  }
  return of;
}

NamedOperand without_ones(NamedOperand of, const ExtentOf& extents) {
  for (size_t d = of.names.size(); d-- > 0;)
    if (of.x.size(int(d)) == 1 && extents.at(of.names[d]) != 1) {
      of.x = squeeze(of.x, int(d));
      of.names.erase(d, 1);
    }
  return of;
}

NamedOperand summed_to(const NamedOperand& of, std::string_view kept) {
  std::vector<int> dims;
  std::string names;
  for (size_t d = 0; d < of.names.size(); ++d)
    if (has(kept, of.names[d]))
      names += of.names[d];
    else
      dims.push_back(int(d));
  return dims.empty() ? of : NamedOperand{sum(of.x, std::span<const int>(dims)), names};
}

// The dimensions of two operands: those of both that stay, those of both that are summed, and those of one alone.
struct Join {
  std::string batch, inner, left, right;
  const ExtentOf& extents;

  Join(const std::string& a, const std::string& b, std::string_view kept, const ExtentOf& all) : extents(all) {
    for (char name : a) (!has(b, name) ? left : has(kept, name) ? batch : inner) += name;
    for (char name : b)
      if (!has(a, name)) right += name;
  }
  int64_t count(const std::string& names) const {
    int64_t product = 1;
    for (char name : names) product *= extents.at(name);
    return product;
  }
  Tensor matrices(const NamedOperand& of, const std::string& rows, const std::string& columns) const {
    Tensor x = arranged(of, batch + rows + columns);
    if (batch.empty()) return reshape(x, {count(rows), count(columns)});
    return reshape(x, {count(batch), count(rows), count(columns)});
  }
  Tensor products(const NamedOperand& a, const NamedOperand& b) const {
    if (inner.empty()) return mul(matrices(a, left, ""), matrices(b, "", right));
    SG_CHECK(is_floating(a.x.dtype()), "einsum: products of ", a.x.dtype(), " are not summed; convert with .to(dtype)");
    bool trans_a = !left.empty() && a.names == batch + inner + left;
    bool trans_b = !right.empty() && b.names == batch + right + inner;
    return matmul(trans_a ? matrices(a, inner, left) : matrices(a, left, inner),
                  trans_b ? matrices(b, right, inner) : matrices(b, inner, right), trans_a, trans_b);
  }
};

NamedOperand joined(const NamedOperand& left, const NamedOperand& right, const std::string& kept,
                    const ExtentOf& extents) {
  NamedOperand a = summed_to(left, kept + right.names), b = summed_to(right, kept + left.names);
  Join join(a.names, b.names, kept, extents);
  std::string names = join.batch + join.left + join.right;
  std::vector<int64_t> dims;
  for (char name : names) dims.push_back(extents.at(name));
  return {reshape(join.products(a, b), dims), names};
}

}  // namespace

Tensor einsum(std::string_view given, std::span<const Tensor> tensors) {
  Equation equation(given);
  SG_CHECK(equation.operands.size() == tensors.size(), "einsum: '", equation.text, "' is of ", equation.operands.size(),
           " operands, and ", tensors.size(), " are given");
  std::vector<NamedOperand> operands;
  for (size_t i = 0; i < tensors.size(); ++i) operands.push_back(operand_of(equation, i, tensors[i]));
  ExtentOf extents = extents_of(operands);
  std::string result = result_of(equation, operands, extents);
  for (NamedOperand& each : operands) each = without_ones(with_diagonals(std::move(each)), extents);
  NamedOperand all = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string kept = result;
    for (size_t later = i + 1; later < operands.size(); ++later) kept += operands[later].names;
    all = joined(all, operands[i], kept, extents);
  }
  return arranged(summed_to(all, result), result);
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span(operands.begin(), operands.size()));
}

}  // namespace shardgrad
