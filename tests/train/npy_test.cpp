// Arrays that NumPy has saved as training data.

#include <shardgrad/train/data/npy.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/npy_file.h>
#include <shardgrad/train/data/split.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::NpyData;
using data::NpyFile;
using data::NpyOptions;
using data::Standardise;
using data::write_npy;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <class T> std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string npy(const std::string& header, const std::string& elements, int version = 1) {
  std::string bytes = std::string("\x93NUMPY") + char(version) + '\0';
  auto length = uint32_t(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
  return bytes + header + elements;
}
std::string npy_header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

class Npy : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes) {
    folder_.write("x.npy", bytes);
    return error_of([&] { NpyFile(folder_ / "x.npy"); });
  }
  std::vector<double> numbers_of(const std::string& bytes) {
    folder_.write("x.npy", bytes);
    NpyFile file(folder_ / "x.npy");
    std::vector<std::byte> row(size_t(file.row_bytes()));
    file.file().read(row.data(), file.row_begin(0), file.row_bytes());
    std::vector<double> numbers(size_t(file.row_numel()));
    file.convert(row.data(), std::span(numbers));
    return numbers;
  }

  Context context_;
  TemporaryFolder folder_;
};

TEST_F(Npy, EveryTypeOfNumberIsRead) {
  std::vector<double> three{0, 1, 3};
  std::string shape = "(1, 3)";
  EXPECT_EQ(numbers_of(npy(npy_header("<f2", shape), bytes_of<f16>({f16(0), f16(1), f16(3)}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("<f4", shape), bytes_of<float>({0, 1, 3}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("<f8", shape), bytes_of<double>({0, 1, 3}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("<i4", shape), bytes_of<int32_t>({0, 1, 3}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("<i8", shape), bytes_of<int64_t>({0, 1, 3}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("|u1", shape), bytes_of<uint8_t>({0, 1, 3}))), three);
  EXPECT_EQ(numbers_of(npy(npy_header("|b1", shape), bytes_of<uint8_t>({0, 1, 1}))), (std::vector<double>{0, 1, 1}));
}

TEST_F(Npy, EveryVersionAndWayToWriteTheHeaderIsRead) {
  std::string element = bytes_of<float>({7});
  for (int version : {1, 2, 3}) EXPECT_EQ(numbers_of(npy(npy_header("<f4", "(1,)"), element, version))[0], 7);
  for (const char* header : {"{'shape':(1,),'fortran_order':False,'descr':'<f4'}\n",
                             "{\"descr\": \"<f4\", "
                             "'fortran_order': True, 'shape': (1,), }          \n",
                             "  { 'descr' : '<f4' , "
                             "'fortran_order' : False , 'shape' : ( 1 , 1 , 1 ) , } "})
    EXPECT_EQ(numbers_of(npy(header, element))[0], 7) << header;
}

TEST_F(Npy, WhatIsWrittenIsReadAgainAndIsNumPysForm) {
  write_npy(folder_ / "a.npy", from_vector<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  std::string bytes = read_file(folder_ / "a.npy");
  std::string header = npy_header("<f4", "(3, 2)");
  EXPECT_EQ(bytes,
            npy(header + std::string(128 - 10 - header.size() - 1, ' ') + "\n", bytes_of<float>({1, 2, 3, 4, 5, 6})));
  write_npy(folder_ / "b.npy", from_vector<int64_t>({5, -1}, {2}));
  NpyFile file(folder_ / "b.npy");
  EXPECT_EQ(file.type(), NpyFile::Type::i64);
  EXPECT_EQ(file.shape(), Shape({2}));
  EXPECT_THAT(read_file(folder_ / "b.npy"), HasSubstr("'shape': (2,), }"));
  EXPECT_THAT(error_of([&] { write_npy(folder_ / "c.npy", empty({2}, DType::bf16)); }), HasSubstr("NumPy has no bf16"));
  EXPECT_THAT(error_of([&] { write_npy(folder_ / "no/c.npy", empty({2})); }), HasSubstr("cannot write"));
}

TEST_F(Npy, WhatCannotBeReadIsRefusedWithTheRemedy) {
  struct Fault {
    std::string bytes, reason;
  };
  std::string one = bytes_of<float>({1});
  for (const Fault& fault : std::vector<Fault>{
           {npy(npy_header(">f4", "(1,)"), one), "big-endian ('>f4'); save array.astype('<f4')"},
           {npy(npy_header("|O", "(1,)"), one), "pickled Python objects"},
           {npy(npy_header("<c8", "(1,)"), one),
            "its elements are '<c8'; f2, f4, f8, i4, i8, u1, u2, u4 and bool can be read"},
           {npy(npy_header("<U1", "(1,)"), one), "its elements are '<U1'"},
           {npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", one), "its elements are records"},
           {npy(npy_header("<f4", "(2, 2)", "True"), bytes_of<float>({1, 2, 3, 4})),
            "save np.ascontiguousarray(array)"},
           {npy(npy_header("<f4", "()"), one), "it is a single number; rows are wanted"},
           {npy(npy_header("<f4", "(0, 3)"), ""), "it holds nothing: its shape is [0, 3]"},
           {npy(npy_header("<f4", "(1,1,1,1,1,1,1)"), one), "it has 7 dimensions; 6 are the most"}})
    EXPECT_THAT(refusal(fault.bytes), AllOf(HasSubstr(fault.reason), HasSubstr("cannot read '" + folder_ / "x.npy")));
}

TEST_F(Npy, ADamagedFileIsRefused) {
  struct Fault {
    std::string bytes, reason;
  };
  std::string one = bytes_of<float>({1}), whole = npy(npy_header("<f4", "(1,)"), one);
  for (const Fault& fault :
       std::vector<Fault>{{"", "does not begin as a .npy file does; np.save writes one"},
                          {"PK\3\4", "does not begin as a .npy file does"},
                          {whole.substr(0, 7), "its version is"},
                          {npy("", "", 4), "its version is 4.0; 1.0 to 3.0 can be read"},
                          {whole.substr(0, 40), "it is truncated: its header would end at byte"},
                          {npy("", "", 2).substr(0, 8) + std::string(4, '\xff'),
                           "it is truncated: its header would end at byte 4294967307"},
                          {npy(npy_header("<f4", "(1,)") + std::string(70'000, ' '), one, 2), "its header has 70"},
                          {whole.substr(0, whole.size() - 1),
                           "announces 4 bytes of elements, shape [1], and 3 are there: it is truncated"},
                          {whole + "x", "announces 4 bytes of elements, shape [1], and 5 are there"},
                          {npy(npy_header("<f8", "(99999999999, 99999)"), one), "it is truncated"},
                          {npy(npy_header("<f8", "(4611686018427387904, 4)"), one), "more than 2^56 elements"},
                          {npy(npy_header("<f4", "(99999999999999999999,)"), one), "its shape has no count"},
                          {npy(npy_header("<f4", "(-1,)"), one), "its shape has no count"},
                          {npy(npy_header("<f4", "1"), one), "has no '('"},
                          {npy(npy_header("<f4", "(1,"), one), "its shape has no count"},
                          {npy(npy_header("<f4", "(1,)", "Maybe"), one), "has no 'False'"},
                          {npy("{}", one), "lacks one of 'descr', 'fortran_order' and 'shape'"},
                          {npy("[]", one), "has no '{'"},
                          {npy("{'descr': '<f4', 'descr': '<f4', }", one), "has 'descr' twice"},
                          {npy("{'colour': 3}", one), "has key 'colour', which the format does not know"},
                          {npy("{'descr", one), "a quote in its header is not closed"},
                          {npy("{'descr': '<f4", one), "a quote in its header is not closed"},
                          {npy(npy_header("<f4", "(1,)") + "x", one), "goes on after the closing brace"}})
    EXPECT_THAT(refusal(fault.bytes), HasSubstr(fault.reason));
}

// Whatever is in a file, opening it succeeds or is refused, and nothing is allocated that the file does not have.
TEST_F(Npy, RandomChangesNeverCrash) {
  const std::string whole = npy(npy_header("<f4", "(2, 3)"), bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const std::string signs = "{}()[],:'\" \n<>|=fiuObTrueFals0123456789";
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  int refused = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    std::string changed = whole;
    for (uint64_t k = 0; k < 1 + i % 3; ++k) {
      auto at = philox(2, i, k);
      changed[at[0] % changed.size()] = at[1] % 2 ? signs[at[2] % signs.size()] : char(at[2]);
    }
    auto cut = philox(2, i, 9);
    if (cut[0] % 5 == 0) changed.resize(cut[1] % changed.size());
    folder_.write("x.npy", changed);
    try {
      NpyFile file(folder_ / "x.npy");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input) << error.what();
      ++refused;
    }
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_GT(refused, 300);
  EXPECT_LT(refused, 990) << "some of them are still arrays";
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 8 << 10) << "KiB";
}

class NpyPairs : public Npy {
 protected:
  // Inputs (count, 2): row i is i, 10 i. Targets: i modulo 3.
  void write_pair(int64_t count, const std::string& inputs, const std::string& targets) {
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int64_t i = 0; i < count; ++i) {
      x.insert(x.end(), {float(i), float(10 * i)});
      y.push_back(i % 3);
    }
    write_npy(folder_ / inputs, from_vector(x, {count, 2}));
    write_npy(folder_ / targets, from_vector(y, {count}));
  }
  NpyOptions options() { return {.inputs = folder_ / "x.npy", .targets = folder_ / "y.npy"}; }
  std::string pair_refusal(const NpyOptions& options) {
    return error_of([&] { data::read_npy(options); });
  }
};

std::vector<Tensor> whole_of(const data::Dataset& dataset) {
  std::vector<int64_t> rows(size_t(dataset.size()));
  std::iota(rows.begin(), rows.end(), 0);
  return dataset.fetch(rows);
}

TEST_F(NpyPairs, RowsAreSplitBySeedAndNumber) {
  write_pair(50, "x.npy", "y.npy");
  NpyData data = data::read_npy(options());
  EXPECT_EQ(data.classes, 3);
  std::vector<data::Field> fields{{{2}, DType::f32}, {{}, DType::i64}};
  EXPECT_EQ(data.splits.train->fields(), fields);
  std::vector<float> rows[2];
  for (int64_t i = 0; i < 50; ++i) {
    auto& part = rows[data::is_test_row(0, i, 0.2)];
    part.insert(part.end(), {float(i), float(10 * i)});
  }
  EXPECT_EQ(whole_of(*data.splits.train)[0].to_vector<float>(), rows[0]);
  EXPECT_EQ(whole_of(*data.splits.test)[0].to_vector<float>(), rows[1]);
  for (const auto& part : {data.splits.train, data.splits.test}) {
    auto values = whole_of(*part);
    for (int64_t i = 0; i < part->size(); ++i)
      EXPECT_EQ(values[1].to_vector<int64_t>()[size_t(i)], int64_t(values[0].to_vector<float>()[size_t(2 * i)]) % 3);
    EXPECT_TRUE(part->input_transform().mean.empty());
  }
}

TEST_F(NpyPairs, ATestPairStandsForItself) {
  write_pair(5, "x.npy", "y.npy");
  write_pair(4, "tx.npy", "ty.npy");
  NpyOptions both = options();
  both.test_inputs = folder_ / "tx.npy";
  EXPECT_THAT(pair_refusal(both), HasSubstr("of test_inputs and test_targets one is given"));
  both.test_targets = folder_ / "ty.npy";
  NpyData data = data::read_npy(both);
  EXPECT_EQ(data.splits.train->size(), 5);
  EXPECT_EQ(whole_of(*data.splits.test)[0].to_vector<float>(), (std::vector<float>{0, 0, 1, 10, 2, 20, 3, 30}));
  write_npy(folder_ / "tx.npy", from_vector<float>({1, 2, 3, 4}, {4}));
  EXPECT_THAT(pair_refusal(both), HasSubstr("has rows f32[1]"));
}

TEST_F(NpyPairs, InputsAreStandardisedByTheTrainingRows) {
  write_pair(5, "x.npy", "y.npy");
  write_pair(4, "tx.npy", "ty.npy");
  NpyOptions both = options();
  both.test_inputs = folder_ / "tx.npy";
  both.test_targets = folder_ / "ty.npy";
  both.standardise = Standardise::columns;
  NpyData data = data::read_npy(both);
  const auto& [mean, scale] = data.splits.train->input_transform();
  EXPECT_EQ(mean, (std::vector<double>{2, 20}));
  EXPECT_NEAR(scale[0], std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(scale[1], std::sqrt(200.0), 1e-12);
  auto test = whole_of(*data.splits.test)[0].to_vector<float>();
  EXPECT_FLOAT_EQ(test[6], float(1 / std::sqrt(2.0)));
  EXPECT_FLOAT_EQ(test[7], float(1 / std::sqrt(2.0)));
  both.standardise = Standardise::all;
  data = data::read_npy(both);
  const auto& all = data.splits.test->input_transform();
  EXPECT_NEAR(all.mean[0], 11, 1e-12);
  EXPECT_NEAR(all.scale[0], std::sqrt(101 + 81.0), 1e-12) << "the columns' own variance, and that of their means";
  EXPECT_FLOAT_EQ(whole_of(*data.splits.test)[0].to_vector<float>()[7], float(19 / std::sqrt(182.0)));
}

TEST_F(NpyPairs, InputsAreStandardisedByTheRowsOfAShareThatAreForTraining) {
  write_pair(50, "x.npy", "y.npy");
  NpyOptions share = options();
  share.standardise = Standardise::columns;
  double sum = 0, count = 0;
  for (int64_t i = 0; i < 50; ++i)
    if (!data::is_test_row(0, i, 0.2)) sum += double(i), ++count;
  auto mean = data::read_npy(share).splits.test->input_transform().mean;
  EXPECT_NEAR(mean[0], sum / count, 1e-12);
  EXPECT_NEAR(mean[1], 10 * sum / count, 1e-12);
}

TEST_F(NpyPairs, TypesAndShapesBecomeFields) {
  auto fields = [&](const Tensor& x, const Tensor& y, Standardise standardise = Standardise::none) {
    write_npy(folder_ / "x.npy", x);
    write_npy(folder_ / "y.npy", y);
    NpyOptions all = options();
    all.standardise = standardise;
    all.test_inputs = all.inputs;
    all.test_targets = all.targets;
    return data::read_npy(all).splits.train->fields();
  };
  Tensor labels = zeros({4}, DType::i64), bytes = zeros({4, 3, 3}, DType::u8), ids = zeros({4, 5}, DType::i64);
  using Fields = std::vector<data::Field>;
  EXPECT_EQ(fields(bytes, labels), (Fields{{{3, 3}, DType::f32}, {{}, DType::i64}}));
  EXPECT_EQ(fields(ids, ids), (Fields{{{5}, DType::i64}, {{5}, DType::i64}}));
  EXPECT_EQ(fields(ids, labels, Standardise::columns)[0], (data::Field{{5}, DType::f32}));
  EXPECT_EQ(fields(zeros({4}), zeros({4})), (Fields{{{1}, DType::f32}, {{1}, DType::f32}}));
  EXPECT_EQ(fields(zeros({4}), zeros({4, 1}, DType::i64))[1], (data::Field{{}, DType::i64}));
}

TEST_F(NpyPairs, WhatDoesNotBelongTogetherIsRefused) {
  write_pair(5, "x.npy", "y.npy");
  write_npy(folder_ / "y.npy", zeros({4}, DType::i64));
  EXPECT_THAT(pair_refusal(options()), AllOf(HasSubstr("x.npy' has 5 rows"), HasSubstr("y.npy' has 4")));
  write_npy(folder_ / "y.npy", from_vector<int64_t>({0, 1, -2, 1, 0}, {5}));
  EXPECT_THAT(pair_refusal(options()), HasSubstr("y.npy', row 2: label -2 is below 0"));
  write_npy(folder_ / "y.npy", from_vector<int64_t>({0, 1, INT64_MAX, 1, 0}, {5}));
  EXPECT_THAT(pair_refusal(options()), HasSubstr("y.npy', row 2: label 9223372036854775807 is larger than any"));
  write_npy(folder_ / "y.npy", from_vector<double>({0, 1, 1e39, 1, 0}, {5}));
  EXPECT_THAT(pair_refusal(options()), HasSubstr("y.npy', row 2, element 0: 1e+39 is no finite f32"));
  write_npy(folder_ / "x.npy", from_vector<float>({0, 1, 2, 3, 4, 5, 6, NAN, 8, 9}, {5, 2}));
  EXPECT_THAT(pair_refusal(options()), HasSubstr("x.npy', row 3, element 1: nan is no finite f32"));
  NpyOptions none = options();
  none.test_share = 0;
  EXPECT_THAT(pair_refusal(none), HasSubstr("test_share is 0"));
}

// What stands in run.json of every run there is, which would not go on with another: worked out by another program.
TEST_F(NpyPairs, TheFingerprintIsThatOfTheRunsThatThereAre) {
  write_pair(20, "x.npy", "y.npy");
  NpyOptions parts = options(), whole = options();
  parts.seed = 1;
  EXPECT_EQ(data::read_npy(parts).splits.train->fingerprint(), 0x860ff49a4e6fb3c7);
  EXPECT_EQ(data::read_npy(parts).splits.test->fingerprint(), 0x13a4a0fa61a3b75d);
  whole.test_inputs = whole.inputs;
  whole.test_targets = whole.targets;
  EXPECT_EQ(data::read_npy(whole).splits.train->fingerprint(), 0x5f55ac9e1185f18a);
}

TEST_F(NpyPairs, TheFingerprintIsOfWhatIsTrainedOn) {
  write_pair(50, "x.npy", "y.npy");
  NpyOptions first = options(), other_seed = options();
  other_seed.seed = 1;
  uint64_t before = data::read_npy(first).splits.train->fingerprint();
  EXPECT_EQ(data::read_npy(first).splits.train->fingerprint(), before);
  EXPECT_NE(data::read_npy(first).splits.test->fingerprint(), before);
  EXPECT_NE(data::read_npy(other_seed).splits.train->fingerprint(), before);
  write_npy(folder_ / "y.npy", zeros({50}, DType::i64));
  EXPECT_NE(data::read_npy(first).splits.train->fingerprint(), before);
}

TEST_F(NpyPairs, SmallFilesAreHeldInMemoryAndMayChange) {
  write_pair(50, "x.npy", "y.npy");
  int64_t before = context_.ledger().current(Category::data);
  NpyData data = data::read_npy(options());
  auto bytes = [&](const char* name) { return int64_t(std::filesystem::file_size(folder_ / name)); };
  EXPECT_EQ(context_.ledger().current(Category::data) - before, bytes("x.npy") + bytes("y.npy"));
  auto values = whole_of(*data.splits.train)[0].to_vector<float>();
  folder_.write("x.npy", "short");
  EXPECT_EQ(whole_of(*data.splits.train)[0].to_vector<float>(), values);
}

class LargeNpyPair : public NpyPairs {
 protected:
  // Zeros that take no room on the disk, of which little fits into what is held.
  void write_large() {
    std::string header = npy(npy_header("<f4", concat("(", kRows, ", ", kColumns, ")")), "");
    folder_.write("x.npy", header);
    std::filesystem::resize_file(folder_ / "x.npy", header.size() + size_t(kRows * kColumns) * 4);
    write_npy(folder_ / "y.npy", zeros({kRows}, DType::i64));
  }
  static constexpr int64_t kColumns = 1 << 14, kRows = data::DataFile::kHeld / 4 / kColumns + 8;
};

TEST_F(LargeNpyPair, IsReadAsItIsNeeded) {
  write_large();
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  NpyData data = data::read_npy(options());
  EXPECT_EQ(data.splits.train->fetch(std::vector<int64_t>{3, 2000})[0].to_vector<float>()[5], 0);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 32 << 10) << "KiB";
}

TEST_F(LargeNpyPair, ThatChangesWhileItIsUsedIsRefused) {
  write_large();
  std::vector<int64_t> first{0};
  NpyData data = data::read_npy(options());
  EXPECT_EQ(error_of([&] { data.splits.train->fetch(first); }), "no error");
  auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(1);
  std::filesystem::last_write_time(folder_ / "x.npy", later);
  EXPECT_THAT(error_of([&] { data.splits.train->fetch(first); }),
              HasSubstr("x.npy' has been changed since it was opened"));
  folder_.write("x.npy", "short");
  EXPECT_THAT(error_of([&] { data.splits.train->fetch(first); }), HasSubstr("x.npy' became shorter while it was read"));
}

}  // namespace
}  // namespace shardgrad
