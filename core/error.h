#pragma once
// Errors are exceptions; the library never calls exit or abort. A message says what was wrong (operation, shapes,
// names), and what to do. The kind becomes the exit code of a program's top level.

#include <cstddef>
#include <ostream>
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

namespace detail {

/// A part of a message: where it is and how it is written. Calls with the same number of parts share their code,
/// whatever the lengths of their literals: there are more than a thousand.
struct Part {
  const void* value;
  void (*put)(std::ostream&, const void*);
};

template <class T> void put(std::ostream& out, const void* value) {
  const T& part = *static_cast<const T*>(value);
  if constexpr (requires { describe(part); })
    out << describe(part);
  else
    out << part;
}
void put_text(std::ostream& out, const void* text);

template <class T> Part part_of(const T& value) { return {&value, put<T>}; }
inline Part part_of(const char* text) { return {text, put_text}; }
using Manipulator = std::ios_base& (*)(std::ios_base&);  // std::hex and its like
void put_manipulator(std::ostream& out, const void* manipulator);
inline Part part_of(Manipulator manipulator) { return {reinterpret_cast<const void*>(manipulator), put_manipulator}; }

std::string joined(const Part* parts, std::size_t count);
[[noreturn, gnu::cold]] void throw_error(ErrorKind kind, const Part* parts, std::size_t count);

}  // namespace detail

/// Streams every part into one string, numbers as in C: concat("matmul: ", a.shape(), " x ", b.shape()). What has a
/// short description for messages (a tensor) is described.
template <class... Parts> std::string concat(const Parts&... parts) {
  const detail::Part all[] = {detail::part_of(parts)...};
  return detail::joined(all, sizeof...(Parts));
}

/// Throws Error(input) with the concatenated parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  const detail::Part all[] = {detail::part_of(parts)...};
  detail::throw_error(ErrorKind::input, all, sizeof...(Parts));
}

/// Throws Error(kind) with the concatenated parts.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail_as(ErrorKind kind, const Parts&... parts) {
  const detail::Part all[] = {detail::part_of(parts)...};
  detail::throw_error(kind, all, sizeof...(Parts));
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
