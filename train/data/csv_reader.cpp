#include <shardgrad/train/data/csv_reader.h>

#include <algorithm>

#include <shardgrad/core/error.h>

namespace shardgrad::data {
namespace {

constexpr size_t kLongestRecord = size_t(16) << 20;

bool may_be_delimiter(char c) {
  bool text = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || uint8_t(c) >= 0x80;
  return !text && std::string_view("\"+-.\n\r\0", 7).find(c) == std::string_view::npos;
}

}  // namespace

template <class... Parts> void CsvReader::refuse(int64_t line, const Parts&... parts) const {
  fail("'", path(), "', line ", line, ": ", parts...);
}

CsvReader::CsvReader(const DataFile& file, char delimiter) : file_(file), delimiter_(delimiter) {
  bool visible = delimiter > ' ' && delimiter <= '~';
  SG_CHECK(may_be_delimiter(delimiter), "delimiter is ", visible ? concat("'", delimiter, "'") : "a sign",
           " that may be a part of a cell; it is one sign between cells, such as ',' ';' '|' or a tab");
  skip_byte_order_mark();
}

int CsvReader::peek() {
  if (at_ == block_.size()) {
    int64_t count = std::min(kBlock, file_.size() - next_block_);
    if (count == 0) return kEnd;
    block_.resize(size_t(count));
    file_.read(block_.data(), next_block_, count);
    next_block_ += count;
    at_ = 0;
  }
  return uint8_t(block_[at_]);
}

int CsvReader::take() {
  int c = peek();
  at_ += c != kEnd;
  return c;
}

void CsvReader::skip_byte_order_mark() {
  peek();
  std::string_view begin = block_;
  if (begin.starts_with("\xff\xfe") || begin.starts_with("\xfe\xff"))
    refuse(1, "the text is in UTF-16; save it in UTF-8");
  if (begin.starts_with("\xef\xbb\xbf")) at_ = 3;
}

bool CsvReader::next() {
  do {
    text_.clear();
    ends_.clear();
    line_ = next_line_;
    if (peek() == kEnd) return false;
    while (read_cell()) {
    }
  } while (ends_.size() == 1 && text_.empty());
  return true;
}

std::string_view CsvReader::operator[](size_t cell) const {
  size_t begin = cell == 0 ? 0 : ends_[cell - 1];
  return std::string_view(text_).substr(begin, ends_[cell] - begin);
}

// Whether the record has another one.
bool CsvReader::read_cell() {
  skip_spaces();
  if (peek() == '"')
    read_quoted();
  else
    read_plain();
  ends_.push_back(text_.size());
  check_length();
  int end = take();
  if (end == delimiter_) return true;
  end_line(end);
  return false;
}

void CsvReader::skip_spaces() {
  while (is_space(peek())) take();
}

void CsvReader::read_plain() {
  size_t begin = text_.size();
  while (!is_cell_end(peek())) {
    int c = take();
    if (c == '"')
      refuse(next_line_, "there is a quote within a cell; a cell with quotes is written in quotes, each of them twice");
    add(c);
  }
  while (text_.size() > begin && is_space(text_.back())) text_.pop_back();
}

void CsvReader::read_quoted() {
  int64_t line = next_line_;
  take();
  for (;;) {
    int c = take();
    if (c == kEnd) refuse(line, "the quote of a cell is not closed before the end of the file");
    if (c == '"' && peek() != '"') break;
    if (c == '"') take();
    add(c);
    end_line(c);
  }
  skip_spaces();
  if (!is_cell_end(peek()))
    refuse(next_line_, "after the closing quote of a cell there is more; quotes within quotes are written twice");
}

void CsvReader::add(int c) {
  if (c == 0) refuse(next_line_, "there is a NUL byte, which no text has");
  text_.push_back(char(c));
  check_length();
}

void CsvReader::check_length() const {
  if (text_.size() + ends_.size() > kLongestRecord)
    refuse(line_, "the record that begins here has more than ", kLongestRecord,
           " characters; this is no CSV file, or a quote is not closed");
}

// Counts a line end; CRLF at its LF.
void CsvReader::end_line(int c) { next_line_ += c == '\n' || (c == '\r' && peek() != '\n'); }

}  // namespace shardgrad::data
