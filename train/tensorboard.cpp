#include <shardgrad/train/tensorboard.h>

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>

#include <shardgrad/dist/os/host_name.h>

namespace shardgrad::train {
namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <class Bits> std::string little_endian(Bits bits) {
  std::string bytes;
  for (size_t i = 0; i < sizeof bits; ++i) bytes += char(bits >> (8 * i) & 0xff);
  return bytes;
}

// Of the polynomial 0x1EDC6F41 (Castagnoli), bits reflected.
uint32_t crc32c(const std::string& text) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
      table[byte] = byte;
      for (int bit = 0; bit < 8; ++bit) table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0x82F63B78u : 0);
    }
    return table;
  }();
  uint32_t crc = ~0u;
  for (char c : text) crc = crc >> 8 ^ kTable[(crc ^ uint8_t(c)) & 0xff];
  return ~crc;
}

std::string masked_crc(const std::string& text) { return little_endian(std::rotr(crc32c(text), 15) + 0xa282ead8u); }

namespace proto {

// Fields of a message. A key says the field's number and how its value is written.
enum class Wire : uint8_t { varint = 0, eight_bytes = 1, counted = 2, four_bytes = 5 };
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 0x7f; value >>= 7) bytes += char((value & 0x7f) | 0x80);
  return bytes + char(value);
}
std::string key(int field, Wire wire) { return varint(uint64_t(field) << 3 | uint64_t(wire)); }
std::string integer(int field, int64_t value) { return key(field, Wire::varint) + varint(uint64_t(value)); }
std::string f64(int field, double value) {
  return key(field, Wire::eight_bytes) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string f32(int field, float value) {
  return key(field, Wire::four_bytes) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string counted(int field, const std::string& text) {
  return key(field, Wire::counted) + varint(text.size()) + text;
}

}  // namespace proto

// message Event: double wall_time = 1, int64 step = 2, string file_version = 3, Summary summary = 5,
// SessionLog session_log = 7
std::string event_of(const std::string& fields) { return proto::f64(1, unix_seconds()) + fields; }
std::string event_of(int64_t step, const std::string& fields) { return event_of(proto::integer(2, step) + fields); }
// message Summary: repeated Value value = 1, of string tag = 1 and float simple_value = 2
std::string scalar(const std::string& tag, double value) {
  return proto::counted(1, proto::counted(1, tag) + proto::f32(2, float(value)));
}
// message SessionLog: SessionStatus status = 1, of which START is 1: whoever reads it forgets what was told before of
// the event's step and later ones
std::string session_start() { return proto::counted(7, proto::integer(1, 1)); }

// By name in the order of their beginnings.
std::string new_path(const std::string& folder) {
  std::string host = dist::host_name();
  for (int number = 0;; ++number) {
    std::string path =
        concat(folder, "/events.out.tfevents.", int64_t(unix_seconds()), ".", host, ".", getpid(), ".", number);
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

TensorBoard::TensorBoard(const std::string& folder, int64_t step) : file_(new_path(folder)) {
  write(event_of(proto::counted(3, "brain.Event:2")));
  write(event_of(step + 1, session_start()));
}

void TensorBoard::on_logged(const Metrics& m) {
  std::string values = scalar("loss", m.loss) + scalar("lr", m.lr) + scalar("samples_per_s", m.samples_per_s);
  if (m.tokens_per_s > 0) values += scalar("tokens_per_s", m.tokens_per_s);
  if (m.grad_norm) values += scalar("grad_norm", *m.grad_norm);
  if (m.test_count > 0)
    for (const Score& score : m.scores) values += scalar("test_" + score.name, score.value);
  write(event_of(m.step, proto::counted(5, values)));
}

void TensorBoard::write(const std::string& event) {
  std::string length = little_endian(uint64_t(event.size()));
  file_.add(length + masked_crc(length) + event + masked_crc(event));
}

}  // namespace shardgrad::train
