#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include <shardgrad/core/error.h>
#include <shardgrad/train/text/pattern.h>
#include <shardgrad/train/text/utf8.h>

namespace shardgrad::text {
namespace {

std::string reason_of(int code) {
  std::array<PCRE2_UCHAR, 256> reason{};
  pcre2_get_error_message(code, reason.data(), reason.size());
  return reinterpret_cast<const char*>(reason.data());
}

using Freed = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;

Freed compile(const std::string& pattern) {
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  std::string translated = to_pcre2(pattern);
  Freed code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get()),
      pcre2_code_free);
  SG_CHECK(code, "its pattern '", pattern, "' cannot be read: ", reason_of(error), " at byte ", at, " of '", translated,
           "'");
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // where the machine has it; the same matches without
  return code;
}

}  // namespace

struct Pattern::Compiled {
  Freed code;
};

Pattern::Pattern(const std::string& pattern) : compiled_(new Compiled{compile(pattern)}) {}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
bool Pattern::available() { return true; }

void Pattern::for_each(std::string_view text, const std::function<void(size_t begin, size_t end)>& call) const {
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(found.get());
  size_t last = std::string_view::npos;  // where the last match ended
  for (size_t begin = 0; begin < text.size();) {
    std::string_view valid = text.substr(begin, valid_utf8(text.substr(begin)));
    for (size_t at = 0; at < valid.size();) {
      int code = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(valid.data()), valid.size(), at,
                             PCRE2_NO_UTF_CHECK, found.get(), nullptr);
      if (code == PCRE2_ERROR_NOMATCH) break;
      SG_CHECK(code >= 0, "the tokenizer's pattern failed at byte ", begin + at, " of a text of ", text.size(), ": ",
               reason_of(code));
      if (place[1] == place[0] && begin + place[1] == last) {
        at += utf8_step(valid.substr(at)).length;
        continue;
      }
      call(begin + place[0], begin + place[1]);
      at = place[1];
      last = begin + at;
    }
    begin += valid.size();
    if (begin < text.size()) begin += utf8_step(text.substr(begin)).length;
  }
}

}  // namespace shardgrad::text
