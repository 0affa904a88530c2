#pragma once
// What the program of every rung has in common: it says what it counted, by which scripts/learn grades predictions.
//
//     int main(int count, char** words) {
//       return learn::run(count, words, [](learn::Rung& rung) {
//         …
//         rung.count("optimizer_bytes", ledger.current(Category::optimizer_state));
//         rung.term("W", world.size());
//       });
//     }
//
//     PROGRAM [--report FOLDER]

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include <shardgrad/core/error.h>

namespace learn {

class Rung {
 public:
  Rung(int count, char** words) {
    SG_CHECK(count == 1 || (count == 3 && std::string_view(words[1]) == "--report"), "usage: ", words[0],
             " [--report FOLDER]");
    if (count == 3) folder_ = words[2];
  }
  /// What a learner predicts, as it was measured: bytes, calls, seconds. By one thread, as all that follows.
  void count(const std::string& name, double measured) { counters_[name] = measured; }
  /// A number of this run that formulas in rung.json are made of.
  void term(const std::string& name, double value) { terms_[name] = value; }
  /// Throws Error(input) that says `wrong`, unless what the rung's reader wrote does what it should.
  void require(bool right, const std::string& wrong) const { SG_CHECK(right, wrong); }
  /// What to look at afterwards, drawn by picture/.
  void picture(std::string svg) { picture_ = std::move(svg); }
  /// counters.json and picture.svg in the folder of --report, which is there.
  void write() const {
    if (folder_.empty()) return;
    std::ofstream(folder_ + "/counters.json")
        << "{\n  \"counters\": " << object(counters_) << ",\n  \"terms\": " << object(terms_) << "\n}\n";
    if (!picture_.empty()) std::ofstream(folder_ + "/picture.svg") << picture_;
  }

 private:
  static std::string object(const std::map<std::string, double>& numbers) {
    std::string text;
    for (const auto& [name, value] : numbers) {
      char number[32];
      std::snprintf(number, sizeof number, "%.17g", value);
      text += (text.empty() ? "{\"" : ", \"") + name + "\": " + number;
    }
    return text.empty() ? "{}" : text + "}";
  }
  std::string folder_, picture_;
  std::map<std::string, double> counters_, terms_;
};

/// Runs a rung's body and writes what it reports; what it throws is the last line, and its kind the exit code.
template <class Body> int run(int count, char** words, Body body) try {
  Rung rung(count, words);
  body(rung);
  rung.write();
  return 0;
} catch (const sg::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return int(error.kind());
}

}  // namespace learn
