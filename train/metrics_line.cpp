#include <shardgrad/train/metrics_line.h>

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/train/appended_file.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/read_file.h>

namespace shardgrad::train {

using Json = nlohmann::ordered_json;

std::string to_json_line(const Metrics& m) {
  auto finite = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  Json line{{"step", m.step}, {"epoch", m.epoch}, {"samples", m.samples}, {"loss", finite(m.loss)}};
  for (const Score& score : m.scores) line["test_" + score.name] = finite(score.value);
  line["test_count"] = m.test_count;
  line["lr"] = finite(m.lr);
  line["grad_norm"] = m.grad_norm ? finite(*m.grad_norm) : Json(nullptr);
  if (m.skipped_steps > 0) line["skipped_steps"] = m.skipped_steps;
  line["seconds"] = finite(m.seconds);
  line["samples_per_s"] = finite(m.samples_per_s);
  if (m.tokens_per_s > 0) line["tokens_per_s"] = finite(m.tokens_per_s);
  if (m.flops_per_s > 0) line["gflops_per_s"] = finite(m.flops_per_s / 1e9);
  line["peak_bytes"] = m.peak_bytes;
  return line.dump();
}

Metrics parse_line(const std::string& text) {
  Json line = Json::parse(text);
  auto number = [&](const char* key) {
    auto found = line.find(key);
    return found != line.end() && found->is_number() ? found->get<double>() : std::nan("");
  };
  auto count = [&](const char* key) { return line.value(key, int64_t(0)); };
  auto amount = [&](const char* key) { return line.contains(key) ? number(key) : 0; };
  Metrics m{.step = count("step"), .epoch = count("epoch"), .samples = count("samples"), .loss = number("loss")};
  m.lr = number("lr");
  if (line.contains("grad_norm") && line["grad_norm"].is_number()) m.grad_norm = number("grad_norm");
  m.skipped_steps = count("skipped_steps");
  m.seconds = number("seconds");
  m.samples_per_s = number("samples_per_s");
  m.tokens_per_s = amount("tokens_per_s");
  m.flops_per_s = 1e9 * amount("gflops_per_s");
  m.peak_bytes = count("peak_bytes");
  return m;
}

// The step that a line is of; nothing for what is no such line.
static std::optional<int64_t> step_of(const std::string& line) {
  Json metrics = Json::parse(line, nullptr, false);
  bool of_a_step = metrics.is_object() && metrics.contains("step") && metrics["step"].is_number_integer();
  return of_a_step ? std::optional(metrics["step"].get<int64_t>()) : std::nullopt;
}

int64_t keep_up_to(int64_t step, const std::string& path) {
  constexpr size_t kBlock = 1 << 20;
  std::string unfinished = path + ".tmp", block;
  close(open_regular("read", path, O_RDONLY));
  std::ifstream lines(path);
  write_file(unfinished, "");
  AppendedFile kept(unfinished);
  int64_t damaged = 0;
  for (std::string line; std::getline(lines, line);) {
    std::optional<int64_t> its = step_of(line);
    damaged += !its && !lines.eof();  // the last one may be half written
    if (its && *its <= step) block += line + "\n";
    if (block.size() > kBlock) {
      kept.add(block);
      block.clear();
    }
  }
  bool all_read = lines.eof();  // else the disk has failed
  kept.add(block);
  if (!all_read || kept.missing() > 0) {
    unlink(unfinished.c_str());
    fail(all_read ? kept.trouble() : concat("cannot read '", path, "': its disk fails"));
  }
  rename_when_safe(unfinished, path);
  return damaged;
}

std::string damaged_lines(const std::string& path, int64_t count) {
  return concat("'", path, "': ", count, count == 1 ? " line is" : " lines are", " damaged and left out");
}

}  // namespace shardgrad::train
