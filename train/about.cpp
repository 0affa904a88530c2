#include <shardgrad/train/about.h>

#include <filesystem>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/os/host_name.h>
#include <shardgrad/train/build_info.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>
#include <shardgrad/train/shallow_json.h>
#include <shardgrad/train/text.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const fsdp::Plan& plan) {
  Json peaks = Json::object(), units = Json::array();
  for (const auto& [category, bytes] : plan.peaks) peaks[category.name()] = bytes;
  for (const fsdp::UnitPlan& unit : plan.units)
    units.push_back({{"name", unit.name},
                     {"parameters", unit.parameters},
                     {"full_bytes", unit.full_bytes},
                     {"gathers", unit.gathers},
                     {"reductions", unit.reductions},
                     {"bytes_sent", unit.bytes_sent}});
  return {{"peak", plan.peak}, {"peaks", peaks}, {"bytes_sent", plan.bytes_sent}, {"units", units}};
}

Json json_of(const Result& end, const About& about) {
  Json json{
      {"stopped", end.stopped}, {"steps", end.steps}, {"seconds", end.seconds}, {"samples_per_s", about.samples_per_s}};
  if (end.step_bytes) json["step_bytes"] = *end.step_bytes;
  if (about.tokens_per_s > 0) json["tokens_per_s"] = about.tokens_per_s;
  return json;
}

}  // namespace

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string about_run(const About& about) {
  BuildInfo build = build_info();
  Json all{{"program", concat("shardgrad ", build.version, " (git ", build.git, ")")},
           {"compiler", build.compiler},
           {"oneDNN", build.onednn},
           {"CUDA", build.cuda},
           {"written", date_of_now()},
           {"host", dist::host_name()},
           {"ranks", about.world.size()},
           {"transport", about.world.kind()},
           {"threads", context().threads()},
           {"device", name_of(context().default_device().kind)},
           {"training_samples", about.data.train->size()},
           {"test_samples", about.data.test->size()},
           {"total_steps", about.total_steps},
           {"plan", json_of(about.predicted)}};
  if (about.end) all["end"] = json_of(*about.end, about);
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void forget_earlier(const std::string& folder, const std::string& text) {
  std::error_code ignored;
  std::filesystem::remove(folder + "/ledger.json", ignored);
  std::string path = folder + "/" + kAboutFile;
  Json old = std::filesystem::exists(path, ignored) ? parse_shallow(read_file(path, kRecord)) : Json(),
       now = Json::parse(text);
  for (const char* key : {"plan", "ranks", "device", "transport"})
    if (!old.is_object() || !old.contains(key) || old[key] != now[key])
      std::filesystem::remove(folder + "/trace.json", ignored);
}

}  // namespace shardgrad::train
