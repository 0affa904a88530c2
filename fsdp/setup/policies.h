#pragma once
// Which submodules become units: functions of a module, for Config::wrap.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <shardgrad/nn/module.h>

namespace shardgrad::fsdp {

/// Decides for a submodule whether it becomes a unit of its own. `name` is that below the module that is sharded, and
/// empty for this one; `numel` counts the parameters below it that no deeper unit has taken. Asked once of every module
/// that has a forward, those inside a module before it; the root, asked last, is a unit anyway.
using WrapPolicy = std::function<bool(const nn::Module& module, const std::string& name, int64_t numel)>;

/// Units of at least `min_numel` parameters, built from the leaves up. The inside of a module of one of the types
/// `whole` is not divided, and one of the types `never` is no unit itself: FairScale's force_leaf_modules and
/// exclude_wrap_modules.
WrapPolicy wrap_by_size(int64_t min_numel, std::vector<std::string> whole = {}, std::vector<std::string> never = {});
/// One unit for every module of one of the types, e.g. wrap_by_type({"Block"}), or whose name below the sharded module
/// matches one of the patterns (autograd/match.h), e.g. wrap_by_name({"blocks.?", "head"}), or all of which is matched
/// by one of the regular expressions (ECMAScript's), e.g. wrap_by_regex({R"(blocks\.[0-9]+)"}). Of a module and one
/// inside it that are both chosen, the inner one takes its parameters first. fully_shard throws Error(input) listing
/// those that choose no module; wrap_by_regex itself does for what is no regular expression.
WrapPolicy wrap_by_type(std::vector<std::string> types);
WrapPolicy wrap_by_name(std::vector<std::string> patterns);
WrapPolicy wrap_by_regex(std::vector<std::string> expressions);
/// What any of them chooses; each is asked.
WrapPolicy wrap_any(std::vector<WrapPolicy> policies);

}  // namespace shardgrad::fsdp
