#pragma once
// All keys of a configuration, with those of every data set, model and task.

#include <functional>
#include <string>

#include <shardgrad/train/config.h>

namespace shardgrad::train {

/// "data" of "data.dir"; empty for a key that is none of a component's.
std::string kind_of(const std::string& key);

/// Calls `visit` for each key that the config's registry knows; `of`: to whose options it belongs, or empty.
void visit_keys(const Config& given,
                const std::function<void(const std::string& key, const Option& option, const std::string& of)>& visit);

/// The keys that have `word` in their name or meaning, or all where it is empty, each with its default and what it
/// means, in lines of at most so many letters. key_table (config.h) is for documents.
std::string key_list(const Registry& registry, const std::string& word, int columns);

}  // namespace shardgrad::train
