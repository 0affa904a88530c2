#pragma once

#include <string>
#include <utility>
#include <vector>

#include <shardgrad/nn/module.h>

namespace shardgrad::train {

/// A module and those in it are in evaluation mode for a scope, and afterwards each in the mode that it was in: some
/// may be in evaluation mode to stay so, such as a BatchNorm whose statistics are not to change.
class EvaluationMode {
 public:
  explicit EvaluationMode(nn::Module& module) : modules_(module.named_modules()) {
    for (const auto& [name, inner] : modules_) trained_.push_back(inner->training());
    module.eval();
  }
  ~EvaluationMode() {
    for (size_t i = 0; i < modules_.size(); ++i) modules_[i].second->train(trained_[i]);  // a module before those in it
  }
  EvaluationMode(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::string, nn::Module*>> modules_;
  std::vector<bool> trained_;
};

}  // namespace shardgrad::train
