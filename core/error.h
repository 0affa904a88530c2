#pragma once
// Errors are exceptions; the library never calls exit or abort. A message says what was wrong (operation, shapes,
// names), and what to do. The kind becomes the exit code of a program's top level.

#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace shardgrad {

/// Why something failed. The values are the exit codes of the `shardgrad` program.
enum class ErrorKind {
  internal = 1,     ///< a broken invariant of this library: a bug
  input = 2,        ///< refused input: shapes, dtypes, configuration, data files
  missing = 3,      ///< a device or library that is not there
  rank_failed = 4,  ///< another rank failed; the message names it
};

/// The one exception type of the library.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Streams every part into one string, numbers as in C: concat("matmul: ", a.shape(), " x ", b.shape()). What has a
/// short description for messages (a tensor) is described.
template <class... Parts> std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // whatever the program's is: paths and messages are made of this, too
  auto put = [&](const auto& part) {
    if constexpr (requires { describe(part); })
      out << describe(part);
    else
      out << part;
  };
  (put(parts), ...);
  return std::move(out).str();
}

/// Throws Error(input) with the concatenated parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw Error(ErrorKind::input, concat(parts...));
}

/// Throws Error(kind) with the concatenated parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail_as(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

}  // namespace shardgrad

namespace sg = shardgrad;

/// Refuses wrong input; the message parts are only evaluated on failure.
#define SG_CHECK(condition, ...)      \
  do {                                \
    if (!(condition)) [[unlikely]]    \
      ::shardgrad::fail(__VA_ARGS__); \
  } while (0)

/// Guards an invariant of the library itself; a failure is a bug and says where.
#define SG_ASSERT(condition, ...)                                                                        \
  do {                                                                                                   \
    if (!(condition)) [[unlikely]]                                                                       \
      ::shardgrad::fail_as(::shardgrad::ErrorKind::internal, __FILE__, ":", __LINE__, ": ", __VA_ARGS__, \
                           " (this is a bug in shardgrad)");                                             \
  } while (0)
