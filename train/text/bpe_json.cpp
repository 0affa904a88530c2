#include <nlohmann/json.hpp>

#include <shardgrad/train/text/bpe_file.h>
#include <shardgrad/train/text/byte_level.h>

namespace shardgrad::text {

std::string bpe_json(const NewBpe& bpe) {
  using Json = nlohmann::ordered_json;
  Json added = Json::array(), merges = Json::array();
  Json::object_t vocabulary;  // by id, and without a search for each name
  for (size_t id = 0; id < bpe.tokens.size(); ++id) vocabulary.emplace_back(to_letters(bpe.tokens[id]), id);
  for (const Merge& merge : bpe.merges)
    merges.push_back(to_letters(bpe.tokens[merge.left]) + " " + to_letters(bpe.tokens[merge.right]));
  for (size_t i = 0; i < bpe.special.size(); ++i)
    added.push_back({{"id", bpe.tokens.size() + i},
                     {"content", bpe.special[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", bpe.cuts}};
  Json model{{"type", "BPE"},
             {"dropout", nullptr},
             {"unk_token", nullptr},
             {"continuing_subword_prefix", nullptr},
             {"end_of_word_suffix", nullptr},
             {"fuse_unk", false},
             {"byte_fallback", false},
             {"ignore_merges", false},
             {"vocab", vocabulary},
             {"merges", merges}};
  Json file{{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
            {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
            {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  return file.dump(1) + "\n";
}

}  // namespace shardgrad::text
