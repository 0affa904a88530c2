#pragma once
// The `shardgrad` program with what a user adds to it:
//
//     int main(int argc, char** argv) {
//       train::Registry registry;
//       registry.add_model("net", "my model", [] { return nn::make<Net>(); });
//       return train::program(argc, argv, registry);
//     }

#include <shardgrad/train/registry.h>

namespace shardgrad::train {

/// Runs a command line (train, plan, launch, certify, new; --help lists them) and returns the exit code: 0 done, 2
/// refused input, 3 missing device or library, 4 a rank failed, 5 out of memory, 75 saved on a signal. The first call
/// of a main(): it may start the process anew, with settings that only a new one takes.
int program(int argc, char** argv, const Registry& registry = {});

}  // namespace shardgrad::train
