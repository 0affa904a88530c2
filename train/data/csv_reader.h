#pragma once
// The records of a CSV file (RFC 4180), one after the other: cells between delimiters, one record to a line. A cell in
// quotes may hold delimiters, line ends, and quotes, each written twice:
//
//     name, note
//     plank, "1,5 m
//     or 5"""
//
// has two records: name | note, and, from line 2 on, plank | 1,5 m↵or 5".
//
// Lines end with LF, CRLF or CR. Spaces around a cell do not count, unless they are within quotes. Empty lines and a
// byte order mark are skipped. Debian's libcsv knows no lines to point at, so this is our own.

#include <string>
#include <string_view>
#include <vector>

#include <shardgrad/train/data/data_file.h>

namespace shardgrad::data {

class CsvReader {
 public:
  /// Throws Error(input) for a delimiter that could be a part of a number or of a quoted cell.
  CsvReader(const DataFile& file, char delimiter);

  /// Goes to the next record; false at the end. Throws Error(input) with path and line for what is no CSV.
  bool next();
  size_t size() const { return ends_.size(); }
  /// A cell of the record; until the next one.
  std::string_view operator[](size_t cell) const;
  /// The line on which the record begins, from 1 on.
  int64_t line() const { return line_; }
  const std::string& path() const { return file_.path(); }

 private:
  static constexpr int kEnd = -1;
  int peek();
  int take();
  void skip_byte_order_mark();
  void skip_spaces();
  bool is_space(int c) const { return (c == ' ' || c == '\t') && c != delimiter_; }
  bool is_cell_end(int c) const { return c == delimiter_ || c == '\n' || c == '\r' || c == kEnd; }
  bool read_cell();
  void read_plain();
  void read_quoted();
  void add(int c);
  void check_length() const;
  void end_line(int c);
  template <class... Parts> [[noreturn]] void refuse(int64_t line, const Parts&... parts) const;

  const DataFile& file_;
  char delimiter_;
  std::string block_;
  size_t at_ = 0;           // within the block
  int64_t next_block_ = 0;  // byte of the file
  int64_t line_ = 0, next_line_ = 1;
  std::string text_;          // the record's cells without what is between them
  std::vector<size_t> ends_;  // of the cells within it
};

}  // namespace shardgrad::data
