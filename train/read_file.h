#pragma once
// Reading small files whole, which somebody has named. A mistaken path, and a file that was made to do harm, must
// neither fill the memory nor wait for ever: a file has at most the bytes of its kind, and is a regular one.

#include <chrono>
#include <cstdint>
#include <string>

namespace shardgrad::train {

struct FileKind {
  const char* name;  ///< in a refusal
  int64_t most;      ///< bytes
  /// It may also be a pipe, such as a shell's <(…) and /dev/stdin. That can be read once, by one process.
  bool may_be_pipe = false;
};

inline constexpr int64_t kMebibyte = 1 << 20;
inline constexpr FileKind kConfiguration{"a configuration", 4 * kMebibyte, true};
inline constexpr FileKind kPrompts{"a file of prompts", 64 * kMebibyte, true};
inline constexpr FileKind kModelConfig{"the config.json of a model", 4 * kMebibyte};
inline constexpr FileKind kTensorIndex{"an index of tensors", 64 * kMebibyte};
inline constexpr FileKind kTokenizerText{"a file of a tokenizer", 128 * kMebibyte};
/// What a run leaves: latest, best, lock; run.json, about.json, ledger.json, config.json; trace.json; metrics.jsonl.
inline constexpr FileKind kNote{"a note of a run", 4096};
inline constexpr FileKind kRecord{"a record of a run", 64 * kMebibyte};
inline constexpr FileKind kTrace{"a trace", 256 * kMebibyte};
inline constexpr FileKind kMetrics{"a file of metrics", 1024 * kMebibyte};

/// All of it. Throws Error(input) with the path, what is there and what may be: for a file larger than its kind, for
/// what is neither a regular file nor, where it may be one, a pipe; and for a pipe that has not given everything within
/// `patience`, that gives nothing, or that each of several launched ranks would have to read.
std::string read_file(const std::string& path, const FileKind& kind,
                      std::chrono::milliseconds patience = std::chrono::seconds(30));

/// Opens a regular file, at once, and returns its descriptor. Throws Error(input) naming the path for what cannot be
/// opened ("cannot `verb` …"), and what is none: a folder, a pipe, a device; to which `remedy` is added, "; name …".
int open_regular(const char* verb, const std::string& path, int flags, const char* remedy = "");

}  // namespace shardgrad::train
