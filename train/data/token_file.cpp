#include <shardgrad/train/data/token_file.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

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

template <class T> void widen_each(const std::byte* from, std::span<int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    T id;
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    ids[i] = id;
  }
}

}  // namespace

TokenFile::TokenFile(std::string path, int token_bytes) : file_(std::move(path)), bytes_(token_bytes) {
  SG_CHECK(token_bytes == 2 || token_bytes == 4, "token_bytes is ", token_bytes, "; tokens have 2 or 4 bytes");
  SG_CHECK(file_.size() > 0, "'", this->path(), "' is empty; it must hold the numbers of tokens");
  read_header();
  int64_t rest = file_.size() - begin_;
  SG_CHECK(rest % bytes_ == 0, "'", this->path(), "' holds ", rest, " bytes of tokens, which is no multiple of ",
           bytes_, ", the bytes of a token: it is truncated, or of another kind");
  count_ = rest / bytes_;
  file_.hold_if_small();
}

void TokenFile::read_header() {
  if (file_.size() < kLlmcHeaderBytes) return;
  LlmcHeader header;
  file_.read(&header, 0, sizeof header);
  auto kind = std::ranges::find(kLlmcKinds, header.magic, &LlmcKind::magic);
  if (kind == kLlmcKinds.end()) return;
  SG_CHECK(header.version == kind->version, "'", path(), "' has llm.c's header of version ", header.version, "; ",
           kind->version, " can be read");
  begin_ = kLlmcHeaderBytes;
  bytes_ = kind->token_bytes;
  SG_CHECK(header.count == (file_.size() - begin_) / bytes_, "'", path(), "' announces ", header.count, " tokens, and ",
           (file_.size() - begin_) / bytes_, " are there: it is truncated, or damaged");
}

void TokenFile::widen(const std::byte* from, std::span<int64_t> ids) const {
  bytes_ == 2 ? widen_each<uint16_t>(from, ids) : widen_each<uint32_t>(from, ids);
}

void TokenFile::read(int64_t begin, std::span<int64_t> ids) const {
  std::vector<std::byte> bytes(ids.size() * size_t(bytes_));
  file_.read(bytes.data(), begin_ + begin * bytes_, std::ssize(bytes));
  widen(bytes.data(), ids);
}

TokenFile::Scan TokenFile::scan(int64_t begin, int64_t end, int64_t vocabulary) const {
  Scan result;
  uLong sum = crc32(0, nullptr, 0);
  std::vector<int64_t> ids;
  int64_t at = begin;
  for_each_block(file_, begin_ + begin * bytes_, begin_ + end * bytes_, [&](std::span<const std::byte> block) {
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(block.data()), block.size());
    ids.resize(block.size() / size_t(bytes_));
    widen(block.data(), ids);
    auto largest = std::ranges::max_element(ids);
    SG_CHECK(vocabulary == 0 || *largest < vocabulary, "'", path(), "': token ", at + (largest - ids.begin()), " is ",
             *largest, ", and the vocabulary has ", vocabulary, " ids; set vocabulary as the tokenizer has it");
    result.largest = std::max(result.largest, *largest);
    at += std::ssize(ids);
  });
  result.checksum = sum;
  return result;
}

}  // namespace shardgrad::data
