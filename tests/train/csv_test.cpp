// Tables of numbers as training data.

#include <shardgrad/train/data/csv.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <thread>

#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/split.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::CsvData;
using data::CsvOptions;
using data::TargetKind;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Csv : public ::testing::Test {
 protected:
  CsvData read(const std::string& text) {
    folder_.write("a.csv", text);
    return data::read_csv(options_);
  }
  std::string refusal(const std::string& text) {
    return error_of([&] { read(text); });
  }
  // Rows "i,y" for i below `count` and what `y` makes of it.
  template <class Y> std::string table(int count, const Y& y) {
    std::string text = "x,y\n";
    for (int i = 0; i < count; ++i) text += concat(i, ',', y(i), '\n');
    return text;
  }

  Context context_;
  TemporaryFolder folder_;
  CsvOptions options_{.path = folder_ / "a.csv", .target = "y"};
};

std::vector<Tensor> all_of(const data::Dataset& dataset) {
  std::vector<int64_t> rows(size_t(dataset.size()));
  std::iota(rows.begin(), rows.end(), 0);
  return dataset.fetch(rows);
}

TEST_F(Csv, ColumnsBecomeInputsAndTheTarget) {
  options_.drop = {"town"};
  CsvData data = read("rooms,town,y,age\n1,Kiel,10,7\n2,Jena,20,5\n3,Bonn,30,5\n4,Ulm,40,2\n5,Hof,50,1\n6,Bonn,60,0\n");
  EXPECT_EQ(data.columns, (std::vector<std::string>{"rooms", "age"}));
  EXPECT_TRUE(data.classes.empty());
  std::vector<data::Field> fields{{{2}, DType::f32}, {{1}, DType::f32}};
  EXPECT_EQ(data.splits.train->fields(), fields);
  EXPECT_EQ(data.splits.train->size() + data.splits.test->size(), 6);
  for (const auto& part : {data.splits.train, data.splits.test}) {
    auto values = all_of(*part);
    auto inputs = values[0].to_vector<float>(), targets = values[1].to_vector<float>();
    const auto& [mean, scale] = part->input_transform();
    for (size_t i = 0; i < targets.size(); ++i)
      EXPECT_NEAR(inputs[2 * i] * scale[0] + mean[0], targets[i] / 10, 1e-5) << "rooms belong to their target";
  }
}

// Of the rows for training alone: what a model has seen must not depend on what it is tested with.
TEST_F(Csv, InputsAreStandardisedByTheTrainingRows) {
  CsvData data = read(table(200, [](int i) { return i; }));
  auto inputs = all_of(*data.splits.train)[0].to_vector<float>();
  double sum = 0, squares = 0;
  for (float x : inputs) {
    sum += x;
    squares += double(x) * x;
  }
  EXPECT_NEAR(sum / double(inputs.size()), 0, 1e-6);
  EXPECT_NEAR(squares / double(inputs.size()), 1, 1e-6);
  EXPECT_EQ(data.splits.test->input_transform(), data.splits.train->input_transform());
  double mean = 0, count = 0;
  for (int i = 0; i < 200; ++i)
    if (!data::is_test_row(0, i, 0.2)) {
      mean += i;
      ++count;
    }
  EXPECT_NEAR(data.splits.train->input_transform().mean[0], mean / count, 1e-9);
}

TEST_F(Csv, AConstantColumnBecomesZeros) {
  options_.target = "y";
  CsvData data = read("x,y\n" + [] {
    std::string rows;
    for (int i = 0; i < 50; ++i) rows += concat("0.1,", i, '\n');
    return rows;
  }());
  EXPECT_EQ(data.splits.train->input_transform(), (data::Standardisation{{0.1}, {1}}));
  for (float x : all_of(*data.splits.train)[0].to_vector<float>()) EXPECT_EQ(x, 0);
}

TEST_F(Csv, ARegressionsTargetIsStandardisedWhereAskedFor) {
  std::string text = table(100, [](int i) { return 1000 + i; });
  EXPECT_TRUE(read(text).target.mean.empty());
  options_.standardise_target = true;
  CsvData data = read(text);
  for (float y : all_of(*data.splits.train)[1].to_vector<float>()) {
    EXPECT_LT(std::abs(y), 2);
    double original = y * data.target.scale[0] + data.target.mean[0];
    EXPECT_NEAR(original, std::round(original), 1e-3);
  }
  options_.kind = TargetKind::classes;
  EXPECT_THAT(refusal(text), HasSubstr("standardise_target is for regression"));
}

TEST_F(Csv, ClassesAreTextsInOrder) {
  options_.kind = TargetKind::classes;
  CsvData data = read(table(60, [](int i) { return i % 3 == 0 ? "rose" : i % 3 == 1 ? "\"aster, blue\"" : "iris"; }));
  EXPECT_EQ(data.classes, (std::vector<std::string>{"aster, blue", "iris", "rose"}));
  std::vector<data::Field> fields{{{1}, DType::f32}, {{}, DType::i64}};
  EXPECT_EQ(data.splits.train->fields(), fields);
  auto values = all_of(*data.splits.train);
  auto inputs = values[0].to_vector<float>();
  auto labels = values[1].to_vector<int64_t>();
  const auto& [mean, scale] = data.splits.train->input_transform();
  const int64_t kExpected[] = {2, 0, 1};
  for (size_t i = 0; i < labels.size(); ++i)
    EXPECT_EQ(labels[i], kExpected[std::lround(inputs[i] * scale[0] + mean[0]) % 3]);
}

TEST_F(Csv, ClassesThatAreNumbersAreInOrderOfTheirValues) {
  options_.kind = TargetKind::classes;
  EXPECT_EQ(read(table(60, [](int i) { return 5 - i % 11; })).classes,
            (std::vector<std::string>{"-5", "-4", "-3", "-2", "-1", "0", "1", "2", "3", "4", "5"}));
  EXPECT_THAT(refusal(table(60, [](int i) { return i % 2 ? "1" : "1.0"; })), HasSubstr("are the same number"));
}

TEST_F(Csv, NumbersAreReadAlikeInAnyLocale) {
  const char* before = std::setlocale(LC_ALL, nullptr);
  std::string name = before ? before : "C";
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // where the system has it
  CsvData data = read("x,y\n+1.5,0\n -2e-1 ,0\n\"3\",0\n.5,0\n7.,0\n1e-30,0\n");
  std::setlocale(LC_ALL, name.c_str());
  std::vector<double> found;
  const auto& [mean, scale] = data.splits.train->input_transform();
  for (const auto& part : {data.splits.train, data.splits.test})
    for (float x : all_of(*part)[0].to_vector<float>()) found.push_back(x * scale[0] + mean[0]);
  std::ranges::sort(found);
  const double kExpected[] = {-0.2, 1e-30, 0.5, 1.5, 3, 7};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], kExpected[i], 1e-5);
}

TEST_F(Csv, WhichRowsAreTestedDependsOnSeedAndRowAlone) {
  auto rows_of = [&](int count) {
    std::vector<float> rows;
    CsvData data = read(table(count, [](int i) { return i; }));
    for (float y : all_of(*data.splits.test)[1].to_vector<float>())
      if (y < 100) rows.push_back(y);
    return rows;
  };
  std::vector<float> few = rows_of(100);
  EXPECT_EQ(rows_of(300), few) << "rows that are added change none before them";
  options_.seed = 1;
  EXPECT_NE(rows_of(100), few);
  int tested = 0;
  for (int row = 0; row < 10'000; ++row) tested += data::is_test_row(3, row, 0.2);
  EXPECT_NEAR(tested, 2000, 5 * 40) << "five standard deviations";
}

// bench/sklearn_mlp.py splits the same rows.
TEST_F(Csv, TheSplitOfSeedOneIsThis) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < 40; ++row)
    if (data::is_test_row(1, row, 0.2)) rows.push_back(row);
  EXPECT_EQ(rows, (std::vector<int64_t>{3, 8, 17, 30, 31, 34}));
}

// What stands in run.json of every run there is, which would not go on with another: worked out by another program.
TEST_F(Csv, TheFingerprintIsThatOfTheRunsThatThereAre) {
  options_.seed = 1;  // rows 3 and 8 are for the test
  std::string text = "x,y\n";
  for (int i = 0; i < 10; ++i) text += concat("7,", i, '\n');
  CsvData data = read(text);
  EXPECT_EQ(data.splits.train->fingerprint(), 2063550643u);
  EXPECT_EQ(data.splits.test->fingerprint(), 3133892726u);
}

TEST_F(Csv, TheFingerprintIsOfWhatIsTrainedOn) {
  auto fingerprints = [&](const std::string& text) {
    CsvData data = read(text);
    return std::pair(data.splits.train->fingerprint(), data.splits.test->fingerprint());
  };
  auto text = [&](int odd) { return table(50, [&](int i) { return i == 17 ? odd : i; }); };
  EXPECT_EQ(fingerprints(text(17)), fingerprints(text(17)));
  EXPECT_NE(fingerprints(text(17)), fingerprints(text(18)));
  auto before = fingerprints(text(17));
  options_.seed = 1;
  EXPECT_NE(fingerprints(text(17)), before);
}

TEST_F(Csv, TheTableIsOwnedAsDataInTheLedger) {
  int64_t before = context_.ledger().current(Category::data);
  CsvData data = read(table(50, [](int i) { return i; }));
  EXPECT_EQ(context_.ledger().current(Category::data) - before, 50 * 2 * 4);
}

TEST_F(Csv, ACellThatIsNoNumberIsRefusedWithItsPlaceAndTheRemedy) {
  for (auto [cell, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "the cell is empty; fill it in, leave the row out, or drop the column"},
           {"  ", "the cell is empty"},
           {"red", "'red' is no finite number (such as -1.5 or 2e3)"},
           {"NA", "'NA' is no finite number"},
           {"nan", "'nan' is no finite number"},
           {"-inf", "'-inf' is no finite number"},
           {"Infinity", "'Infinity' is no finite number"},
           {"0x10", "'0x10' is no finite number"},
           {"+-1", "'+-1' is no finite number"},
           {"++1", "'++1' is no finite number"},
           {"1 2", "'1 2' is no finite number"},
           {"\"1,5\"", "'1,5' is no finite number"},
           {"1e400", "1e400 is too large or too small for f32"},
           {"-1e39", "-1e39 is too large or too small for f32"},
           {"1e-400", "1e-400 is too large or too small for f32"}}) {
    std::string place = "'" + options_.path + "', line 3, column 'age': ";
    EXPECT_THAT(refusal("age,y\n1,2\n" + cell + ",3\n5,6\n"), AllOf(HasSubstr(place), HasSubstr(reason))) << cell;
  }
  EXPECT_THAT(refusal("age,y\n1,2\n3,four\n"), HasSubstr("line 3, column 'y': 'four' is no finite number"));
  EXPECT_THAT(refusal("age,y\n1,2\n" + std::string(5000, 'z') + ",3\n"), HasSubstr("… (5000 bytes)"));
  options_.kind = TargetKind::classes;
  EXPECT_THAT(refusal("age,y\n1,a\n2,\n"), HasSubstr("line 3, column 'y': the label is empty"));
  EXPECT_THAT(refusal("age,y\n1,gr\xfcn\n2,gr\xf6n\n"),
              HasSubstr("line 2, column 2: 'gr\xef\xbf\xbdn' is no UTF-8; save the file in UTF-8"));
  EXPECT_THAT(refusal("\xe4ge,y\n1,a\n2,b\n"), HasSubstr("line 1, column 1: '\xef\xbf\xbdge' is no UTF-8"));
}

TEST_F(Csv, ARowHasACellForEachColumn) {
  EXPECT_THAT(refusal("x,y\n1,2\n3\n"), HasSubstr("line 3: there are 1 cells, and 2 columns are named"));
  EXPECT_THAT(refusal("x,y\n1,2,3\n"), HasSubstr("line 2: there are 3 cells, and 2 columns are named"));
}

TEST_F(Csv, TheFirstLineNamesTheColumns) {
  EXPECT_THAT(refusal(""), HasSubstr("is empty; the first line must name the columns"));
  EXPECT_THAT(refusal("1,2\n3,4\n"), HasSubstr("line 1: the first line must name the columns, and has numbers: '1'"));
  EXPECT_EQ(read("2024,x,y\n1,7,1\n2,5,2\n3,5,3\n4,2,4\n5,1,5\n6,0,6\n").columns,
            (std::vector<std::string>{"2024", "x"}));
  EXPECT_THAT(refusal(",y\n1,2\n"), HasSubstr("line 1: column 1 of 2 has no name; give it one"));
  EXPECT_THAT(refusal("x,y,x\n1,2,3\n"), HasSubstr("line 1: columns 1 and 3 are both named 'x'"));
}

TEST_F(Csv, AColumnThatIsNotThereIsAnsweredWithTheNearest) {
  options_.target = "prize";
  EXPECT_THAT(refusal("rooms,price\n1,2\n"),
              HasSubstr("has no column 'prize' (the target); did you mean 'price'? Its columns are 'rooms', 'price'"));
  EXPECT_THAT(refusal("rooms,cost\n1,2\n"), HasSubstr("has no column 'prize' (the target). Its columns are"));
  EXPECT_THAT(refusal("rooms;prize\n1;2\n"), HasSubstr("is delimiter ',' right?"));
  options_ = {.path = options_.path, .target = "y", .drop = {"Name"}};
  EXPECT_THAT(refusal("name,y\n1,2\n"), HasSubstr("has no column 'Name' (drop); did you mean 'name'?"));
  options_.drop = {"y"};
  EXPECT_THAT(refusal("x,y\n1,2\n"), HasSubstr("drop names column 'y', which is the target"));
  options_.drop = {"x", "x"};
  EXPECT_THAT(refusal("x,y\n1,2\n"), HasSubstr("drop names column 'x', which is dropped already"));
  options_.drop = {"x"};
  EXPECT_THAT(refusal("x,y\n1,2\n"), HasSubstr("has no column beside the target that is not dropped"));
}

TEST_F(Csv, ThereAreRowsForBothParts) {
  EXPECT_THAT(refusal("x,y\n"), HasSubstr("has 0 rows below its header; two are the least"));
  EXPECT_THAT(refusal("x,y\n1,2\n"), HasSubstr("has 1 rows below its header"));
  options_.test_share = 1e-6;
  EXPECT_THAT(refusal(table(10, [](int i) { return i; })),
              HasSubstr("of its 10 rows 0 are test rows and 10 are training rows; both need some: set another"));
  for (double share : {0.0, 1.0, -0.5, double(NAN)}) {
    options_.test_share = share;
    EXPECT_THAT(refusal(table(10, [](int i) { return i; })), HasSubstr("it must be above 0 and below 1"));
  }
}

TEST_F(Csv, ThereIsMoreThanOneClass) {
  options_.kind = TargetKind::classes;
  EXPECT_THAT(refusal(table(10, [](int) { return "a"; })),
              HasSubstr("column 'y': every row has label 'a'; two classes are the least"));
}

TEST_F(Csv, WhatIsNoReadableFileIsRefused) {
  options_.path = folder_ / "none.csv";
  EXPECT_THAT(refusal(""), HasSubstr("cannot read '" + options_.path + "': No such file or directory"));
  options_.path = folder_.path();
  EXPECT_THAT(refusal(""), HasSubstr("it is a folder; name the file with the data"));
  options_.path = "/dev/null";
  EXPECT_THAT(refusal(""), HasSubstr("it is no regular file"));
}

bool may_become_nobody() {
  pid_t child = fork();
  if (child == 0) _exit(setresuid(65534, 65534, 65534) == 0 ? 0 : 1);
  int status = 1;
  return waitpid(child, &status, 0) == child && status == 0;
}

// Root may read everything, and becomes nobody.
[[noreturn]] void say_why_it_cannot_be_read(const CsvOptions& options) {
  if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
  std::fputs(error_of([&] { data::read_csv(options); }).c_str(), stderr);
  _exit(0);
}

TEST_F(Csv, AFileThatOnlyOthersMayReadIsRefusedWithTheReason) {
  if (geteuid() == 0 && !may_become_nobody()) GTEST_SKIP() << "root of a namespace without other users";
  folder_.write("a.csv", "x,y\n");
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(options_.path, std::filesystem::perms::none);
  EXPECT_EXIT(say_why_it_cannot_be_read(options_), ::testing::ExitedWithCode(0),
              "cannot read '.*a.csv': Permission denied");
}

// Nobody writes into it, so whoever waited for its first byte would wait for ever.
TEST_F(Csv, APipeIsRefusedAndNotWaitedFor) {
  options_.path = folder_ / "pipe";
  ASSERT_EQ(mkfifo(options_.path.c_str(), 0600), 0);
  std::atomic<bool> refused = false, waited = false;
  std::jthread rescue([&] {
    for (int i = 0; i < 300 && !refused; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!refused) waited = true, close(open(options_.path.c_str(), O_WRONLY | O_NONBLOCK));
  });
  EXPECT_THAT(error_of([&] { data::read_csv(options_); }), HasSubstr("it is no regular file"));
  refused = true;
  rescue.join();
  EXPECT_FALSE(waited);
}

TEST_F(Csv, ALineWithoutEndIsRefusedInLittleMemory) {
  auto resident = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  std::filesystem::resize_file((folder_.write("a.csv", "x,y\n1,"), options_.path), size_t(1) << 30);
  int64_t before = resident();
  EXPECT_THAT(error_of([&] { data::read_csv(options_); }), HasSubstr("line 2: there is a NUL byte"));
  folder_.write("a.csv", "x,y\n1," + std::string(64 << 20, '7'));
  EXPECT_THAT(error_of([&] { data::read_csv(options_); }),
              HasSubstr("line 2: the record that begins here has more than"));
  EXPECT_LT(resident() - before, 160 << 10) << "KiB, of which the test itself took 64 and 64 MiB";
}

// Whatever is in a file, it is read or refused.
TEST_F(Csv, RandomChangesNeverCrash) {
  const std::string whole =
      "\xef\xbb\xbfrooms,\"to,wn\",y\r\n1,2.5e-3,a\n3,\"4\",\"b\"\"b\"\n5,-6,a\n7,8,b\n9,10,a\n11,12,b\n";
  const std::string signs =
      "\",;\n\r\t \0"
      "eE+-.0x\xff"
      "anif";
  options_.kind = TargetKind::classes;
  int refused = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    std::string changed = whole;
    for (uint64_t k = 0; k < 1 + i % 4; ++k) {
      auto at = philox(1, i, k);
      char sign = at[1] % 2 ? signs[at[2] % signs.size()] : char(at[2]);
      if (at[3] % 3 == 0)
        changed.insert(changed.begin() + at[0] % changed.size(), sign);
      else
        changed[at[0] % changed.size()] = sign;
    }
    auto cut = philox(1, i, 9);
    if (cut[0] % 5 == 0) changed.resize(cut[1] % changed.size());
    folder_.write("a.csv", changed);
    try {
      data::read_csv(options_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 990) << "some of them are still tables";
}

}  // namespace
}  // namespace shardgrad
