#include <shardgrad/train/data/npy_file.h>

#include <array>
#include <bit>
#include <cstring>

#include <shardgrad/train/data/npy_header.h>
#include <shardgrad/train/files.h>

namespace shardgrad::data {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are read and written as they lie in memory");

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint32_t kLongestNpyHeader = 1 << 16;  // an array of numbers has one of 118 bytes

struct NpyType {
  const char* descr;
  NpyFile::Type type;
  size_t bytes;
};
using NpyElement = NpyFile::Type;
constexpr std::array<NpyType, 9> kNpyTypes{{{"<f2", NpyElement::f16, 2},
                                            {"<f4", NpyElement::f32, 4},
                                            {"<f8", NpyElement::f64, 8},
                                            {"<i4", NpyElement::i32, 4},
                                            {"<i8", NpyElement::i64, 8},
                                            {"|u1", NpyElement::u8, 1},
                                            {"<u2", NpyElement::u16, 2},
                                            {"<u4", NpyElement::u32, 4},
                                            {"|b1", NpyElement::boolean, 1}}};

const NpyType& type_of(const std::string& descr) {
  for (const NpyType& type : kNpyTypes)
    if (descr == type.descr) return type;
  SG_CHECK(!descr.starts_with('>'), "its elements are big-endian ('", descr, "'); save array.astype('<",
           descr.substr(1), "')");
  SG_CHECK(descr.find('O') == std::string::npos,
           "its elements are pickled Python objects, which are programs; save an ",
           "array of numbers, array.astype('<f4')");
  fail("its elements are '", train::shortened(descr), "'; f2, f4, f8, i4, i8, u1, u2, u4 and bool can be read: save ",
       "array.astype('<f4'), or '<i8' for labels");
}

template <class From, class To> void convert_each(const std::byte* from, std::span<To> to) {
  for (To& value : to) {
    From element;
    std::memcpy(&element, from, sizeof element);
    from += sizeof element;
    if constexpr (std::is_same_v<From, f16>)
      value = To(float(element));
    else
      value = To(element);
  }
}

}  // namespace

NpyFile::NpyFile(std::string path) : file_(std::move(path)) {
  try {
    understand(read_header());
    file_.hold_if_small();
  } catch (const Error& error) {
    fail("cannot read '", file_.path(), "' as an array: ", error.what());
  }
}

// The text between the lengths and the array, whose place it notes.
std::string NpyFile::read_header() {
  std::array<char, 12> start{};
  int64_t there = std::min<int64_t>(file_.size(), std::ssize(start));
  file_.read(start.data(), 0, there);
  SG_CHECK(std::string_view(start.data(), size_t(there)).starts_with(kMagic),
           "it does not begin as a .npy file does; np.save writes one");
  int version = uint8_t(start[6]);
  SG_CHECK(there >= 8 && version >= 1 && version <= 3 && start[7] == 0, "its version is ", version, ".",
           int(uint8_t(start[7])), "; 1.0 to 3.0 can be read");
  int64_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, start.data() + 8, size_t(length_bytes));
  begin_ = 8 + length_bytes + int64_t(length);
  SG_CHECK(begin_ <= file_.size(), "it is truncated: its header would end at byte ", begin_, ", the file has ",
           file_.size());
  SG_CHECK(length <= kLongestNpyHeader, "its header has ", length, " bytes; an array of numbers has a short one");
  std::string header(length, ' ');
  file_.read(header.data(), 8 + length_bytes, length);
  return header;
}

void NpyFile::understand(const std::string& text) {
  NpyHeader header = parse_npy_header(text);
  const NpyType& found = type_of(header.descr);
  type_ = found.type;
  SG_CHECK(!header.fortran_order || header.shape.size() < 2, "it lies in columns (Fortran's order); save ",
           "np.ascontiguousarray(array)");
  SG_CHECK(!header.shape.empty(), "it is a single number; rows are wanted");
  SG_CHECK(header.shape.size() <= size_t(kMaxDims), "it has ", header.shape.size(), " dimensions; ", kMaxDims,
           " are the most");
  shape_ = Shape(header.shape);
  SG_CHECK(shape_.numel() > 0, "it holds nothing: its shape is ", shape_);
  auto element = int64_t(found.bytes);
  int64_t wanted = shape_.numel() * element, there = file_.size() - begin_;
  SG_CHECK(wanted == there, "its header announces ", wanted, " bytes of elements, shape ", shape_, ", and ", there,
           wanted > there ? " are there: it is truncated" : " are there");
  for (int d = 1; d < shape_.ndim(); ++d) row_numel_ *= shape_[d];
  row_bytes_ = row_numel_ * element;
}

void NpyFile::convert(const std::byte* from, std::span<double> to) const {
  switch (type_) {
    case Type::f16:
      return convert_each<f16>(from, to);
    case Type::f32:
      return convert_each<float>(from, to);
    case Type::f64:
      return convert_each<double>(from, to);
    case Type::i32:
      return convert_each<int32_t>(from, to);
    case Type::i64:
      return convert_each<int64_t>(from, to);
    case Type::u16:
      return convert_each<uint16_t>(from, to);
    case Type::u32:
      return convert_each<uint32_t>(from, to);
    case Type::u8:
    case Type::boolean:
      return convert_each<uint8_t>(from, to);
  }
}

void NpyFile::convert(const std::byte* from, std::span<int64_t> to) const {
  SG_ASSERT(!is_floating(), "integers of '", path(), "'");
  if (type_ == Type::i64) return convert_each<int64_t>(from, to);
  if (type_ == Type::i32) return convert_each<int32_t>(from, to);
  if (type_ == Type::u16) return convert_each<uint16_t>(from, to);
  if (type_ == Type::u32) return convert_each<uint32_t>(from, to);
  convert_each<uint8_t>(from, to);
}

void write_npy(const std::string& path, const Tensor& values) {
  constexpr std::array<const char*, kDTypeCount> kDescr{"<f4", "<f8", nullptr, nullptr, "<i4", "<i8", "|u1"};
  const char* descr = kDescr[size_t(values.dtype())];
  SG_CHECK(descr, "cannot write '", path, "': NumPy has no ", values.dtype(), "; convert it with .to(DType::f32)");
  SG_CHECK(values.device() == kCpu, "cannot write '", path, "': the tensor is on ", values.device(),
           "; copy it with .to(kCpu)");
  std::string header = concat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (");
  for (int64_t extent : values.shape()) header += std::to_string(extent) + (values.ndim() == 1 ? "," : ", ");
  if (values.ndim() > 1) header.resize(header.size() - 2);
  header += "), }";
  constexpr size_t kStart = 10, kAligned = 64;
  header.resize((kStart + header.size() + 1 + kAligned - 1) / kAligned * kAligned - kStart - 1, ' ');
  header += '\n';
  auto length = uint16_t(header.size());
  std::string bytes(kMagic);
  bytes += {'\1', '\0', char(length & 0xff), char(length >> 8)};
  bytes += header;
  bytes.append(static_cast<const char*>(values.in().data), values.bytes());
  train::replace_file(path, bytes);
}

}  // namespace shardgrad::data
