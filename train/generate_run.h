#pragma once
// Text from what was trained.

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/train/config.h>
#include <shardgrad/train/generate.h>

namespace shardgrad::train {

struct TextRequest {
  std::vector<std::string> prompts;
  GenerateOptions options = {};
  std::optional<DType> dtype = {};  ///< of the weights, narrower than they are saved; empty: as they are saved
};

/// Prompts and what the model says after them: of one prompt as it comes, of several each as a whole with an empty line
/// between. `from` is a run, one of its checkpoints, or a Hugging Face folder; `config` is the run's. A text ends where
/// the tokenizer says that texts end. Rank 0 writes to `out`, and to `notes` how fast that was. One rank keeps the
/// whole model; several share it as the config's strategy says. A collective. Throws Error(input) like evaluate_run,
/// where there is no language model or no tokenizer, and as generate.
void generate_run(Config config, const std::string& from, dist::ProcessGroup& world, const TextRequest& request,
                  std::ostream& out, std::ostream& notes);

}  // namespace shardgrad::train
