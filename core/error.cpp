#include <shardgrad/core/error.h>

#include <locale>
#include <sstream>

namespace shardgrad::detail {

void put_text(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }

void put_manipulator(std::ostream& out, const void* manipulator) {
  out << reinterpret_cast<Manipulator>(const_cast<void*>(manipulator));
}

std::string joined(const Part* parts, std::size_t count) {
  std::ostringstream out;
  out.imbue(std::locale::classic());  // whatever the program's is: paths and messages are made of this, too
  for (std::size_t i = 0; i < count; ++i) parts[i].put(out, parts[i].value);
  return std::move(out).str();
}

void throw_error(ErrorKind kind, const Part* parts, std::size_t count) { throw Error(kind, joined(parts, count)); }

}  // namespace shardgrad::detail
