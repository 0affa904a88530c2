#include <shardgrad/train/data/token_file.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include <shardgrad/core/error.h>

namespace shardgrad::data {
namespace {

// What llm.c writes before the tokens: 256 numbers of 4 bytes, of which the first three are these.
struct LlmcHeader {
  int32_t magic, version, count;
};
constexpr int64_t kLlmcHeaderBytes = 1024;
struct LlmcKind {
  int32_t magic, version;
  int64_t token_bytes;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds{{{20240520, 1, 2}, {20240801, 7, 4}}};  // of GPT-2's and Llama 3's tokens

}  // namespace

std::string llmc_header(int64_t count) {
  SG_CHECK(count <= std::numeric_limits<int32_t>::max(), count, " tokens are more than llm.c's header can count");
  LlmcHeader header{kLlmcKinds[1].magic, kLlmcKinds[1].version, int32_t(count)};
  std::string bytes(kLlmcHeaderBytes, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

std::shared_ptr<const TokenSource> open_tokens(const std::string& path, int token_bytes) {
  if (path.ends_with(".npy")) return std::make_shared<NpyTokens>(path);
  return std::make_shared<TokenFile>(path, token_bytes);
}

TokenFile::TokenFile(std::string path, int token_bytes) : file_(std::move(path)) {
  SG_CHECK(token_bytes == 2 || token_bytes == 4, "token_bytes is ", token_bytes, "; tokens have 2 or 4 bytes");
  SG_CHECK(file_.size() > 0, name(), " is empty; it must hold the numbers of tokens");
  element_ = token_bytes == 2 ? Element::u16 : Element::u32;
  read_header();
  int64_t rest = file_.size() - begin_, each = size_of(element_);
  SG_CHECK(rest % each == 0, name(), " holds ", rest, " bytes of tokens, which is no multiple of ", each,
           ", the bytes of a token: it is truncated, or of another kind");
  count_ = rest / each;
  file_.hold_if_small();
}

void TokenFile::read_header() {
  if (file_.size() < kLlmcHeaderBytes) return;
  LlmcHeader header;
  file_.read(&header, 0, sizeof header);
  auto kind = std::ranges::find(kLlmcKinds, header.magic, &LlmcKind::magic);
  if (kind == kLlmcKinds.end()) return;
  SG_CHECK(header.version == kind->version, name(), " has llm.c's header of version ", header.version, "; ",
           kind->version, " can be read");
  begin_ = kLlmcHeaderBytes;
  element_ = kind->token_bytes == 2 ? Element::u16 : Element::u32;
  int64_t there = (file_.size() - begin_) / kind->token_bytes;
  SG_CHECK(header.count == there, name(), " announces ", header.count, " tokens, and ", there,
           " are there: it is truncated, or damaged");
}

NpyTokens::NpyTokens(std::string path) : file_(std::move(path)) {
  SG_CHECK(file_.shape().ndim() == 1, name(), " has shape ", file_.shape(),
           "; the numbers of tokens lie in one dimension: save array.ravel()");
  SG_CHECK(!file_.is_floating() && file_.type() != NpyFile::Type::boolean, name(),
           " holds no integers; save array.astype('<u2') or '<u4'");
  switch (file_.type()) {
    case NpyFile::Type::u8:
      element_ = Element::u8;
      break;
    case NpyFile::Type::u16:
      element_ = Element::u16;
      break;
    case NpyFile::Type::u32:
      element_ = Element::u32;
      break;
    case NpyFile::Type::i32:
      element_ = Element::i32;
      break;
    default:
      element_ = Element::i64;
  }
  count_ = file_.rows();
}

}  // namespace shardgrad::data
