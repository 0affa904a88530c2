#pragma once
// DLPack: tensors handed from one library to another without a copy (dmlc.github.io/dlpack/latest/c_api.html, version
// 1.0, whose structs these are, byte by byte). Who gets one calls its deleter when it needs the memory no more.
//
//     dlpack::Versioned* lent = dlpack::lend(x);        // x's memory stays, and cannot be released, until …
//     lent->deleter(lent);                              // … this
//     Tensor y = dlpack::borrow(theirs);                // calls theirs->deleter when no tensor needs it

#include <cstdint>

#include <shardgrad/core/tensor.h>

namespace shardgrad::dlpack {

enum class DeviceType : int32_t { cpu = 1, cuda = 2, cuda_host = 3 };
enum class Code : uint8_t { integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4, boolean = 6 };

struct DeviceOf {
  DeviceType type;
  int32_t id;
};
struct ElementType {
  Code code;
  uint8_t bits;
  uint16_t lanes;
};
struct Array {
  void* data;
  DeviceOf device;
  int32_t ndim;
  ElementType dtype;
  int64_t* shape;
  int64_t* strides;  ///< in elements; null: row-major without gaps
  uint64_t byte_offset;
};

/// What libraries exchanged before version 1.0.
struct Managed {
  Array array;
  void* owner;
  void (*deleter)(Managed*);
};
inline constexpr uint64_t kReadOnly = 1, kCopied = 2;
struct Versioned {
  uint32_t major = 1, minor = 0;
  void* owner;
  void (*deleter)(Versioned*);
  uint64_t flags = 0;
  Array array;
};

/// Lends x's memory. It is leased to `holder` (Storage::lease) until the deleter runs, on any thread. Writes through it
/// are not seen by Tensor::version. Throws Error(input) where x requires grad (detach() it), is not in memory, or is on
/// a device that DLPack has no name for.
Versioned* lend(const Tensor& x, const char* holder = "DLPack");
Managed* lend_unversioned(const Tensor& x, const char* holder = "DLPack");

/// A tensor on memory that is lent, of the host or of a GPU (from_blob says when that must be ready). Throws
/// Error(input), having called no deleter, for another version than 1, a dtype or device that cannot be had, elements
/// with gaps or in another order, and memory that is read-only.
Tensor borrow(Versioned* lent);
Tensor borrow(Managed* lent);
/// A row-major copy, of the host's memory also of what has gaps or is read-only. Calls no deleter.
Tensor copy_of(const Array& array);

/// For the protocol's __dlpack_device__. Throws Error(input) as lend.
DeviceOf device_of(const Tensor& x);
/// The device of this context that has such memory. Throws Error(input) where there is none.
Device device_of(DeviceOf memory);

}  // namespace shardgrad::dlpack
