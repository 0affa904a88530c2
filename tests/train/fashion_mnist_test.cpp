#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/fashion_mnist.h>

#include "temporary_folder.h"

namespace shardgrad {
namespace {

using data::FashionMnist;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kTestImages = "t10k-images-idx3-ubyte.gz", kTestLabels = "t10k-labels-idx1-ubyte.gz";

std::string big_endian(int64_t value) { return {char(value >> 24), char(value >> 16), char(value >> 8), char(value)}; }
std::string idx(const std::vector<int64_t>& dims, const std::string& values) {
  std::string bytes{0, 0, 8, char(dims.size())};
  for (int64_t extent : dims) bytes += big_endian(extent);
  return bytes + values;
}

// A test split of `images` pictures and `labels` labels, uncompressed, which a gzip reader passes through.
void write_split(const TemporaryFolder& folder, int64_t images, const std::string& labels) {
  folder.write(kTestImages, idx({images, 28, 28}, std::string(size_t(images) * 784, '\x7f')));
  folder.write(kTestLabels, idx({int64_t(labels.size())}, labels));
}
std::string refused(const TemporaryFolder& folder) {
  return error_of([&] { FashionMnist(folder.path(), FashionMnist::Split::test); });
}

TEST(FashionMnist, TheDebianPackageIsReadWhole) {
  Context context;
  FashionMnist train(FashionMnist::kDebianFolder, FashionMnist::Split::train);
  FashionMnist test(FashionMnist::kDebianFolder, FashionMnist::Split::test);
  ASSERT_EQ(train.size(), 60000);
  ASSERT_EQ(test.size(), 10000);
  EXPECT_NE(train.fingerprint(), test.fingerprint());
  std::vector<int64_t> all(60000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = int64_t(i);
  auto fields = train.fetch(all);
  double sum = 0, squares = 0;
  for (float pixel : fields[0].to_vector<float>()) {
    sum += pixel;
    squares += double(pixel) * pixel;
  }
  double mean = sum / (60000.0 * 784), deviation = std::sqrt(squares / (60000.0 * 784) - mean * mean);
  EXPECT_NEAR(mean, 0, 1e-3);  // the constants carry four digits
  EXPECT_NEAR(deviation, 1, 1e-3);
  std::vector<int> counts(10);
  for (int64_t label : fields[1].to_vector<int64_t>()) ++counts[size_t(label)];
  EXPECT_EQ(counts, std::vector<int>(10, 6000));
}

TEST(FashionMnist, FetchStacksSamplesInTheOrderAskedFor) {
  Context context;
  FashionMnist test(FashionMnist::kDebianFolder, FashionMnist::Split::test);
  auto pair = test.fetch(std::vector<int64_t>{17, 3});
  auto one = test.fetch(std::vector<int64_t>{3});
  EXPECT_EQ(pair[0].shape(), Shape({2, 784}));
  EXPECT_EQ(pair[1].dtype(), DType::i64);
  EXPECT_EQ(pair[0].rows(1, 2).to_vector<float>(), one[0].to_vector<float>());
  EXPECT_EQ(pair[1].rows(1, 2).to_vector<int64_t>(), one[1].to_vector<int64_t>());
  EXPECT_EQ(test.fetch({})[0].shape(), Shape({0, 784}));
  EXPECT_EQ(test.fields(), (std::vector<data::Field>{{{784}, DType::f32}, {{}, DType::i64, 10}}));
  const auto& [mean, scale] = test.input_transform();
  EXPECT_NEAR((0 - mean[0]) / scale[0], (0 - 0.2860) / 0.3530, 1e-6) << "of a grey value of 0, and of 255:";
  EXPECT_NEAR((255 - mean[0]) / scale[0], (1 - 0.2860) / 0.3530, 1e-6);
}

TEST(FashionMnist, MissingFileNamesTheFileAndThePackage) {
  Context context;
  TemporaryFolder folder;
  EXPECT_THAT(refused(folder),
              AllOf(HasSubstr("cannot read '" + folder / kTestImages + "': No such file or directory"),
                    HasSubstr("; install the data (apt install dataset-fashion-mnist)"), HasSubstr("set data.dir")));
}

TEST(FashionMnist, TruncatedAndCorruptGzipIsRefused) {
  Context context;
  TemporaryFolder folder;
  std::string labels = read_file(FashionMnist::kDebianFolder + ("/" + kTestLabels));
  std::string images = read_file(FashionMnist::kDebianFolder + ("/" + kTestImages));
  folder.write(kTestLabels, labels);
  folder.write(kTestImages, images.substr(0, images.size() / 2));
  EXPECT_THAT(refused(folder), AllOf(HasSubstr(kTestImages), HasSubstr("is truncated")));
  folder.write(kTestImages, images.substr(0, images.size() - 6));  // only the checksum and the length are cut
  EXPECT_THAT(refused(folder), AllOf(HasSubstr(kTestImages), HasSubstr("is truncated")));
  folder.write(kTestImages, "");
  EXPECT_THAT(refused(folder), AllOf(HasSubstr(kTestImages), HasSubstr("is truncated")));
  std::string flipped = images;
  flipped[flipped.size() / 2] = char(flipped[flipped.size() / 2] ^ 0x10);
  folder.write(kTestImages, flipped);
  EXPECT_THAT(refused(folder), AllOf(HasSubstr(kTestImages), HasSubstr("is corrupt")));
}

TEST(FashionMnist, AWrongHeaderIsRefusedWithWhatWasExpected) {
  Context context;
  TemporaryFolder folder;
  write_split(folder, 2, {1, 2});
  folder.write(kTestImages, "this is not a picture");
  EXPECT_THAT(refused(folder), HasSubstr("is not an IDX file of bytes with 3 dimensions: it begins with 116 104 105 115"
                                         ", expected 0 0 8 3"));
  folder.write(kTestImages, idx({2, 28, 28}, "short"));
  EXPECT_THAT(refused(folder), HasSubstr("is truncated: its header announces 1568 bytes and 5 are there"));
  folder.write(kTestImages, idx({2, 28, 28}, std::string(1569, 'x')));
  EXPECT_THAT(refused(folder), HasSubstr("holds more than the 1568 bytes its header announces"));
  folder.write(kTestImages, idx({0xffffffff, 28, 28}, "x"));
  EXPECT_THAT(refused(folder), HasSubstr("its header is damaged"));
  folder.write(kTestImages, idx({2, 14, 28}, std::string(784, 'x')));
  EXPECT_THAT(refused(folder), HasSubstr("holds pictures of 14 x 28, expected 28 x 28"));
}

TEST(FashionMnist, PicturesAndLabelsMustMatch) {
  Context context;
  TemporaryFolder folder;
  write_split(folder, 3, {1, 2});
  EXPECT_THAT(refused(folder), AllOf(HasSubstr("holds 3 pictures"), HasSubstr("holds 2 labels")));
}

TEST(FashionMnist, ALabelOutOfRangeIsNamed) {
  Context context;
  TemporaryFolder folder;
  write_split(folder, 3, {1, 10, 2});
  EXPECT_THAT(refused(folder), AllOf(HasSubstr(kTestLabels), HasSubstr("label 1 is 10, expected 0 to 9")));
}

}  // namespace
}  // namespace shardgrad
