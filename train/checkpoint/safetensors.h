#pragma once
// A file of tensors in the safetensors format, which any Python user can open:
//
//     8 bytes   the length of the header, little-endian
//     header    JSON: {"__metadata__": {"format": "pt"},
//                      "layer0.weight": {"dtype": "F32", "shape": [256, 784], "data_offsets": [0, 802816]}, …}
//     tensors   row-major, little-endian, without gaps; offsets count from here
//
// Where a tensor lies follows from the names, shapes and dtypes alone. So ranks write and read their parts of one file
// at the same time, and the file does not show how many they were.

#include <map>
#include <string>

#include <shardgrad/autograd/state_check.h>

namespace shardgrad::train {

class SafetensorsFile {
 public:
  struct Entry {
    TensorSpec spec;
    int64_t begin;  ///< byte in the file
  };
  enum class Access { read, write };

  using Texts = std::map<std::string, std::string>;

  /// Makes a file for these tensors, with its full size and no values. Throws Error(input) when the disk is full or the
  /// folder cannot be written, and, having written nothing, for a tensor that is named "__metadata__".
  static void create(const std::string& path, const StateSpecs& tensors, const Texts& metadata = {});
  /// Opens a file. Throws Error(input), with the path and the reason, for one that is not a whole safetensors file.
  SafetensorsFile(std::string path, Access access);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  /// Tensors that the file has and this library cannot hold, by name, and why: "its dtype is F8_E4M3".
  const Texts& unreadable() const { return unreadable_; }
  /// What the writer says of the file: "format" is "pt" where tensors are PyTorch's.
  const Texts& metadata() const { return metadata_; }
  /// Of its header, byte for byte: what it says of its tensors, and metadata().
  uint64_t header_hash() const { return header_hash_; }
  /// Elements of tensor `name` from element `first` on, as many as `values` (on the cpu, of the tensor's dtype) has.
  void read(const std::string& name, int64_t first, const Tensor& values) const;
  void write(const std::string& name, int64_t first, const Tensor& values);
  /// The same of elements in host memory, on any thread.
  struct Elements {
    const void* begin;
    DType dtype;
    int64_t count;
  };
  void write(const std::string& name, int64_t first, const Elements& elements);
  /// Returns when everything written has reached the disk.
  void sync();

 private:
  void read_header();
  std::vector<std::pair<int64_t, int64_t>> understand(const std::string& text, int64_t data);
  int64_t place(const std::string& name, int64_t first, DType dtype, int64_t count) const;
  void read_bytes(void* to, size_t count, int64_t begin) const;
  [[noreturn]] void damaged(const std::string& what) const;
  std::string path_;
  int file_;
  std::map<std::string, Entry> tensors_;
  Texts unreadable_, metadata_;
  uint64_t header_hash_ = 0;
};

/// Makes or replaces a file with these tensors, whole and of any device, such as a module's state_dict() or what
/// fsdp::full_state_dict gives one rank. It is written beside, as `path`.tmp, and takes its name when the disk has it
/// all, so `path` is at any moment the file that was there before or this one. Of one rank. Throws Error(input) with
/// the path and the reason, the system's or create's.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& state,
                      const SafetensorsFile::Texts& metadata = {{"format", "pt"}});

}  // namespace shardgrad::train
