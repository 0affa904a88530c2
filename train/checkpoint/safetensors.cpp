#include <shardgrad/train/checkpoint/safetensors.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/train/checkpoint/content_hash.h>
#include <shardgrad/train/checkpoint/safetensors_header.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

using Json = nlohmann::ordered_json;
constexpr std::array<const char*, kDTypeCount> kNames{"F32", "F64", "BF16", "F16", "I32", "I64", "U8"};
constexpr uint64_t kLongestHeader = 100 << 20;  // as the format's own reader allows

// File systems of which each machine may keep pages of its own; CIFS, SMB2 and FUSE are not in every magic.h.
bool has_clients(int file) {
  constexpr uint32_t kCifs = 0xFF534D42, kSmb2 = 0xFE534D42, kFuse = 0x65735546;
  constexpr uint32_t kKinds[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, V9FS_MAGIC, kCifs, kSmb2, kFuse};
  struct statfs system;
  return fstatfs(file, &system) == 0 && std::ranges::find(kKinds, uint32_t(system.f_type)) != std::end(kKinds);
}

// Such clients write whole pages, and would write old bytes over another machine's new ones, but not with O_DSYNC.
// Elsewhere one sync at the end does, which is many times faster.
int open_file(const std::string& path, SafetensorsFile::Access access) {
  int flags = access == SafetensorsFile::Access::read ? O_RDONLY : O_RDWR;
  constexpr const char* kRemedy = "; name a safetensors file";
  int file = open_regular("open", path, flags, kRemedy);
  if (flags == O_RDONLY || !has_clients(file)) return file;
  close(file);
  return open_regular("open", path, flags | O_DSYNC, kRemedy);
}

int64_t bytes_of(const TensorSpec& spec) { return spec.shape.numel() * int64_t(size_of(spec.dtype)); }

// Tensors of wide elements first, so that each begins at a multiple of its element's size.
std::vector<std::pair<std::string, TensorSpec>> in_order(const StateSpecs& tensors) {
  std::vector<std::pair<std::string, TensorSpec>> order(tensors.begin(), tensors.end());
  std::ranges::stable_sort(
      order, [](const auto& a, const auto& b) { return size_of(a.second.dtype) > size_of(b.second.dtype); });
  return order;
}

// Where a tensor lies in a file whose tensors begin at `data`: first byte and count.
std::pair<int64_t, int64_t> range_of(const SafetensorsHeader::Entry& entry, int64_t data) {
  SG_CHECK(entry.data_offsets.size() == 2, "it has ", entry.data_offsets.size(), " data_offsets");
  int64_t begin = entry.data_offsets[0], end = entry.data_offsets[1];
  bool possible = begin >= 0 && end >= begin && end <= std::numeric_limits<int64_t>::max() - data;
  SG_CHECK(possible, "data_offsets are [", begin, ",", end, "]");
  return {data + begin, end - begin};
}

// Why a tensor that the format allows is none of this library's; empty for one that is.
std::string why_unreadable(const SafetensorsHeader::Entry& entry) {
  if (std::ranges::find(kNames, entry.dtype) == kNames.end()) return "its dtype is " + shortened(entry.dtype);
  return entry.shape.size() > size_t(kMaxDims) ? concat("it has ", entry.shape.size(), " dimensions") : "";
}

TensorSpec spec_of(const SafetensorsHeader::Entry& entry, int64_t bytes) {
  TensorSpec spec{Shape(entry.shape), DType(std::ranges::find(kNames, entry.dtype) - kNames.begin())};
  auto element = int64_t(size_of(spec.dtype));  // a shape may have more bytes than an int64_t can count
  SG_CHECK(bytes % element == 0 && bytes / element == spec.shape.numel(), "it has ", bytes,
           " bytes, not those of its shape");
  return spec;
}

}  // namespace

void SafetensorsFile::create(const std::string& path, const StateSpecs& tensors, const Texts& metadata) {
  constexpr const char* kMetadata = "__metadata__";
  SG_CHECK(!tensors.contains(kMetadata), "cannot write '", path, "': a tensor is named '", kMetadata,
           "', where the format has texts; give it another name");
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
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
  write_file(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text);
  if (end > 0) take_space(path, int64_t(sizeof length + length), end);
}

SafetensorsFile::SafetensorsFile(std::string path, Access access)
    : path_(std::move(path)), file_(open_file(path_, access)) {
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
  header_hash_ = text_hash(text);
  auto end = int64_t(sizeof length + length);
  std::vector<std::pair<int64_t, int64_t>> places = understand(text, end);
  std::ranges::sort(places);
  for (auto [begin, count] : places) {
    if (begin != end) damaged(concat("there is a gap or an overlap at byte ", std::min(begin, end)));
    end += count;
  }
  if (uint64_t(end) != size) damaged(concat("its tensors end at byte ", end, ", the file at ", size));
}

// First byte and count of every tensor.
std::vector<std::pair<int64_t, int64_t>> SafetensorsFile::understand(const std::string& text, int64_t data) {
  std::vector<std::pair<int64_t, int64_t>> places;
  std::string tensor;
  try {
    SafetensorsHeader header = parse_safetensors_header(text);
    metadata_ = std::move(header.metadata);
    for (const auto& [name, entry] : header.tensors) {
      tensor = concat("tensor '", shortened(name), "': ");
      auto [begin, count] = places.emplace_back(range_of(entry, data));
      if (std::string why = why_unreadable(entry); !why.empty())
        unreadable_[name] = why;
      else
        tensors_[name] = {spec_of(entry, count), begin};
    }
  } catch (const Error& error) {
    damaged(tensor + error.what());
  }
  return places;
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

int64_t SafetensorsFile::place(const std::string& name, int64_t first, DType dtype, int64_t count) const {
  auto strange = unreadable_.find(name);
  SG_CHECK(strange == unreadable_.end(), "'", path_, "': tensor '", name, "' cannot be read: ", strange->second);
  auto found = tensors_.find(name);
  SG_CHECK(found != tensors_.end(), "'", path_, "' has no tensor '", name, "'");
  const Entry& entry = found->second;
  SG_CHECK(dtype == entry.spec.dtype && first + count <= entry.spec.shape.numel(), "'", path_, "': tensor '", name,
           "' is ", entry.spec.dtype, entry.spec.shape, "; wanted are ", count, " elements of ", dtype, " from ",
           first);
  return entry.begin + first * int64_t(size_of(entry.spec.dtype));
}

void SafetensorsFile::read(const std::string& name, int64_t first, const Tensor& values) const {
  int64_t begin = place(name, first, values.dtype(), values.numel());
  read_bytes(values.out().data, values.bytes(), begin);
}

void SafetensorsFile::write(const std::string& name, int64_t first, const Tensor& values) {
  write(name, first, {values.in().data, values.dtype(), values.numel()});
}

void SafetensorsFile::write(const std::string& name, int64_t first, const Elements& elements) {
  int64_t begin = place(name, first, elements.dtype, elements.count);
  auto* from = static_cast<const char*>(elements.begin);
  size_t bytes = size_t(elements.count) * size_of(elements.dtype);
  for (size_t done = 0; done < bytes;) {
    ssize_t put = pwrite(file_, from + done, bytes - done, off_t(begin) + off_t(done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) cannot("write", path_);
    done += size_t(put);
  }
}

void SafetensorsFile::sync() {
  if (fsync(file_) != 0) cannot("write", path_);
}

static void write_all(const std::string& path, const std::map<std::string, Tensor>& state,
                      const SafetensorsFile::Texts& metadata) {
  NoGrad no_grad;
  StateSpecs specs;
  for (const auto& [name, tensor] : state) specs[name] = {tensor.shape(), tensor.dtype()};
  SafetensorsFile::create(path, specs, metadata);
  SafetensorsFile file(path, SafetensorsFile::Access::write);
  for (const auto& [name, tensor] : state) file.write(name, 0, to_device(tensor, kCpu));
  file.sync();
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& state,
                      const SafetensorsFile::Texts& metadata) {
  std::string unfinished = path + ".tmp", folder = std::filesystem::path(path).parent_path();
  try {
    write_all(unfinished, state, metadata);
    if (std::rename(unfinished.c_str(), path.c_str()) != 0) cannot("write", path);
  } catch (...) {
    unlink(unfinished.c_str());
    throw;
  }
  sync_path(folder.empty() ? "." : folder);
}

}  // namespace shardgrad::train
