#pragma once
// Where in the source: what reports name.

#include <deque>
#include <string>

#include <shardgrad/kernels/sim/shadow.h>
#include <shardgrad/kernels/sim/source_line.h>

namespace shardgrad::sim {

/// Numbers for source lines, so that they fit where instruction addresses do.
class Places {
 public:
  Code code_of(const SourceLine& line) {
    bool again = recent_ < lines_.size() && is_at(lines_[recent_], line);  // as the threads before this one
    return kLine | (again ? recent_ : recent_ = number_of(line));
  }
  /// "file.cu:31", for code inlined from elsewhere "reduce.h:12, from softmax.cu:31". Instructions are looked up with
  /// addr2line in the program's debug information; where that is missing, the function's name and offset.
  std::string describe(Code code) const;

 private:
  static constexpr Code kLine = Code(1) << 63;
  static bool is_at(const SourceLine& a, const SourceLine& b) { return a.line == b.line && a.file == b.file; }
  size_t number_of(const SourceLine& line);
  std::deque<SourceLine> lines_;
  size_t recent_ = 0;
};

/// The name of a function that stands in "… [Kernel = name]", without our namespaces.
std::string kernel_name(const std::string& pretty);
/// A template's name without its arguments.
inline std::string base_name(const std::string& kernel) { return kernel.substr(0, kernel.find('<')); }

}  // namespace shardgrad::sim
