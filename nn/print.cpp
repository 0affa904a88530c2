#include <set>

#include <shardgrad/nn/module.h>

namespace shardgrad::nn {
namespace {

std::string with_commas(int64_t n) {
  return n < 1000 ? std::to_string(n) : with_commas(n / 1000) + "," + std::to_string(1000 + n % 1000).substr(1);
}

class Printer {
 public:
  explicit Printer(std::ostream& out) : out_(out) {}
  void print(const Module& module, const std::string& margin) {
    out_ << module.type_name() << "(";
    const char* between = "";
    for (const auto& [name, parameter] : module.own_parameters()) {
      bool first = seen_.insert(parameter.get()).second;
      if (first) numbers_ += parameter->tensor.numel();
      out_ << between << name << " " << parameter->tensor.shape() << (first ? "" : " (shared)");
      between = ", ";
    }
    for (const auto& [name, child] : module.children()) {
      out_ << "\n" << margin << "  (" << name << "): ";
      print(*child, margin + "  ");
    }
    out_ << (module.children().empty() ? "" : "\n" + margin) << ")";
  }
  int64_t numbers() const { return numbers_; }

 private:
  std::ostream& out_;
  std::set<const Parameter*> seen_;
  int64_t numbers_ = 0;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const Module& module) {
  Printer printer(out);
  printer.print(module, "");
  return out << " with " << with_commas(printer.numbers()) << " parameters";
}

}  // namespace shardgrad::nn
