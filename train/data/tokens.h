#pragma once
// Texts as the numbers of their tokens, one after the other in a file, as nanoGPT (train.bin: u16 and nothing else) and
// llm.c (a header of 1024 bytes, then u16 or u32) write them, or as an array of integers (.npy). Sample i of length T
// are tokens [i T, i T + T), and its target are the tokens that follow each of them (token_windows.h):
//
//     tokens 5 1 4 2 8 3 7, T = 3:    inputs 5 1 4 | 2 8 3    targets 1 4 2 | 8 3 7
//
// Files of more than 256 MiB are read as they are needed, so they may be larger than memory.

#include <string>

#include <shardgrad/train/data/dataset.h>

namespace shardgrad::data {

struct TokenOptions {
  std::string train;
  std::string test;  ///< empty: the last samples of `train`, a share of test_share
  double test_share = 0.1;
  int64_t length = 256;     ///< T
  int token_bytes = 2;      ///< 2 or 4, in a file without llm.c's header, which says it
  int64_t vocabulary = 0;   ///< ids are below; 0: the tokenizer's, or whatever the files have
  std::string tokenizer{};  ///< that they are of (load_tokenizer), if it is known
};

/// Fields: inputs i64 (T), targets i64 (T), whose classes are the vocabulary. Reads both files once, for the largest
/// id. Throws Error(input), with path and value, for a file that is no whole number of tokens or not what its header
/// says, too short for a sample of each part, or with an id that is not in the vocabulary, or not in the tokenizer's.
Splits read_tokens(const TokenOptions& options);

}  // namespace shardgrad::data
