// What a CSV file's records and cells are.

#include <shardgrad/train/data/csv_reader.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using Cells = std::vector<std::vector<std::string>>;

class CsvRecords : public ::testing::Test {
 protected:
  Cells read(const std::string& text, char delimiter = ',') {
    folder_.write("a.csv", text);
    data::DataFile file(folder_ / "a.csv");
    data::CsvReader reader(file, delimiter);
    Cells records;
    lines_.clear();
    while (reader.next()) {
      lines_.push_back(reader.line());
      records.emplace_back();
      for (size_t c = 0; c < reader.size(); ++c) records.back().emplace_back(reader[c]);
    }
    return records;
  }
  std::string refusal(const std::string& text, char delimiter = ',') {
    return error_of([&] { read(text, delimiter); });
  }

  TemporaryFolder folder_;
  std::vector<int64_t> lines_;
};

TEST_F(CsvRecords, CellsStandBetweenDelimiters) {
  EXPECT_EQ(read("a,b\n1,2\n"), (Cells{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(read("a;b,c\n", ';'), (Cells{{"a", "b,c"}}));
  EXPECT_EQ(read("a\tb c\n", '\t'), (Cells{{"a", "b c"}}));
  EXPECT_EQ(read("a,,\n"), (Cells{{"a", "", ""}}));
  EXPECT_EQ(read(""), Cells{});
}

TEST_F(CsvRecords, LinesEndInAnyWayAlsoTheLast) {
  for (const char* text :
       {"a,b\n1,2\n", "a,b\r\n1,2\r\n", "a,b\r1,2\r", "a,b\n1,2", "a,b\r\n1,2", "\n\na,b\n \n1,2\n\n"})
    EXPECT_EQ(read(text), (Cells{{"a", "b"}, {"1", "2"}})) << text;
}

TEST_F(CsvRecords, QuotedCellsHoldDelimitersLineEndsAndQuotes) {
  EXPECT_EQ(read("\"a,b\",\"say \"\"no\"\"\"\n"), (Cells{{"a,b", "say \"no\""}}));
  EXPECT_EQ(read("\"two\nlines\",\"\"\n"), (Cells{{"two\nlines", ""}}));
  EXPECT_EQ(read("name, note\nplank, \"1,5 m\nor 5\"\"\"\n"), (Cells{{"name", "note"}, {"plank", "1,5 m\nor 5\""}}));
}

TEST_F(CsvRecords, SpacesCountWithinQuotesOnly) {
  EXPECT_EQ(read(" a ,\t\" b \" ,c d \n"), (Cells{{"a", " b ", "c d"}}));
}

TEST_F(CsvRecords, AByteOrderMarkIsNoPartOfTheFirstCell) {
  EXPECT_EQ(read("\xef\xbb\xbf"
                 "a,b\n"),
            (Cells{{"a", "b"}}));
  EXPECT_THAT(refusal(std::string("\xff\xfe"
                                  "a\0,\0",
                                  6)),
              HasSubstr("UTF-16; save it in UTF-8"));
}

TEST_F(CsvRecords, ARecordKnowsTheLineOnWhichItBegins) {
  read("a\n\n\"b\nb\"\r\nc\r\rd\n");
  EXPECT_EQ(lines_, (std::vector<int64_t>{1, 3, 5, 7}));
}

TEST_F(CsvRecords, ARecordMayCrossTheBlocksThatAreRead) {
  std::string cell(700'000, 'x'), row = cell + ",\"" + cell + "\"\"" + cell + "\"\r\n";
  EXPECT_EQ(read(row + row), (Cells{{cell, cell + "\"" + cell}, {cell, cell + "\"" + cell}}));
}

TEST_F(CsvRecords, WhatIsNoCsvIsRefusedWithItsLine) {
  EXPECT_THAT(refusal("a,b\n1,\"2\n3,4\n"), HasSubstr("line 2: the quote of a cell is not closed"));
  EXPECT_THAT(refusal("a,b\n1,2\"\n"), HasSubstr("line 2: there is a quote within a cell"));
  EXPECT_THAT(refusal("a,b\n1,\"2\"3\n"), HasSubstr("line 2: after the closing quote of a cell there is more"));
  EXPECT_THAT(refusal(std::string("a,b\n1,\0\n", 8)), HasSubstr("line 2: there is a NUL byte"));
  EXPECT_THAT(refusal("a,b\n1,\"" + std::string(17 << 20, 'x')),
              HasSubstr("line 2: the record that begins here has more"));
  EXPECT_THAT(refusal(std::string(17 << 20, ',')), HasSubstr("line 1: the record that begins here has more"));
}

TEST_F(CsvRecords, ADelimiterIsNoPartOfACell) {
  for (char delimiter : {'"', '\n', '\r', '\0', '1', 'e', '.', '-', '+', '\xe4'})
    EXPECT_THAT(refusal("a\n", delimiter), HasSubstr("may be a part of a cell; it is one sign")) << int(delimiter);
}

}  // namespace
}  // namespace shardgrad
