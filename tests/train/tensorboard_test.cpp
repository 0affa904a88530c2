// The files are read back byte by byte, by what the formats say and not by what wrote them. What TensorBoard itself
// makes of them: tests/repo/tensorboard_events.py.

#include <shardgrad/train/tensorboard.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::HasSubstr;
using train::Metrics;
using train::TensorBoard;

uint32_t castagnoli(const std::string& text) {
  uint32_t crc = 0xffffffff;
  for (char c : text) {
    crc ^= uint8_t(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 == 1 ? (crc / 2) ^ 0x82f63b78 : crc / 2;
  }
  return ~crc;
}

// Takes values from the front of a text.
class Bytes {
 public:
  explicit Bytes(std::string text) : text_(std::move(text)) {}
  bool empty() const { return text_.empty(); }
  std::string take(size_t count) {
    if (count > text_.size()) throw std::runtime_error("the bytes end too early");
    std::string front = text_.substr(0, count);
    text_.erase(0, count);
    return front;
  }
  uint64_t number(size_t bytes) {
    uint64_t all = 0;
    std::string front = take(bytes);
    for (size_t i = bytes; i-- > 0;) all = all << 8 | uint8_t(front[i]);
    return all;
  }
  uint64_t varint() {
    uint64_t all = 0;
    for (int shift = 0;; shift += 7) {
      uint64_t byte = number(1);
      all |= (byte & 0x7f) << shift;
      if (byte < 0x80) return all;
    }
  }

 private:
  std::string text_;
};

// Number of a field → its values, numbers as their bits, texts and messages as they are.
struct Message {
  std::multimap<uint64_t, uint64_t> numbers;
  std::multimap<uint64_t, std::string> texts;

  explicit Message(const std::string& text) {
    Bytes bytes(text);
    while (!bytes.empty()) {
      uint64_t key = bytes.varint(), field = key >> 3;
      if (key % 8 == 0)
        numbers.emplace(field, bytes.varint());
      else if (key % 8 == 1)
        numbers.emplace(field, bytes.number(8));
      else if (key % 8 == 5)
        numbers.emplace(field, bytes.number(4));
      else
        texts.emplace(field, bytes.take(bytes.varint()));
    }
  }
  uint64_t number(uint64_t field) const { return numbers.find(field)->second; }
  std::string text(uint64_t field) const { return texts.find(field)->second; }
};

std::vector<Message> events_in(const std::string& path) {
  std::vector<Message> events;
  Bytes file(read_file(path));
  auto check = [&](const std::string& text) {
    uint32_t crc = castagnoli(text);
    EXPECT_EQ(uint32_t(file.number(4)), ((crc >> 15) | (crc << 17)) + 0xa282ead8);
    return text;
  };
  while (!file.empty()) {
    uint64_t length = Bytes(check(file.take(8))).number(8);
    events.emplace_back(check(file.take(length)));
  }
  return events;
}

using Scalars = std::map<std::string, float>;
Scalars scalars_of(const Message& event) {
  Scalars scalars;
  Message summary(event.text(5));
  for (const auto& [field, text] : summary.texts) {
    Message value(text);
    scalars[value.text(1)] = std::bit_cast<float>(uint32_t(value.number(2)));
  }
  return scalars;
}

TEST(TensorBoardFile, BeginsAsTensorFlowsDo) {
  EXPECT_EQ(castagnoli("123456789"), 0xe3069283) << "the reader's own";
  TemporaryFolder folder;
  TensorBoard board(folder.path(), 40);
  EXPECT_EQ(read_file(board.path()).substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  auto events = events_in(board.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].text(3), "brain.Event:2");
  EXPECT_NEAR(std::bit_cast<double>(events[0].number(1)), double(time(nullptr)), 100);
  EXPECT_EQ(events[1].number(2), 41) << "the step from which on earlier files do not count";
  EXPECT_EQ(Message(events[1].text(7)).number(1), 1) << "START";
}

TEST(TensorBoardFile, HasWhatIsKnown) {
  TemporaryFolder folder;
  TensorBoard board(folder.path(), 0);
  Metrics metrics{.step = 300, .loss = 0.1, .lr = 0.5, .samples_per_s = 1e6};
  metrics.scores = {{"accuracy", 0.75}, {"loss", 2}};
  board.on_logged(metrics);
  metrics.step = int64_t{1} << 40;
  metrics.grad_norm = 3;
  metrics.test_count = 10;
  metrics.loss = std::nan("");
  board.on_logged(metrics);
  auto events = events_in(board.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2].number(2), 300);
  EXPECT_EQ(scalars_of(events[2]), (Scalars{{"loss", 0.1F}, {"lr", 0.5F}, {"samples_per_s", 1e6F}}));
  EXPECT_EQ(events[3].number(2), uint64_t{1} << 40);
  Scalars last = scalars_of(events[3]);
  EXPECT_TRUE(std::isnan(last["loss"]));
  last.erase("loss");
  EXPECT_EQ(
      last,
      (Scalars{{"lr", 0.5F}, {"samples_per_s", 1e6F}, {"grad_norm", 3}, {"test_accuracy", 0.75F}, {"test_loss", 2}}));
}

TEST(TensorBoardFile, IsAnotherOneEachTimeAndAFolderThatIsNotThereIsRefused) {
  TemporaryFolder folder;
  TensorBoard first(folder.path(), 0), second(folder.path(), 7);
  EXPECT_LT(first.path(), second.path()) << "they are read in the order of their names";
  EXPECT_THAT(error_of([&] { TensorBoard(folder / "none", 0); }), HasSubstr("/none/events.out.tfevents."));
}

// As TensorBoard does: a START at a step drops what was told of that step and later ones.
TEST_F(TrainerTest, TensorBoardIsToldWhatMetricsSay) {
  config_.tensorboard = config_.resume = config_.log_steps = true;
  train::Result result = train(2, true);
  train(2);
  std::map<int64_t, Scalars> told;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(result.folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.insert(entry.path());
  EXPECT_EQ(files.size(), 2u);
  for (const std::string& file : files)
    for (const Message& event : events_in(file)) {
      if (event.texts.contains(7)) told.erase(told.lower_bound(int64_t(event.number(2))), told.end());
      if (event.texts.contains(5)) told[int64_t(event.number(2))] = scalars_of(event);
    }
  auto lines = metrics(result);
  ASSERT_EQ(told.size(), lines.size());
  for (const auto& line : lines) {
    Scalars expected;
    for (const char* key : {"loss", "lr", "samples_per_s", "grad_norm", "test_accuracy", "test_loss"})
      if (!line[key].is_null()) expected[key] = float(line[key].get<double>());
    EXPECT_EQ(told[line["step"]], expected) << line;
  }
}

}  // namespace
}  // namespace shardgrad
