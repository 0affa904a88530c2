#pragma once
// Ends a run whose score has not become better for some evaluations. The scores are the same on every rank, and so is
// what follows from them.

#include <string>

#include <shardgrad/core/error.h>
#include <shardgrad/train/callback.h>

namespace shardgrad::train {

class EarlyStop : public Callback {
 public:
  explicit EarlyStop(int64_t patience) : patience_(patience) {}
  void on_eval(const Evaluated& evaluated) override {
    worse_ = evaluated.worse;
    name_ = evaluated.scores[0].name;
  }
  std::string reason_to_end() override {
    return worse_ < patience_ ? "" : concat("no better ", name_, " in ", worse_, " evaluations (early_stop)");
  }

 private:
  int64_t patience_, worse_ = 0;
  std::string name_;
};

}  // namespace shardgrad::train
