#include <shardgrad/core/error.h>
#include <shardgrad/train/text/pattern.h>

namespace shardgrad::text {

struct Pattern::Compiled {};

Pattern::Pattern(const std::string&) {
  fail_as(ErrorKind::missing,
          "it cuts texts by a pattern, and this build has no PCRE2: install libpcre2-dev and build again, or use the "
          "tokenizer bytes");
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
bool Pattern::available() { return false; }
void Pattern::for_each(std::string_view, const std::function<void(size_t, size_t)>&) const {}

}  // namespace shardgrad::text
