#include <shardgrad/train/evaluate_run.h>

#include <shardgrad/train/build.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/notes.h>
#include <shardgrad/train/start.h>
#include <shardgrad/train/text.h>
#include <shardgrad/train/trained.h>
#include <shardgrad/train/waiting_line.h>

namespace shardgrad::train {

// Scores of inputs or labels that mean something else than when the model was trained would be no scores of it.
static void check_data(const Config& config, const SafetensorsFile::Texts& metadata, const data::Splits& data) {
  for (const auto& [key, now] : notes_of(data)) {
    auto then = metadata.find(key);
    SG_CHECK(then == metadata.end() || then->second == now, "data '", config.data.name, "' has other ", key,
             " than those that the model was trained on: ", shortened(now), ", was ", shortened(then->second),
             "; ask about other samples with predict");
  }
}

Evaluation evaluate_run(const Config& config, const std::string& run, dist::ProcessGroup& world, std::ostream& out,
                        const Terminal& terminal) {
  check_ranks(config, world, "eval");
  std::optional<WaitingLine> waiting(std::in_place, "reading the data", out, terminal);
  data::Splits data = open_data(config);
  Trained trained(config, run, world);
  check_data(config, trained.metadata, data);
  trained.task->prepare(data.fields());
  data::DataLoader test = make_loader(config, world, data.test, false);
  waiting.emplace("evaluating", out, terminal);
  Evaluation evaluation = evaluate(*trained.task, test, world, forward_dtype(config));
  waiting.reset();
  if (world.rank() != 0) return evaluation;
  out << "eval:";
  for (const Score& score : evaluation.scores) out << " test_" << score.name << "=" << format_fixed(score.value, 4);
  out << concat(" samples=", evaluation.count, " step=", trained.step, " run=") << run << std::endl;
  return evaluation;
}

}  // namespace shardgrad::train
