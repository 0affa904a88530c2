// Tensors in text: describe() for messages, to_string() in one line, operator<< as NumPy's array2string prints arrays.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include <shardgrad/core/tensor.h>

namespace shardgrad {
namespace {

constexpr int64_t kEdge = 3, kShortened = 1000;  // as NumPy's edgeitems and threshold
constexpr size_t kLine = 75;
constexpr int kPrecision = 8;

/// The number with the fewest digits that gives this one again.
template <class T> double shortest(double value) {
  char text[32];
  double number = value;
  for (int digits = 0; std::isfinite(value); ++digits) {
    auto [end, error] = std::to_chars(text, text + sizeof(text), value, std::chars_format::scientific, digits);
    std::from_chars(text, end, number);
    if (float(T(float(number))) == float(value)) break;
  }
  return number;
}

/// The values as doubles, or as integers.
struct Values {
  std::vector<double> numbers;
  std::vector<int64_t> integers;
  DType dtype;
  bool whole, narrow;  // narrow: a float has all of their digits
  explicit Values(const Tensor& x) : dtype(x.dtype()), whole(!is_floating(dtype)), narrow(dtype == DType::f32) {
    dispatch(x.dtype(), [&]<class T>() {
      for (T value : x.to_vector<T>()) {
        if constexpr (std::is_integral_v<T>)
          integers.push_back(value);
        else if constexpr (sizeof(T) == 2)
          numbers.push_back(double(float(value)));
        else
          numbers.push_back(value);
      }
    });
  }
  double number(int64_t i) const {
    double value = numbers[size_t(i)];
    return dtype == DType::f16 ? shortest<f16>(value) : dtype == DType::bf16 ? shortest<bf16>(value) : value;
  }
};

std::string to_chars(double value, bool narrow, std::chars_format format, int precision = -1) {
  char text[512];
  std::to_chars_result end{};
  if (precision >= 0)
    end = std::to_chars(text, text + sizeof(text), value, format, precision);
  else if (narrow)
    end = std::to_chars(text, text + sizeof(text), float(value), format);
  else
    end = std::to_chars(text, text + sizeof(text), value, format);
  return std::string(text, end.ptr);
}

/// The shortest digits that tell the number, at most kPrecision behind the point, which is always there.
std::string fixed(double value, bool narrow) {
  std::string text = to_chars(value, narrow, std::chars_format::fixed);
  size_t point = text.find('.');
  if (point == std::string::npos) return text + ".";
  if (text.size() - point - 1 > size_t(kPrecision)) text = to_chars(value, false, std::chars_format::fixed, kPrecision);
  text.erase(std::max(text.find_last_not_of('0'), point) + 1);
  return text;
}

/// The digits before the exponent, and the exponent.
std::pair<std::string, std::string> scientific(double value, bool narrow) {
  std::string text = to_chars(value, narrow, std::chars_format::scientific);
  size_t e = text.find('e');
  if (text.find('.') != std::string::npos && e > text.find('.') + 1 + size_t(kPrecision)) {
    text = to_chars(value, false, std::chars_format::scientific, kPrecision);
    e = text.find('e');
  }
  std::string digits = text.substr(0, e);
  if (digits.find('.') == std::string::npos) digits += '.';
  return {digits, text.substr(e)};
}

/// What stands before the point, from the point on, and behind the digits.
struct Parts {
  std::string before, after, exponent;
  bool is_number = true;
  size_t size() const { return before.size() + after.size() + exponent.size(); }
};

/// How all shown elements are written: one width, the points below each other.
class Style {
 public:
  Style(const Values& values, const std::vector<int64_t>& shown) : values_(values) {
    if (!values.whole) scientific_ = needs_exponents(shown);
    size_t widest_word = 0;
    for (int64_t i : shown) {
      Parts p = parts(i);
      if (!p.is_number) widest_word = std::max(widest_word, p.size());
      if (!p.is_number) continue;
      before_ = std::max(before_, p.before.size());
      after_ = std::max(after_, p.after.size());
      exponent_ = std::max(exponent_, p.exponent.size());
    }
    size_t rest = after_ + exponent_;
    before_ = std::max(before_, widest_word > rest ? widest_word - rest : 0);
  }
  std::string operator()(int64_t i) const {
    Parts p = parts(i);
    if (!p.is_number) return std::string(before_ + after_ + exponent_ - p.size(), ' ') + p.before;
    std::string fill(after_ - p.after.size(), scientific_ ? '0' : ' ');
    if (scientific_) p.exponent.insert(2, exponent_ - p.exponent.size(), '0');
    return std::string(before_ - p.before.size(), ' ') + p.before + p.after + fill + p.exponent;
  }

 private:
  bool needs_exponents(const std::vector<int64_t>& shown) const {
    double largest = 0, smallest = INFINITY;
    for (int64_t i : shown) {
      double size = std::abs(values_.number(i));
      if (!std::isfinite(size) || size == 0) continue;
      largest = std::max(largest, size), smallest = std::min(smallest, size);
    }
    return largest > 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
  }
  Parts parts(int64_t i) const {
    if (values_.whole) return {std::to_string(values_.integers[size_t(i)]), "", ""};
    double value = values_.number(i);
    if (std::isnan(value)) return {"nan", "", "", false};
    if (std::isinf(value)) return {value < 0 ? "-inf" : "inf", "", "", false};
    std::string text, exponent;
    if (scientific_)
      std::tie(text, exponent) = scientific(value, values_.narrow);
    else
      text = fixed(value, values_.narrow);
    size_t point = text.find('.');
    return {text.substr(0, point), text.substr(point), exponent};
  }
  const Values& values_;
  bool scientific_ = false;
  size_t before_ = 0, after_ = 0, exponent_ = 0;
};

class Printer {
 public:
  Printer(const Tensor& x, const Values& values)
      : shape_(x.shape()), short_(x.numel() > kShortened), style_(values, shown(0, 0, x.numel())) {}
  std::string text() {
    std::string all = print(0, 0, shape_.numel());
    return shape_.ndim() == 0 && all.back() == '.' ? all + "0" : all;  // a scalar as Python writes it
  }

 private:
  bool skips(int dim) const { return short_ && shape_[dim] > 2 * kEdge; }
  template <class Visit> void visit_kept(int dim, const Visit& visit) const {
    for (int64_t i = 0; i < shape_[dim]; ++i) {
      if (skips(dim) && i == kEdge) i = shape_[dim] - kEdge;
      visit(i);
    }
  }
  std::vector<int64_t> shown(int dim, int64_t offset, int64_t count) const {
    if (dim == shape_.ndim()) return {offset};
    std::vector<int64_t> all;
    int64_t step = shape_[dim] ? count / shape_[dim] : 0;
    visit_kept(dim, [&](int64_t i) {
      std::vector<int64_t> part = shown(dim + 1, offset + i * step, step);
      all.insert(all.end(), part.begin(), part.end());
    });
    return all;
  }
  std::string print(int dim, int64_t offset, int64_t count) {
    if (dim == shape_.ndim()) return style_(offset);
    int64_t step = shape_[dim] ? count / shape_[dim] : 0;
    return dim + 1 == shape_.ndim() ? row(dim, offset) : rows(dim, offset, step);
  }
  std::string row(int dim, int64_t offset) {
    std::string text = "[", margin(size_t(dim) + 1, ' ');
    size_t line = margin.size();
    auto add = [&](const std::string& word) {
      if (line > margin.size() && line + 1 + word.size() > kLine - 1 - size_t(dim)) {
        text += "\n" + margin;
        line = margin.size();
      } else if (line > margin.size()) {
        text += ' ', ++line;
      }
      text += word, line += word.size();
    };
    visit_kept(dim, [&](int64_t i) {
      if (skips(dim) && i == shape_[dim] - kEdge) add("...");
      add(style_(offset + i));
    });
    return text + "]";
  }
  std::string rows(int dim, int64_t offset, int64_t step) {
    std::string text = "[", gap(size_t(shape_.ndim() - dim - 1), '\n'), margin(size_t(dim) + 1, ' ');
    visit_kept(dim, [&](int64_t i) {
      if (i > 0) text += gap + margin;
      if (skips(dim) && i == shape_[dim] - kEdge) text += "..." + gap + margin;
      text += print(dim + 1, offset + i * step, step);
    });
    return text + "]";
  }
  Shape shape_;
  bool short_;
  Style style_;
};

void print_line(std::ostream& out, const Values& values, const Shape& shape, int dim, int64_t offset, int64_t stride) {
  if (dim == shape.ndim()) {
    if (values.whole)
      out << values.integers[size_t(offset)];
    else
      out << values.number(offset);
    return;
  }
  int64_t extent = shape[dim], step = extent ? stride / extent : 0;
  out << '[';
  for (int64_t i = 0; i < extent; ++i) {
    if (i) out << ", ";
    if (extent > 2 * kEdge + 1 && i == kEdge) {
      out << "..., ";
      i = extent - kEdge;
    }
    print_line(out, values, shape, dim + 1, offset + i * step, step);
  }
  out << ']';
}

}  // namespace

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  return concat(tensor.dtype(), tensor.shape(), " on ", tensor.device());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == kMeta || !tensor.storage()->readable()) return out << describe(tensor);
  if (tensor.numel() == 0) return out << "[] of " << tensor.shape();
  Values values(tensor);
  return out << Printer(tensor, values).text();
}

std::string to_string(const Tensor& tensor) {
  std::ostringstream out;
  print_line(out, Values(tensor), tensor.shape(), 0, 0, tensor.numel());
  return std::move(out).str();
}

}  // namespace shardgrad
