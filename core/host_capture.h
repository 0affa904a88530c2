#pragma once
// Captures of the emulated devices: a list of what streams of the host were given, and in what order. A replay gives it
// to them again. So a captured step that would go wrong on a GPU goes wrong on `acc` and `sim`, where memory that is
// nobody's any more is poisoned and the happens-before checker looks at each replay.

#include <memory>

#include <shardgrad/core/capture.h>
#include <shardgrad/core/capture_memory.h>

namespace shardgrad {

std::unique_ptr<Capture> make_host_capture(Backend& backend, Ref<CaptureMemory> memory);

}  // namespace shardgrad
