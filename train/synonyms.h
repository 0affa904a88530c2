#pragma once
// What other tools call a key of ours, for hints. These words are refused, for their values mean something else here;
// those that are accepted are in alias_list.h, and no word is in both.

#include <string>
#include <vector>

namespace shardgrad::train {

struct Synonym {
  const char* word;
  const char* key;
  const char* note = "";  ///< how a value becomes one of ours; empty: as it is
};

const std::vector<Synonym>& synonyms();
/// Of a word, or of its last part: "trainer.max_epochs". Null where there is none.
const Synonym* synonym_of(const std::string& word);

}  // namespace shardgrad::train
