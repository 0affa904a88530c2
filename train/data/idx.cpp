#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <memory>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/fashion_mnist.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::data {

namespace {

constexpr const char* kRemedy =
    "; install the data (apt install dataset-fashion-mnist), or set data.dir to a folder with the four files";

int open_packed(const std::string& path) {
  try {
    return train::open_regular("read", path, O_RDONLY);
  } catch (const Error& error) {
    throw Error(error.kind(), error.what() + std::string(kRemedy));
  }
}

class GzipReader {
 public:
  explicit GzipReader(const std::string& path) : path_(path), file_(nullptr, gzclose) {
    int file = open_packed(path);
    file_.reset(gzdopen(file, "rb"));
    if (!file_) close(file);
    SG_CHECK(file_, "cannot read '", path, "': there is no memory to unpack it");
    gzbuffer(file_.get(), 1 << 17);
  }

  /// Reads up to `bytes` bytes and returns how many there were; damage in the compression is refused. Asked for one
  /// byte more than there should be, zlib also reads and checks the checksum behind the last one.
  int64_t read(void* to, int64_t bytes) {
    int got = std::max(0, gzread(file_.get(), to, unsigned(bytes)));
    int code = Z_OK;
    gzerror(file_.get(), &code);
    SG_CHECK(code != Z_BUF_ERROR, "'", path_, "' is truncated: the compressed data ends early", kRemedy);
    SG_CHECK(code == Z_OK || code == Z_STREAM_END, "'", path_, "' is corrupt: its compressed data does not check out",
             kRemedy);
    return got;
  }

 private:
  std::string path_;
  std::unique_ptr<gzFile_s, decltype(&gzclose)> file_;
};

std::vector<int64_t> read_header(GzipReader& reader, const std::string& path, int ndim) {
  std::array<uint8_t, 4> magic{};
  SG_CHECK(reader.read(magic.data(), 4) == 4, "'", path, "' is truncated: it has no IDX header", kRemedy);
  SG_CHECK(magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] == ndim, "'", path,
           "' is not an IDX file of bytes with ", ndim, " dimensions: it begins with ", int(magic[0]), " ",
           int(magic[1]), " ", int(magic[2]), " ", int(magic[3]), ", expected 0 0 8 ", ndim, kRemedy);
  std::vector<int64_t> dims;
  for (int d = 0; d < ndim; ++d) {
    std::array<uint8_t, 4> b{};
    SG_CHECK(reader.read(b.data(), 4) == 4, "'", path, "' is truncated within its IDX header", kRemedy);
    dims.push_back(int64_t(b[0]) << 24 | int64_t(b[1]) << 16 | int64_t(b[2]) << 8 | int64_t(b[3]));
  }
  return dims;
}

}  // namespace

IdxFile read_idx(const std::string& path, int ndim) {
  constexpr int64_t kLargest = int64_t{1} << 30;  // a damaged header must not make us allocate the moon
  GzipReader reader(path);
  IdxFile file{path, read_header(reader, path, ndim), Tensor()};
  int64_t bytes = 1;
  for (int64_t extent : file.dims) {
    SG_CHECK(extent > 0 && extent <= kLargest / bytes, "'", path, "' announces a size of ", extent, " after ", bytes,
             " bytes: its header is damaged", kRemedy);
    bytes *= extent;
  }
  TagScope tag(Category::data);
  Tensor values = empty({bytes + 1}, {DType::u8, kCpu});
  int64_t got = reader.read(values.out().data, bytes + 1);
  SG_CHECK(got >= bytes, "'", path, "' is truncated: its header announces ", bytes, " bytes and ", got, " are there",
           kRemedy);
  SG_CHECK(got == bytes, "'", path, "' holds more than the ", bytes, " bytes its header announces", kRemedy);
  file.values = values.rows(0, bytes).view(Shape(std::span<const int64_t>(file.dims)));
  return file;
}

}  // namespace shardgrad::data
