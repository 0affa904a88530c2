#include <shardgrad/train/checkpoint/manifest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <shardgrad/autograd/match.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/shallow_json.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormat = 2;  // 1 had no hashes of headers, nor one of its own text

// What may differ between the run that was saved and the one that goes on.
bool may_change(const std::string& key) {
  constexpr const char* kFree[] = {"name",         "device",           "preset",
                                   "data.dir",     "strategy",         "fsdp.*",
                                   "autocast",     "model.recompute",  "model.recompute_regex",
                                   "libraries",    "kernels.*",        "runs",
                                   "epochs",       "on_nan",           "sanity_steps",
                                   "log_interval", "log_steps",        "save_every",
                                   "save_minutes", "save_beside",      "keep",
                                   "keep_best",    "trace_steps",      "tensorboard",
                                   "resume",       "stall_limit",      "steps",
                                   "eval_every",   "early_stop",       "init_from",
                                   "data.path",    "data.tokenizer",   "data.inputs",
                                   "data.targets", "data.test_inputs", "data.test_targets",
                                   "data.train",   "data.test",        "graph"};
  return std::ranges::any_of(kFree, [&](const char* pattern) { return matches(pattern, key); });
}

std::map<std::string, Json> by_key(const Json& config) {
  std::map<std::string, Json> values;
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object())
      values[key] = value;
    else
      for (const auto& [inner, part] : value.items()) values[key + "." + inner] = part;
  }
  return values;
}

Json texts_of(const Hashes& hashes) {
  Json texts = Json::object();
  for (const auto& [name, hash] : hashes) texts[name] = hash_text(hash);
  return texts;
}

Hashes hashes_of(const Json& texts) {
  Hashes hashes;
  for (const auto& [name, text] : texts.items()) hashes[name] = parse_hash(text.get<std::string>());
  return hashes;
}

// Of all that stands before it.
std::string check_of(Json about) {
  about.erase("check");
  return hash_text(text_hash(about.dump()));
}

void check_text(const Json& about) {
  SG_CHECK(about.at("check") == check_of(about), "it is not what was saved: its check is not that of its text. ",
           kOlderCheckpoint);
}

// Of a checkpoint that has lost it, too: there may be another one.
Json object_of(const std::string& folder) {
  try {
    return read_object(folder + "/run.json", kRecord);
  } catch (const Error& error) {
    fail(error.what(), ". ", kOlderCheckpoint);
  }
}

Manifest understand(const Json& about) {
  SG_CHECK(!about.is_object() || !about.contains("step") || about.contains("format"),
           "it was written by an older shardgrad, without hashes; begin with init_from its model.safetensors");
  int64_t format = about.at("format");
  SG_CHECK(format >= 1 && format <= kFormat, "it is in format ", format,
           ", written by a newer shardgrad; this one reads up to ", kFormat);
  if (format > 1) check_text(about);
  Manifest manifest;
  manifest.reached = {
      about.at("step"), about.at("samples"), about.at("data"), {about.at("loss_scale"), about.at("good_steps")}};
  manifest.reached.test_data = about.value("test_data", uint64_t(0));
  manifest.reached.total_steps = about.value("total_steps", manifest.reached.step);
  if (about.contains("best"))
    manifest.reached.best = Best{about.at("best"), about.value("worse", int64_t(0)),
                                 about.value("plateaus", int64_t(0)), about.value("best_step", int64_t(0))};
  manifest.reached.ended = about.value("ended", "");
  if (about.contains("pending")) manifest.reached.pending = about["pending"].dump();
  manifest.config = about.at("config").dump();
  manifest.model = hashes_of(about.at("hashes").at("model"));
  manifest.optimizer = hashes_of(about.at("hashes").at("optimizer"));
  if (format > 1) {
    Hashes headers = hashes_of(about.at("headers"));
    manifest.headers = {headers.at("model"), headers.at("optimizer")};
  }
  return manifest;
}

}  // namespace

std::string Manifest::hash() const { return hash_text(hash_of(model) ^ hash_of(optimizer) * 3); }

std::string to_json(const Manifest& manifest) {
  const Reached& reached = manifest.reached;
  Json about{{"format", kFormat},
             {"step", reached.step},
             {"samples", reached.samples},
             {"data", reached.data},
             {"test_data", reached.test_data},
             {"loss_scale", reached.scaler.factor},
             {"good_steps", reached.scaler.good_steps}};
  about["total_steps"] = reached.total_steps;
  if (const auto& best = reached.best)
    about.update(
        {{"best", best->value}, {"worse", best->worse}, {"plateaus", best->plateaus}, {"best_step", best->step}});
  if (!reached.ended.empty()) about["ended"] = reached.ended;
  if (!reached.pending.empty()) about["pending"] = Json::parse(reached.pending);
  about["config"] = Json::parse(manifest.config);
  about["hash"] = manifest.hash();
  about["hashes"] = {{"model", texts_of(manifest.model)}, {"optimizer", texts_of(manifest.optimizer)}};
  auto [model, optimizer] = manifest.headers.value();
  about["headers"] = texts_of({{"model", model}, {"optimizer", optimizer}});
  about["check"] = check_of(about);
  return about.dump(2) + "\n";
}

Manifest read_manifest(const std::string& folder) {
  Json about = object_of(folder);
  try {
    return understand(about);
  } catch (const Json::exception& error) {
    fail("'", folder, "/run.json' is damaged: ", in_words(error), ". ", kOlderCheckpoint);
  } catch (const Error& error) {
    fail("'", folder, "/run.json': ", error.what());
  }
}

void tell_reached(const std::string& folder, const Reached& reached) {
  Manifest manifest = read_manifest(folder);
  std::string before = to_json(manifest);
  SG_ASSERT(manifest.reached.step == reached.step, "'", folder, "' is of another step than ", reached.step);
  manifest.reached = reached;
  if (std::string now = to_json(manifest); now != before) replace_file(folder + "/" + kManifestFile, now);
}

void check_same_run(const std::string& folder, const Manifest& manifest, const Config& now) {
  std::map<std::string, Json> before = by_key(Json::parse(manifest.config)), after = by_key(Json::parse(to_json(now)));
  if (before.contains("loss")) before.emplace("task.loss", before["loss"]);  // its name until there were tasks
  Config defaults;                                                           // of keys that were not known then
  defaults.registry = now.registry;
  for (auto kind : {&Config::data, &Config::model, &Config::task}) (defaults.*kind).name = (now.*kind).name;
  before.merge(by_key(Json::parse(to_json(defaults))));
  // A key with a default that is not there had no meaning then; what gave it one is named.
  auto had_meaning = [options = list_options(defaults), &before](const std::string& key) {
    const Option* option = options.find(key);
    return before.contains(key) || !option || option->json().empty();
  };
  std::string faults;
  for (const auto& [key, value] : after) {
    if (may_change(key) || !had_meaning(key)) continue;
    std::string was = before.contains(key) ? shortened(before[key].dump()) : "not set";
    if (!before.contains(key) || before[key] != value)
      faults += concat("\n  ", key, " is ", shortened(value.dump()), ", was ", was);
  }
  SG_CHECK(faults.empty(), "'", folder, "' was saved by another run, which this one cannot go on with:", faults,
           "\nset another name, or the old values");
}

}  // namespace shardgrad::train
