#include <shardgrad/train/checkpoint/safetensors.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

namespace shardgrad::train {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;
constexpr std::array<const char*, kDTypeCount> kNames{"F32", "F64", "BF16", "F16", "I32", "I64", "U8"};
constexpr uint64_t kLongestHeader = 100 << 20;  // as the format's own reader allows

[[noreturn]] void cannot(const char* verb, const std::string& path) {
  fail("cannot ", verb, " '", path, "': ", std::strerror(errno));
}

// Clients of NFS write whole pages, and would write old bytes over another machine's new ones, but not with O_DSYNC.
int flags_of(SafetensorsFile::Access access) {
  return access == SafetensorsFile::Access::read ? O_RDONLY : O_RDWR | O_DSYNC;
}

int64_t bytes_of(const TensorSpec& spec) { return spec.shape.numel() * int64_t(size_of(spec.dtype)); }

// Tensors of wide elements first, so that each begins at a multiple of its element's size.
std::vector<std::pair<std::string, TensorSpec>> in_order(const StateSpecs& tensors) {
  std::vector<std::pair<std::string, TensorSpec>> order(tensors.begin(), tensors.end());
  std::ranges::stable_sort(
      order, [](const auto& a, const auto& b) { return size_of(a.second.dtype) > size_of(b.second.dtype); });
  return order;
}

// A full disk is better found before the ranks write.
void take_space(const std::string& path, uint64_t begin, int64_t count) {
  int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) cannot("open", path);
  errno = posix_fallocate(file, off_t(begin), off_t(count));
  close(file);
  if (errno != 0) cannot("write", path);
}

// `count`: the bytes that the header gives it.
SafetensorsFile::Entry entry_of(const Json& json, int64_t data, int64_t& count) {
  auto dtype = std::ranges::find(kNames, json.at("dtype").get<std::string>());
  SG_CHECK(dtype != kNames.end(), "dtype ", json["dtype"].dump(), " is not known");
  auto [begin, end] = json.at("data_offsets").get<std::array<int64_t, 2>>();
  bool possible = begin >= 0 && end >= begin && end <= std::numeric_limits<int64_t>::max() - data;
  SG_CHECK(possible, "data_offsets are ", json["data_offsets"].dump());
  count = end - begin;
  Shape shape(json.at("shape").get<std::vector<int64_t>>());
  return {{shape, DType(dtype - kNames.begin())}, data + begin};
}

}  // namespace

void SafetensorsFile::create(const std::string& path, const StateSpecs& tensors) {
  Json header = Json::object();
  int64_t end = 0;
  for (const auto& [name, spec] : in_order(tensors)) {
    int64_t begin = end;
    end += bytes_of(spec);
    header[name] = {
        {"dtype", kNames[size_t(spec.dtype)]}, {"shape", spec.shape.dims()}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length) << text;
  file.close();
  if (!file) cannot("write", path);
  if (end > 0) take_space(path, sizeof length + length, end);
}

SafetensorsFile::SafetensorsFile(std::string path, Access access)
    : path_(std::move(path)), file_(open(path_.c_str(), flags_of(access) | O_CLOEXEC)) {
  if (file_ < 0) cannot("open", path_);
  try {
    read_header();
  } catch (...) {
    close(file_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close(file_); }

void SafetensorsFile::damaged(const std::string& what) const {
  fail("'", path_, "' is not a whole safetensors file: ", what);
}

void SafetensorsFile::read_header() {
  struct stat status;
  if (fstat(file_, &status) != 0) cannot("read", path_);
  auto size = uint64_t(status.st_size);
  uint64_t length = 0;
  if (size < sizeof length) damaged(concat("it has ", size, " bytes"));
  read_bytes(&length, sizeof length, 0);
  if (length > kLongestHeader || length > size - sizeof length)
    damaged(concat("its header would have ", length, " bytes, the file has ", size));
  std::string text(length, ' ');
  read_bytes(text.data(), length, sizeof length);
  Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) damaged("its header is not a JSON object");
  auto end = int64_t(sizeof length + length);
  std::vector<std::pair<int64_t, int64_t>> places;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") continue;
    Entry entry;
    int64_t count = 0;
    try {
      entry = entry_of(json, end, count);
    } catch (const std::exception& error) {
      damaged(concat("tensor '", name, "': ", error.what()));
    }
    auto element = int64_t(size_of(entry.spec.dtype));  // a shape may have more bytes than an int64_t can count
    if (count % element != 0 || count / element != entry.spec.shape.numel())
      damaged(concat("tensor '", name, "' has ", count, " bytes, not those of its shape"));
    places.emplace_back(entry.begin, count);
    tensors_[name] = entry;
  }
  std::ranges::sort(places);
  for (auto [begin, count] : places) {
    if (begin != end) damaged(concat("there is a gap or an overlap at byte ", std::min(begin, end)));
    end += count;
  }
  if (uint64_t(end) != size) damaged(concat("its tensors end at byte ", end, ", the file at ", size));
}

void SafetensorsFile::read_bytes(void* to, size_t count, int64_t begin) const {
  for (size_t done = 0; done < count;) {
    ssize_t got = pread(file_, static_cast<char*>(to) + done, count - done, off_t(begin) + off_t(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) cannot("read", path_);
    if (got == 0) damaged("it became shorter while it was read");
    done += size_t(got);
  }
}

int64_t SafetensorsFile::place(const std::string& name, int64_t first, const Tensor& values) const {
  auto found = tensors_.find(name);
  SG_CHECK(found != tensors_.end(), "'", path_, "' has no tensor '", name, "'");
  const Entry& entry = found->second;
  SG_CHECK(values.dtype() == entry.spec.dtype && first + values.numel() <= entry.spec.shape.numel(), "'", path_,
           "': tensor '", name, "' is ", entry.spec.dtype, entry.spec.shape, "; wanted are ", values.numel(),
           " elements of ", values.dtype(), " from ", first);
  return entry.begin + first * int64_t(size_of(entry.spec.dtype));
}

void SafetensorsFile::read(const std::string& name, int64_t first, const Tensor& values) const {
  int64_t begin = place(name, first, values);
  read_bytes(values.out().data, values.bytes(), begin);
}

void SafetensorsFile::write(const std::string& name, int64_t first, const Tensor& values) {
  int64_t begin = place(name, first, values);
  auto* from = static_cast<const char*>(values.in().data);
  for (size_t done = 0; done < values.bytes();) {
    ssize_t put = pwrite(file_, from + done, values.bytes() - done, off_t(begin) + off_t(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot("write", path_);
    done += size_t(put);
  }
}

void SafetensorsFile::sync() {
  if (fsync(file_) != 0) cannot("write", path_);
}

void sync_path(const std::string& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) cannot("open", path);
  int result = fsync(file);
  close(file);
  if (result != 0) cannot("write", path);
}

}  // namespace shardgrad::train
