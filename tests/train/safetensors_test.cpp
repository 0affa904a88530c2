#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>

#include <filesystem>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/core/rng.h>
#include <shardgrad/nn/linear.h>
#include <shardgrad/train/checkpoint/safetensors.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using train::SafetensorsFile;
using FileAccess = SafetensorsFile::Access;  // Access is core's

class Safetensors : public ::testing::Test {
 protected:
  // A file with the given header and `count` bytes of tensors.
  void write_file(const std::string& header, size_t count) {
    uint64_t length = header.size();
    folder_.write("a", std::string(reinterpret_cast<char*>(&length), 8) + header + std::string(count, '\1'));
  }
  std::string refusal() {
    return error_of([&] { SafetensorsFile(path_, FileAccess::read); });
  }

  Context context_;
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a";
};

TEST_F(Safetensors, AStateIsSavedInOneCall) {
  auto model = nn::make<nn::Linear>(5, 3);
  model->materialize();
  train::save_safetensors(path_, model->state_dict());
  SafetensorsFile file(path_, FileAccess::read);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 2);
  for (const auto& [name, tensor] : model->state_dict()) {
    Tensor values = empty(tensor.shape());
    file.read(name, 0, values);
    EXPECT_EQ(values.to_vector<float>(), tensor.to_vector<float>()) << name;
  }
  train::save_safetensors(path_, {{"on a device", ones({2}, {DType::f16, kAcc})}, {"part", ones({4}).rows(1, 3)}}, {});
  EXPECT_EQ(SafetensorsFile(path_, FileAccess::read).tensors().size(), 2) << "in the place of the first";
  EXPECT_TRUE(SafetensorsFile(path_, FileAccess::read).metadata().empty()) << "as it was given";
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

// What is there stays until the new file is whole.
TEST_F(Safetensors, AStateThatCannotBeSavedLeavesTheOldFile) {
  train::save_safetensors(path_, {{"x", ones({2})}});
  std::string before = read_file(path_);
  EXPECT_THAT(error_of([&] {
                train::save_safetensors(path_, {{"x", ones({3})}, {"y", zeros({2}, kMeta)}});
              }),
              HasSubstr("has no values to copy"));
  EXPECT_EQ(read_file(path_), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  EXPECT_THAT(error_of([&] { train::save_safetensors(folder_ / "no/a", {}); }), HasSubstr("cannot write"));
  std::filesystem::create_directory(folder_ / "folder");
  folder_.write("folder/x", "");
  EXPECT_THAT(error_of([&] { train::save_safetensors(folder_ / "folder", {}); }), HasSubstr("Is a directory"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "folder.tmp"));
}

TEST_F(Safetensors, ATensorOfTheNameOfTheTextsIsRefusedBeforeAnythingIsWritten) {
  auto refused = HasSubstr("a tensor is named '__metadata__'");
  EXPECT_THAT(error_of([&] { train::save_safetensors(path_, {{"__metadata__", ones({2})}}); }), refused);
  EXPECT_THAT(error_of([&] { train::save_safetensors(path_, {{"__metadata__", ones({2})}}, {}); }), refused);
  EXPECT_THAT(error_of([&] { SafetensorsFile::create(path_, {{"__metadata__", {{2}, DType::f32}}}); }), refused);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(Safetensors, TensorsOfEveryDtypeComeBackAsTheyWere) {
  StateSpecs specs;
  for (int d = 0; d < kDTypeCount; ++d) specs[concat("of ", DType(d))] = {{3, 2}, DType(d)};
  specs["scalar"] = {{}, DType::f32};
  specs["empty"] = {{0, 4}, DType::f64};
  SafetensorsFile::create(path_, specs);
  std::map<std::string, std::vector<double>> written;
  for (const auto& [name, spec] : specs) {
    std::vector<double> values;
    for (int64_t i = 0; i < spec.shape.numel(); ++i) values.push_back(double(written.size() + 3 * size_t(i)));
    SafetensorsFile(path_, FileAccess::write)
        .write(name, 0, from_vector(values, {spec.shape.numel()}, {DType::f64, kCpu}).to(spec.dtype));
    written[name] = values;
  }
  SafetensorsFile file(path_, FileAccess::read);
  ASSERT_EQ(file.tensors().size(), specs.size());
  for (const auto& [name, spec] : specs) {
    EXPECT_EQ(file.tensors().at(name).spec.shape, spec.shape) << name;
    EXPECT_EQ(file.tensors().at(name).spec.dtype, spec.dtype) << name;
    Tensor values = empty({spec.shape.numel()}, {spec.dtype, kCpu});
    file.read(name, 0, values);
    EXPECT_EQ(values.to(DType::f64).to_vector<double>(), written[name]) << name;
  }
}

TEST_F(Safetensors, TheBytesAreThoseOfTheFormat) {
  SafetensorsFile::create(path_, {{"a", {{2}, DType::f32}}, {"b", {{1}, DType::i64}}});
  SafetensorsFile file(path_, FileAccess::write);
  file.write("a", 0, from_vector<float>({1, -2}, {2}));
  file.write("b", 0, from_vector<int64_t>({3}, {1}));
  std::string bytes = read_file(path_), header = bytes.substr(8, bytes.size() - 8 - 16);
  EXPECT_EQ(uint64_t(uint8_t(bytes[0])), header.size());
  EXPECT_EQ(bytes.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(header.size() % 8, 0) << "so that tensors are aligned in memory";
  EXPECT_EQ(
      header.substr(0, header.find_last_not_of(' ') + 1),
      R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})");
  EXPECT_EQ(bytes.substr(bytes.size() - 16), std::string("\3\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 16));
}

TEST_F(Safetensors, PartsAreWrittenAndReadAnywhere) {
  SafetensorsFile::create(path_, {{"x", {{7}, DType::f32}}, {"y", {{1}, DType::f32}}});
  SafetensorsFile one(path_, FileAccess::write), other(path_, FileAccess::write);
  other.write("x", 4, from_vector<float>({4, 5, 6}, {3}));
  one.write("x", 0, from_vector<float>({0, 1, 2, 3}, {4}));
  one.sync();
  Tensor middle = empty({3}, kCpu);
  SafetensorsFile(path_, FileAccess::read).read("x", 3, middle);
  EXPECT_EQ(middle.to_vector<float>(), (std::vector<float>{3, 4, 5}));
  EXPECT_THAT(error_of([&] { one.write("x", 5, middle); }), HasSubstr("tensor 'x' is f32[7]; wanted are 3 elements"));
  EXPECT_THAT(error_of([&] { one.write("x", 0, empty({1}, {DType::f64, kCpu})); }), HasSubstr("elements of f64"));
  EXPECT_THAT(error_of([&] { one.read("z", 0, middle); }), HasSubstr("has no tensor 'z'"));
}

// It may lie on a disk that is read-only.
TEST_F(Safetensors, AFileThatIsOnlyReadIsOpenedForNothingElse) {
  SafetensorsFile::create(path_, {{"x", {{1}, DType::f32}}});
  for (auto [access, expected] : {std::pair(FileAccess::read, O_RDONLY), std::pair(FileAccess::write, O_RDWR)}) {
    SafetensorsFile file(path_, access);
    std::vector<int> modes;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the descriptor that lists them
      if (std::filesystem::read_symlink(entry, gone) == path_)
        modes.push_back(fcntl(std::stoi(entry.path().filename()), F_GETFL) & O_ACCMODE);
    }
    EXPECT_EQ(modes, std::vector<int>{expected});
  }
}

TEST_F(Safetensors, FilesOfOtherWritersMayListTensorsInAnyOrderAndHaveMetadata) {
  write_file(R"({"__metadata__":{"format":"pt"},"late":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
             R"("early":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]}})",
             7);
  SafetensorsFile file(path_, FileAccess::read);
  EXPECT_EQ(file.tensors().at("early").spec.shape, Shape({2, 1}));
  EXPECT_EQ(file.tensors().at("late").begin - file.tensors().at("early").begin, 4);
}

TEST_F(Safetensors, DamagedFilesAreRefusedWithTheReason) {
  struct Fault {
    std::string header;
    size_t count;
    const char* reason;
  };
  auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return concat(R"({"dtype":")", dtype, R"(","shape":)", shape, R"(,"data_offsets":)", offsets, "}");
  };
  std::string whole = R"({"a":)" + tensor("F32", "[2]", "[0,8]") + "}";
  for (const Fault& fault : std::vector<Fault>{
           {whole, 7, "its tensors end at byte"},
           {whole, 9, "its tensors end at byte"},
           {"[1]", 0, "its header is not a JSON object"},
           {"{\"a\":", 0, "its header is not a JSON object"},
           {R"({"a":3})", 0, "tensor 'a'"},
           {R"({"a":)" + whole + "}", 8, "tensor 'a' is not described by"},
           {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "tensor 'a' is not described by"},
           {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, "'dtype' twice"},
           {R"({"a":)" + tensor("F32", "[2.5]", "[0,8]") + "}", 8, "tensor 'a' is not described by"},
           {R"({"a":)" + tensor("F32", "[[2]]", "[0,8]") + "}", 8, "tensor 'a' is not described by"},
           {R"({"a":)" + tensor("F32", "[2]", "[0,8,9]") + "}", 8, "it has 3 data_offsets"},
           {R"({"a":)" + tensor("F32", "[2]", "[0,18446744073709551615]") + "}", 8, "tensor 'a' is"},
           {R"({"a":)" + tensor("F32", "[2]", "[0,8]") + R"(,"a":)" + tensor("F32", "[2]", "[0,8]") + "}", 8,
            "its header has 'a' twice"},
           {R"({"__metadata__":{"a":"1","a":"1"}})", 0, "its header has 'a' twice"},
           {R"({"__metadata__":{},"__metadata__":{}})", 0, "its header has '__metadata__' twice"},
           {R"({"__metadata__":{"a":1}})", 0, "__metadata__ is not texts by name"},
           {R"({"__metadata__":3})", 0, "__metadata__ is not texts by name"},
           {whole + std::string(1, '\0') + "  ", 8, "its header has a NUL byte"},
           {whole + "{}", 8, "its header is not a JSON object"},
           {R"({"a":)" + tensor("F32", "[2]", "[0,4]") + "}", 4, "has 4 bytes, not those of its shape"},
           {R"({"a":)" + tensor("F32", "[-2]", "[0,8]") + "}", 8, "tensor 'a'"},
           {R"({"a":)" + tensor("F32", "[2]", "[8,0]") + "}", 8, "data_offsets are [8,0]"},
           {R"({"a":)" + tensor("F32", "[4611686018427387904]", "[0,8]") + "}", 8, "tensor 'a'"},
           {R"({"a":)" + tensor("F32", "[4611686018427387904]", "[0,0]") + "}", 0, "more than 2^56 elements"},
           {R"({"a":)" + tensor("U8", "[7]", "[9223372036854775800,9223372036854775807]") + "}", 7,
            "data_offsets are [9223372036854775800,"},
           {R"({"a":)" + tensor("F32", "[2]", "[4,12]") + "}", 12, "a gap or an overlap"},
           {R"({"a":)" + tensor("U8", "[2]", "[0,2]") + R"(,"b":)" + tensor("U8", "[2]", "[1,3]") + "}", 3,
            "a gap or an overlap"}}) {
    write_file(fault.header, fault.count);
    EXPECT_THAT(refusal(), HasSubstr(fault.reason)) << fault.header;
    EXPECT_THAT(refusal(), HasSubstr("'" + path_ + "'")) << fault.header;
  }
  folder_.write("a", "short");
  EXPECT_THAT(refusal(), HasSubstr("it has 5 bytes"));
  folder_.write("a", std::string(8, '\xff') + "{}");
  EXPECT_THAT(refusal(), HasSubstr("its header would have 18446744073709551615 bytes"));
  EXPECT_THAT(error_of([&] { SafetensorsFile(folder_ / "gone", FileAccess::read); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of([&] { SafetensorsFile::create(folder_ / "no/a", {}); }), HasSubstr("cannot write"));
}

// What another program wrote beside the tensors that are wanted is no reason to refuse them.
TEST_F(Safetensors, TensorsThatThisLibraryCannotHoldSpoilNothingElse) {
  write_file(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},)"
             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
             R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[7,8]}})",
             8);
  SafetensorsFile file(path_, FileAccess::read);
  EXPECT_EQ(file.tensors().size(), 1);
  EXPECT_EQ(file.unreadable(), (SafetensorsFile::Texts{{"a", "its dtype is F8_E4M3"}, {"c", "it has 7 dimensions"}}));
  Tensor values = empty({3}, {DType::u8, kCpu});
  file.read("b", 0, values);
  EXPECT_EQ(values.to_vector<uint8_t>(), (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_THAT(error_of([&] { file.read("a", 0, values); }),
              HasSubstr("tensor 'a' cannot be read: its dtype is F8_E4M3"));
}

TEST_F(Safetensors, MetadataComesBackAsItWasWritten) {
  SafetensorsFile::Texts metadata{{"format", "pt"}, {"step", "3"}, {"quoted", "\"ü\n"}};
  SafetensorsFile::create(path_, {{"a", {{2}, DType::f32}}}, metadata);
  EXPECT_EQ(SafetensorsFile(path_, FileAccess::read).metadata(), metadata);
  SafetensorsFile::create(path_, {{"a", {{2}, DType::f32}}});
  EXPECT_TRUE(SafetensorsFile(path_, FileAccess::read).metadata().empty());
}

// Of 100 MiB of brackets a tree would take gigabytes and minutes.
TEST_F(Safetensors, AHeaderOfBracketsIsRefusedAtOnceAndInNoMoreMemoryThanItsOwn) {
  auto used = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage;
  };
  const size_t size = 99 << 20;  // more is refused for its length
  for (const char* begin : {"", R"({"a":)", R"({"a":{"shape":)", R"({"__metadata__":{"a":)"}) {
    write_file(begin + std::string(size, '['), 0);
    rusage before = used();
    EXPECT_THAT(refusal(), HasSubstr("is not a whole safetensors file")) << begin;
    EXPECT_LT(used().ru_maxrss - before.ru_maxrss, int64_t(4 * size / 1024)) << "KiB";
    EXPECT_LE(used().ru_utime.tv_sec - before.ru_utime.tv_sec, 2) << begin;
  }
}

// Whatever is in a file, opening it succeeds or is refused.
TEST_F(Safetensors, RandomChangesNeverCrash) {
  SafetensorsFile::create(path_, {{"a", {{2, 3}, DType::f32}}, {"b", {{1}, DType::i64}}});
  const std::string whole = read_file(path_);
  int refused = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string changed = whole;
    auto at = philox(1, 2, i);
    changed[at[0] % (whole.size() - 32)] = char(at[1]);
    if (at[2] % 4 == 0) changed.resize(at[3] % whole.size());
    folder_.write("a", changed);
    refused += refusal() != "no error";
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace shardgrad
