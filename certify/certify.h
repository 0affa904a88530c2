#pragma once
// Does an operation keep the promises of the kernel contract on a device? All its cases of the registry are tried:
//
//     gradient      agrees with central differences, in f64
//     oracle        results and gradients in f32, f64, bf16 and f16 agree with those of the reference kernels in f64;
//                   where a library's own kernels have none, with its kernels for the CPU, and a note says so
//     built-in      … and in f32 with the kernels that were replaced, where some were
//     beta          gradients overwrite what was in memory, without reading it, or add to it, as they were told; so
//                   does each kernel of forward but paste, which writes a part
//     inputs        are as they were, and so are the operands of each kernel
//     determinism   the same bits twice
//     special values  NaN, infinities, zeros, subnormals, and where exp leaves the dtype (±88 to ±104 in f32), come out
//                   as the reference has them in each of these dtypes; a subnormal may be kept or become a zero;
//                   a note names dtypes in which the CPU has no kernel to compare with
//     sizes         all but the first hold where a vector, a warp, a block or a tile ends too, and on both sides of the
//                   sizes at which the CPU changes its way, also on inputs aligned to their element only; of special
//                   values all in f32 on aligned inputs but of slow cases, else NaN and -infinity
//
// A kernel library can be certified before it is used: `replace` runs after the comparison values are computed.

#include <functional>
#include <string>
#include <vector>

#include <shardgrad/certify/registry.h>
#include <shardgrad/core/device.h>

namespace shardgrad {

struct Certificate {
  struct Property {
    std::string name;
    std::string failure;    ///< the first one, with case, dtype and place; empty: it holds
    std::string note = "";  ///< what limits its word
  };
  int cases = 0;
  std::vector<Property> properties;
  bool holds() const;
};

/// Compares the gradients of a case, in f64, with central differences; throws Error(input) naming the worst element.
void gradcheck_case(const OpCase& op, Device device);

/// Tries a case of Purpose::sizes; throws Error(input) naming the place of what is wrong.
void try_size_case(const OpCase& op, Device device);

/// Tries NaN, infinities, zeros, subnormals and the ends of exp, as a certificate does for such a case; throws
/// Error(input) naming the place of what is wrong.
void try_special_values(const OpCase& op, Device device);

/// The kernels of a library that `op` launches and that this kind of device lacks, by name; empty where it has them
/// all.
std::string missing_kernels(const std::string& op, DeviceKind device);

/// Throws Error(input) when the registry has no case of `op`.
Certificate certify(const std::string& op, Device device, const std::function<void()>& replace = {});

}  // namespace shardgrad
