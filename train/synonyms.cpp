#include <shardgrad/train/synonyms.h>

#include <algorithm>

namespace shardgrad::train {
namespace {

constexpr const char *kPrecision = "\"bf16-mixed\" is bf16, \"16-mixed\" is f16, 32 is off",
                     *kParts = "batch counts the samples of all of them, and of all ranks",
                     *kBatch = "it counts the samples of all ranks together",
                     *kNorm = "of all gradients together; 0: none", *kEval = "in steps; 0: at the end of every epoch",
                     *kFolder = "the folder of all runs; this one's is `runs`/`name`",
                     *kResume = "true: goes on in `runs`/`name` from its last checkpoint";

const std::vector<Synonym> kSynonyms{{"max_steps", "steps"},
                                     {"num_steps", "steps"},
                                     {"total_steps", "steps"},
                                     {"train_steps", "steps"},
                                     {"max_iters", "steps"},
                                     {"max_epochs", "epochs"},
                                     {"num_epochs", "epochs"},
                                     {"num_train_epochs", "epochs"},
                                     {"batch_size", "batch", kBatch},
                                     {"train_batch_size", "batch", kBatch},
                                     {"per_device_train_batch_size", "batch", kBatch},
                                     {"precision", "autocast", kPrecision},
                                     {"mixed_precision", "autocast", kPrecision},
                                     {"fp16", "autocast", "true is f16, false is off"},
                                     {"bf16", "autocast", "true is bf16, false is off"},
                                     {"accumulate_grad_batches", "micro_batches", kParts},
                                     {"gradient_accumulation_steps", "micro_batches", kParts},
                                     {"gradient_clip_val", "clip_grad_norm", kNorm},
                                     {"gradient_clipping", "clip_grad_norm", kNorm},
                                     {"grad_clip", "clip_grad_norm", kNorm},
                                     {"max_norm", "clip_grad_norm", kNorm},
                                     {"val_check_interval", "eval_every", kEval},
                                     {"check_val_every_n_epoch", "eval_every", kEval},
                                     {"eval_steps", "eval_every", kEval},
                                     {"eval_interval", "eval_every", kEval},
                                     {"log_every_n_steps", "log_interval"},
                                     {"logging_steps", "log_interval"},
                                     {"log_every", "log_interval"},
                                     {"save_steps", "save_every"},
                                     {"save_interval", "save_every"},
                                     {"every_n_train_steps", "save_every"},
                                     {"save_top_k", "keep"},
                                     {"save_total_limit", "keep"},
                                     {"output_dir", "runs", kFolder},
                                     {"default_root_dir", "runs", kFolder},
                                     {"ckpt_path", "resume", kResume},
                                     {"resume_from_checkpoint", "resume", kResume},
                                     {"lr_scheduler_type", "schedule.name"},
                                     {"optim", "optimizer.name"},
                                     {"hidden", "model.layers", "inputs, hidden layers and outputs: [784,128,10]"},
                                     {"hidden_size", "model.layers", "inputs, hidden layers and outputs"},
                                     {"hidden_sizes", "model.layers", "inputs, hidden layers and outputs"}};

}  // namespace

const std::vector<Synonym>& synonyms() { return kSynonyms; }

const Synonym* synonym_of(const std::string& word) {
  for (const std::string& part : {word, word.substr(word.rfind('.') + 1)})
    for (const Synonym& synonym : synonyms())
      if (part == synonym.word) return &synonym;
  return nullptr;
}

}  // namespace shardgrad::train
