#pragma once
// Scalars of a run as TensorBoard reads them (key tensorboard): a file in the run's folder for each time that the run
// began or went on, of records that each hold one message:
//
//     length of the message, u64 · masked CRC-32C of these 8 bytes, u32 · message · masked CRC-32C of it, u32
//
// little-endian; the mask of c is (c rotated right by 15) + 0xa282ead8 (tensorflow/core/lib/io/record_writer.h,
// tensorflow/core/lib/hash/crc32c.h). A message is an Event in the wire format of protocol buffers
// (https://protobuf.dev/programming-guides/encoding), with the fields of tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto that are listed in tensorboard.cpp.

#include <cstdint>
#include <string>

#include <shardgrad/train/appended_file.h>
#include <shardgrad/train/callback.h>

namespace shardgrad::train {

class TensorBoard {
 public:
  /// Begins a file in `folder`, events.out.tfevents.SECONDS.HOST.PID.NUMBER. The run goes on after `step`: what earlier
  /// files there say of later ones counts no more. Throws Error(input) when the file cannot be made.
  TensorBoard(const std::string& folder, int64_t step);
  const std::string& path() const { return file_.path(); }
  AppendedFile& file() { return file_; }
  /// The line's scalars, by the names of metrics.jsonl: loss, lr, samples_per_s and, where they are known, grad_norm
  /// and each test_NAME.
  void on_logged(const Metrics& metrics);

 private:
  void write(const std::string& event);
  AppendedFile file_;
};

}  // namespace shardgrad::train
