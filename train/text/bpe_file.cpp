#include <shardgrad/train/text/bpe_file.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/json_fault.h>
#include <shardgrad/train/text/byte_level.h>

namespace shardgrad::text {
namespace {

using Json = nlohmann::json;
using train::shortened;

bool is_set(const Json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_string()) return !found->get_ref<const std::string&>().empty();
  return !found->is_number() || found->get<double>() != 0;
}

const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

using Type = Json::value_t;

const char* said(Type type) {
  return type == Type::object   ? "an object"
         : type == Type::array  ? "a list"
         : type == Type::string ? "a text"
                                : "true or false";
}

// A member that must be there. `of`: how a refusal names the object.
const Json& needed(const Json& object, const char* of, const char* key, Type type) {
  auto found = object.find(key);
  SG_CHECK(found != object.end(), of, " has no ", shortened(key), ", which must be ", said(type));
  SG_CHECK(found->type() == type, of, " has ", shortened(key), " of type ", found->type_name(), "; that must be ",
           said(type));
  return *found;
}

std::string text_in(const Json& object, const char* of, const char* key) {
  return needed(object, of, key, Type::string).get<std::string>();
}

bool flag_in(const Json& object, const char* of, const char* key, bool otherwise) {
  return object.contains(key) ? needed(object, of, key, Type::boolean).get<bool>() : otherwise;
}

std::string type_of(const Json& component) { return shortened(text_in(component, "one of its parts", "type")); }

// A component, or those of a sequence of them, which the key `members` lists.
void flatten(const Json& component, const char* members, std::vector<const Json*>& parts, int depth = 0) {
  if (component.is_null()) return;
  SG_CHECK(depth < 8, "its ", members, " lie in each other more than 8 deep");
  if (type_of(component) != "Sequence") return parts.push_back(&component);
  for (const Json& part : needed(component, "a sequence", members, Type::array))
    flatten(part, members, parts, depth + 1);
}

std::vector<const Json*> parts_of(const Json& file, const char* key, const char* members) {
  std::vector<const Json*> parts;
  flatten(member(file, key), members, parts);
  return parts;
}

uint32_t id_in(const Json& json, const std::string& token) {
  bool fits = json.is_number_unsigned() && json.get<uint64_t>() < kMostTokens;
  SG_CHECK(fits, "the id of its token '", shortened(token), "' is ", json.is_number() ? json.dump() : json.type_name(),
           "; ids are from 0 to ", kMostTokens - 1);
  return json.get<uint32_t>();
}

void put(std::vector<Token>& tokens, uint32_t id, const std::string& name, Token token) {
  if (id >= tokens.size()) tokens.resize(id + 1);
  SG_CHECK(!tokens[id].exists, "two of its tokens have the id ", id, ", one of them is '", shortened(name), "'");
  tokens[id] = std::move(token);
}

using Vocabulary = std::unordered_map<std::string, uint32_t>;  // as it is written, in letters

Vocabulary read_vocabulary(const Json& model, std::vector<Token>& tokens) {
  Vocabulary vocabulary;
  for (const auto& [name, number] :
       needed(model, "its model", "vocab", Type::object).get_ref<const Json::object_t&>()) {
    uint32_t id = id_in(number, name);
    put(tokens, id, name, {from_letters(name).value_or(name), true, false});
    vocabulary.emplace(name, id);
  }
  SG_CHECK(!vocabulary.empty(), "its vocabulary is empty");
  return vocabulary;
}

std::pair<std::string, std::string> names_of(const Json& merge) {
  bool texts = merge.is_array() && std::ranges::all_of(merge, [](const Json& each) { return each.is_string(); });
  if (texts && merge.size() == 2) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  SG_CHECK(merge.is_string(), "its merge ", texts ? shortened(merge.dump()) : merge.type_name(),
           " is no pair of tokens");
  const auto& text = merge.get_ref<const std::string&>();
  size_t space = text.find(' ');
  SG_CHECK(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, "its merge '", shortened(text),
           "' is no pair of tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<Merge> read_merges(const Json& model, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (const Json& json : needed(model, "its model", "merges", Type::array)) {
    if (json.is_string() && json.get_ref<const std::string&>().starts_with("#version")) continue;
    auto [left, right] = names_of(json);
    auto id = [&, &l = left, &r = right](const std::string& name) {
      auto found = vocabulary.find(name);
      SG_CHECK(found != vocabulary.end(), "its merge ", merges.size(), ", of '", shortened(l), "' and '", shortened(r),
               "', needs the token '", shortened(name), "', which its vocabulary has not");
      return found->second;
    };
    merges.push_back({id(left), id(right), id(left + right)});
  }
  return merges;
}

// A byte without a token is the unknown token, where there is one.
std::array<uint32_t, 256> read_bytes(const Json& model, const Vocabulary& vocabulary) {
  uint32_t unknown = kNoToken;
  if (is_set(model, "unk_token"))
    if (auto found = vocabulary.find(text_in(model, "its model", "unk_token")); found != vocabulary.end())
      unknown = found->second;
  std::array<uint32_t, 256> bytes{};
  bool all = true;
  for (int byte = 0; byte < 256; ++byte) {
    auto found = vocabulary.find(to_letters(std::string(1, char(byte))));
    bytes[size_t(byte)] = found == vocabulary.end() ? unknown : found->second;
    all &= found != vocabulary.end();
  }
  SG_CHECK(all || unknown == kNoToken || !is_set(model, "fuse_unk"), "its model has fuse_unk, which is not known here");
  return bytes;
}

Bpe::Model read_model(const Json& file, std::vector<Token>& tokens) {
  const Json& model = needed(file, "it", "model", Type::object);
  if (const Json& type = member(model, "type"); type.is_string())  // files of the first years have none
    SG_CHECK(type == "BPE", "its model is ", type_of(model), "; BPE is known here");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    SG_CHECK(!is_set(model, key), "its model has ", key, ", which is not known here");
  Vocabulary vocabulary = read_vocabulary(model, tokens);
  Bpe::Model bpe{read_bytes(model, vocabulary), read_merges(model, vocabulary)};
  if (is_set(model, "ignore_merges"))
    for (const auto& [name, id] : vocabulary)
      if (auto bytes = from_letters(name)) bpe.whole_words.emplace(*bytes, id);
  return bpe;
}

CutStep read_split(const Json& part) {
  const char* split = "its pre-tokenizer Split";
  const Json& pattern = needed(part, split, "pattern", Type::object);
  bool regex = pattern.contains("Regex"), invert = flag_in(part, split, "invert", false);
  std::string behavior = text_in(part, split, "behavior");
  SG_CHECK(behavior == "Isolated" || behavior == "Removed", "its pre-tokenizer Split has the behavior ",
           shortened(behavior), "; Isolated and Removed are known here");
  std::string text = text_in(pattern, "the pattern of its Split", regex ? "Regex" : "String");
  if (!regex) text = literally(text);
  bool removes = behavior == "Removed";
  return {std::make_shared<Pattern>(text), !removes || invert, !removes || !invert};
}

CutStep read_step(const Json& part) {
  std::string type = type_of(part);
  if (type == "Split") return read_split(part);
  if (type == "Digits")
    return {std::make_shared<Pattern>(
        flag_in(part, "its pre-tokenizer Digits", "individual_digits", false) ? "\\p{N}" : "\\p{N}+")};
  SG_CHECK(type == "ByteLevel", "its pre-tokenizer is ", type,
           "; ByteLevel, Split, Digits and sequences of them are known here");
  CutStep step;
  const char* level = "its pre-tokenizer ByteLevel";
  if (flag_in(part, level, "use_regex", true)) step.pattern = std::make_shared<Pattern>(kGpt2Pattern);
  step.space_before = flag_in(part, level, "add_prefix_space", true);
  return step;
}

// ByteLevel is the last: what comes after it would see letters instead of bytes.
CutSteps read_steps(const Json& file) {
  std::vector<const Json*> parts = parts_of(file, "pre_tokenizer", "pretokenizers");
  CutSteps steps;
  for (size_t i = 0; i < parts.size(); ++i) {
    bool last = i + 1 == parts.size();
    steps.push_back(read_step(*parts[i]));
    SG_CHECK((type_of(*parts[i]) == "ByteLevel") == last,
             "its pre-tokenizer does not have ByteLevel once, as the last ",
             "step; only byte-level tokenizers are known here");
  }
  SG_CHECK(!steps.empty(), "it has no pre-tokenizer; only byte-level tokenizers (ByteLevel) are known here");
  return steps;
}

std::vector<AddedToken> read_added(const Json& file, std::vector<Token>& tokens) {
  std::vector<AddedToken> added;
  const Json& vocabulary = file.at("model").at("vocab");
  for (const Json& json : member(file, "added_tokens")) {
    std::string text = text_in(json, "one of its added_tokens", "content");
    for (const char* key : {"lstrip", "rstrip", "single_word"})
      SG_CHECK(!is_set(json, key), "its added token '", shortened(text), "' has ", key, ", which is not known here");
    AddedToken token{text, id_in(member(json, "id"), text), is_set(json, "special"), !is_set(json, "normalized")};
    if (auto same = vocabulary.find(text); same != vocabulary.end())
      SG_CHECK(*same == token.id, "its added token '", shortened(text), "' has the id ", token.id,
               ", and the one of that name in its vocabulary ", same->dump(), "; they must be the same");
    Token as_text{text, true, token.special};
    bool in_vocabulary = token.id < tokens.size() && tokens[token.id].exists &&
                         tokens[token.id].bytes == from_letters(text).value_or(text);
    if (in_vocabulary)
      tokens[token.id] = as_text;
    else
      put(tokens, token.id, text, as_text);
    added.push_back(std::move(token));
  }
  return added;
}

// [CLS] $A [SEP], of which A is the text.
void read_template(const Json& part, BpeFile& file) {
  bool text_seen = false;
  for (const Json& piece : needed(part, "its template", "single", Type::array)) {
    if (piece.contains("Sequence")) {
      SG_CHECK(!text_seen, "its template has the text twice");
      text_seen = true;
      continue;
    }
    std::string name = text_in(needed(piece, "its template", "SpecialToken", Type::object), "its template", "id");
    const Json& special = needed(part, "its template", "special_tokens", Type::object);
    for (const Json& number : needed(needed(special, "its special_tokens", name.c_str(), Type::object),
                                     "one of its special_tokens", "ids", Type::array)) {
      uint32_t id = id_in(number, name);
      SG_CHECK(id < file.tokens.size() && file.tokens[id].exists, "its template has the token ", id,
               ", which its vocabulary has not");
      (text_seen ? file.after : file.before).push_back(id);
    }
  }
  SG_CHECK(text_seen, "its template has no place for the text");
}

void check_decoder(const Json& file) {
  std::vector<const Json*> parts = parts_of(file, "decoder", "decoders");
  SG_CHECK(!parts.empty(), "it has no decoder; ByteLevel is known here");
  for (const Json* part : parts)
    SG_CHECK(type_of(*part) == "ByteLevel", "its decoder is ", type_of(*part), "; ByteLevel is known here");
}

BpeFile understand(const Json& json) {
  SG_CHECK(json.is_object() && json.contains("model"), "it has no model; is it a tokenizer.json of Hugging Face?");
  for (const Json* part : parts_of(json, "normalizer", "normalizers"))
    fail("its normalizer is ", type_of(*part), "; none is known here");
  BpeFile file;
  file.model = read_model(json, file.tokens);
  file.steps = read_steps(json);
  file.added = read_added(json, file.tokens);
  for (const Json* part : parts_of(json, "post_processor", "processors")) {
    bool is_template = type_of(*part) == "TemplateProcessing";
    SG_CHECK(is_template || type_of(*part) == "ByteLevel", "its post-processor is ", type_of(*part),
             "; ByteLevel and TemplateProcessing are known here");
    if (is_template) read_template(*part, file);
  }
  check_decoder(json);
  return file;
}

}  // namespace

BpeFile parse_bpe(const std::string& json) {
  try {
    return understand(Json::parse(json));
  } catch (const Json::parse_error& error) {
    train::JsonFault fault = train::json_fault(json, error.byte, error.what());
    fail("it is no tokenizer.json: line ", fault.line, ", column ", fault.column, ": ", shortened(fault.why));
  } catch (const Json::exception& error) {  // a number that is too large
    fail("it is no tokenizer.json: ", shortened(train::json_fault(json, 0, error.what()).why));
  }
}

}  // namespace shardgrad::text
