#pragma once
// Recompute of modules: what happens inside a chosen module's calls is not kept for backward but computed
// again there. One call after the model is built; the model's code stays as it is.
//
//     nn::recompute(*model->encoder);
//     nn::recompute_by_name(*model, {"blocks.*"}, {.offload_inputs = true});
//     nn::recompute_by_type(*model, {"Block", "Head"});

#include <string>
#include <vector>

#include <shardgrad/nn/module.h>

namespace shardgrad::nn {

/// Recomputes every call of `module`. Its hooks, and so the gathers of a sharded unit, stay outside: forward and
/// backward gather it once each. `options.name` is the module's unless given.
void recompute(Module& module, RecomputeOptions options = {});
/// Recomputes the modules below `root` whose names match a pattern (autograd/match.h). What lies below a chosen module
/// is part of it and not chosen again. Throws Error(input) listing the patterns that choose nothing.
void recompute_by_name(Module& root, const std::vector<std::string>& patterns, RecomputeOptions options = {});
/// The same by regular expressions, each of which matches the whole of a name.
void recompute_by_regex(Module& root, const std::vector<std::string>& expressions, RecomputeOptions options = {});
/// The same by type names without namespaces, such as "Linear".
void recompute_by_type(Module& root, const std::vector<std::string>& types, RecomputeOptions options = {});

}  // namespace shardgrad::nn
