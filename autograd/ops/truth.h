#pragma once
// Answers to questions about the elements of tensors.

#include <shardgrad/core/tensor.h>

namespace shardgrad {

/// What a comparison gives, and every other question: a tensor of u8, 1 for yes. As a condition it must have one
/// element: `if (loss.sum() > 3)`. Of several say any(…) or all(…), and logical_and or & in the place of &&.
class Truth : public Tensor {
 public:
  Truth() = default;
  explicit Truth(Tensor answers) : Tensor(std::move(answers)) {}
  /// Waits for the device. Throws Error(input) unless it has one element.
  explicit operator bool() const;
};

}  // namespace shardgrad
