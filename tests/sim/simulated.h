#pragma once
// What tests of the simulator share: operands, and kernels that launch themselves and say what is to be reported.

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <shardgrad/core/error.h>
#include <shardgrad/kernels/sim/operands.h>

#include <source_folder.h>

namespace shardgrad::test {

/// A kernel with one fault. It gets 4096 zeros to write, and the numbers 1 to 4096 to read.
struct Faulty {
  const char* kernel;
  const char* thread;
  const char* says;
  void (*run)(float* y, const float* x);
  const char* block = "(0, 0, 0)";
  friend std::ostream& operator<<(std::ostream& out, const Faulty& faulty) { return out << faulty.kernel; }
};
std::span<const Faulty> faulty_kernels();  ///< in faulty.cu, where the lines at fault end in the comment "fault"
std::span<const Faulty> faulty_words();    ///< in faulty_words.cu

/// A correct kernel that looks as if it had a fault, and what it makes of element 5.
struct Tricky {
  const char* name;
  float fifth;
  void (*run)(float* y, const float* x);
  friend std::ostream& operator<<(std::ostream& out, const Tricky& tricky) { return out << tricky.name; }
};
std::span<const Tricky> tricky_kernels();  ///< in tricky.cu

/// 32 numbers; by_clang: as a kernel that was compiled with clang, else with gcc. In tricky.cu, too.
void run_copied(int* y, const int* x);
void run_copied(float* y, const float* x, bool by_clang);

void run_bounded(float* y, int bound, int threads);  ///< of 96 or 256; in faulty.cu

/// An operation that writes the first n elements; also in faulty_words.cu. in_part: it says so.
void run_doubled(OutView y, View x, int n, bool in_part);

/// Memory as an operation's operands have it: exactly as long as the elements.
template <class T> struct Operand {
  std::vector<T> values;
  explicit Operand(size_t n, T first = T(0)) : values(n) { std::iota(values.begin(), values.end(), first); }
  T* in(sim::Operands& operands) {
    operands.add(values.data(), values.size() * sizeof(T), false, "input");
    return values.data();
  }
  T* out(sim::Operands& operands) {
    DType dtype = std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, int> ? DType::i32 : DType::u8;
    operands.add(values.data(), values.size() * sizeof(T), true, "output", dtype);
    return values.data();
  }
};

inline std::string fault_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    return error.what();
  }
  return "no fault";
}

/// "sim/planted.cu:41" of the line that ends in "// fault" in this kernel.
inline std::string fault_line(const std::string& source, const std::string& kernel) {
  std::ifstream file(std::string(kSourceFolder) + "/tests/sim/" + source);
  bool inside = false;
  int number = 1;
  for (std::string line; std::getline(file, line); ++number) {
    if (line.find(" " + kernel + "(") != std::string::npos) inside = true;
    if (inside && line.ends_with("// fault")) return "sim/" + source + ":" + std::to_string(number);
  }
  return "no such kernel";
}

}  // namespace shardgrad::test
