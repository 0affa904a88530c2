#include <shardgrad/train/registry.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/built_in.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {
namespace {

template <class Entries> std::vector<std::string> names_of(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries) names.push_back(name);
  return names;
}

template <class Entries>
const auto& entry_of(const std::string& kind, const Entries& entries, const std::string& name) {
  auto found = entries.find(name);
  if (found != entries.end()) return found->second;
  std::string list;
  for (const std::string& each : names_of(entries)) list += concat(list.empty() ? "" : ", ", each);
  fail(kind, ".name is '", shortened(name), "'; there are ", list);
}

template <class Entry> OptionSet with_values(const std::string& kind, const Entry& entry, const Component& component) {
  OptionSet set = entry.options();
  for (const auto& [key, json] : component.options) {
    const Option* option = set.list.find(key);
    SG_CHECK(option, kind, " '", component.name, "' has no option '", shortened(key), "'");
    SG_CHECK(option->assign(json), kind, ".", key, " is ", shortened(json), ", expected ", option->expected);
  }
  return set;
}

template <class Kind, class... Given>
auto make_of(const std::string& kind, const Kind& all, const Component& component, const Given&... given) {
  const auto& entry = entry_of(kind, all.entries(), component.name);
  return entry.make(with_values(kind, entry, component).values.get(), given...);
}

}  // namespace

Registry::Registry() { register_built_in(*this); }

void Registry::load(const std::string& library) {
  std::error_code unknown;
  bool file = std::filesystem::exists(library, unknown);
  if (file) close(open_regular("load", library, O_RDONLY, "; name a shared library"));  // a pipe would wait
  load_kernels(library);
  void* handle = dlopen((file ? std::filesystem::absolute(library).string() : library).c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* call = handle ? reinterpret_cast<void (*)(Registry&)>(dlsym(handle, "shardgrad_register")) : nullptr;
  if (call) call(*this);
}

Model Registry::make_model(const Component& model) const { return make_of("model", models_, model); }

data::Splits Registry::open_data(const Component& data, uint64_t seed) const {
  data::Splits splits = make_of("data", data_, data, seed);
  SG_CHECK(splits.train && splits.test, "data '", data.name, "' gave no samples to ", splits.train ? "test" : "train",
           " on");
  SG_CHECK(!splits.train->fields().empty(), "data '", data.name,
           "' gave samples without fields; a sample has one value at least, such as an input");
  SG_CHECK(splits.train->fields() == splits.test->fields(), "data '", data.name,
           "' has other fields (shapes or dtypes) to test on than to train on");
  return splits;
}

data::Outline Registry::outline_of(const Component& data, uint64_t seed) const {
  auto known = outlines_.find(data.name);
  bool unknown = known == outlines_.end() || known->second.fields.empty();
  return unknown ? open_data(data, seed).outline() : known->second;
}

std::unique_ptr<Task> Registry::make_task(const Component& task, const Component& model) const {
  std::optional<Model> made;
  if (!has_own_model(task.name)) made = make_model(model);
  std::unique_ptr<Task> task_made = make_of("task", tasks_, task, made);
  SG_CHECK(task_made, "the maker of task '", task.name, "' gave none");
  return task_made;
}

template <class Call> auto Registry::of_kind(const std::string& kind, const Call& call) const {
  return kind == "data" ? call(data_.entries()) : kind == "model" ? call(models_.entries()) : call(tasks_.entries());
}

std::vector<std::string> Registry::names(const std::string& kind) const {
  return of_kind(kind, [](const auto& entries) { return names_of(entries); });
}

OptionSet Registry::options(const std::string& kind, const Component& component) const {
  return of_kind(
      kind, [&](const auto& entries) { return with_values(kind, entry_of(kind, entries, component.name), component); });
}

std::string Registry::description(const std::string& kind) const {
  return of_kind(kind, [](const auto& entries) {
    std::string text;
    for (const auto& [name, entry] : entries)
      text += concat(text.empty() ? "" : ", ", "`", name, "` (", entry.meaning, ")");
    return text;
  });
}

}  // namespace shardgrad::train
