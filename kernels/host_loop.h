#pragma once
// For kernels of device cpu that are compiled outside the library, with its threads whatever their compiler's options.

#include <cstdint>
#include <functional>

#include <shardgrad/kernels/table.h>

namespace shardgrad::kernels {

/// Calls body(begin, end) for ranges that make up [0, n), n elements of cheap work, on the threads that the kernel may
/// use. body must not throw.
void host_loop(const Launch& how, int64_t n, const std::function<void(int64_t, int64_t)>& body);

}  // namespace shardgrad::kernels
