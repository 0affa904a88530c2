#include <shardgrad/train/options.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include <shardgrad/core/error.h>
#include <shardgrad/fsdp/setup/options.h>

namespace shardgrad::train {
namespace {

using Json = nlohmann::ordered_json;

template <class T> constexpr bool kIsList = false;
template <class T> constexpr bool kIsList<std::vector<T>> = true;
using fsdp::kIsOptional;
using ChosenDType = std::optional<DType>;
constexpr const char* kUnset = "own";  // an unset dtype

template <class T> constexpr bool kIsInteger = std::is_same_v<T, int64_t> || std::is_same_v<T, int>;

template <class T> std::string range_text(const char* noun, const Rule& rule) {
  if (std::isinf(rule.low) && std::isinf(rule.high)) return noun;
  std::string low = concat(rule.above_low ? "above " : "from ", rule.low);
  if (std::isinf(rule.high)) return concat(noun, " ", rule.above_low ? low : concat(rule.low, " or more"));
  return concat(noun, " ", low, rule.below_high ? " to below " : " to ", T(rule.high));
}

// A name as it is; what is none, such as a tab, in quotes.
std::string shown_choice(const std::string& choice) {
  return std::isalpha(static_cast<unsigned char>(choice[0])) ? choice : Json(choice).dump();
}

// "a number above 0", "one of cpu, cuda", …
template <class T> std::string expected(const Rule& rule) {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (kIsInteger<T>) return range_text<T>("an integer", rule);
  if constexpr (std::is_same_v<T, ChosenDType>) {
    std::string list = concat("one of ", kUnset);
    for (DType dtype : fsdp::kDTypes) list += concat(", ", dtype);
    return list;
  } else if constexpr (kIsOptional<T>) {
    return expected<typename T::value_type>(rule);
  }
  if constexpr (std::is_same_v<T, double>) return range_text<T>("a finite number", rule);
  if constexpr (std::is_same_v<T, std::string>) {
    std::string list;
    for (const std::string& choice : rule.choices)
      list += concat(list.empty() ? "one of " : ", ", shown_choice(choice));
    return !list.empty() ? list : rule.may_be_empty ? "a text" : "a text that is not empty";
  }
  if constexpr (kIsList<T>) {
    std::string count = rule.length         ? concat("a list of ", rule.length)
                        : rule.least_length ? concat("a list of ", rule.least_length, " or more")
                                            : "a list";
    return concat(count, ", each ", expected<typename T::value_type>(rule));
  }
}

bool in_range(double value, const Rule& rule) {
  return std::isfinite(value) && (rule.above_low ? value > rule.low : value >= rule.low) &&
         (rule.below_high ? value < rule.high : value <= rule.high);
}

bool assign_dtype(ChosenDType& field, const Json& value) {
  if (value == kUnset) field.reset();
  auto same = [&](DType dtype) { return value == name_of(dtype); };
  auto found = std::ranges::find_if(fsdp::kDTypes, same);
  if (found != std::end(fsdp::kDTypes)) field = *found;
  return value == kUnset || found != std::end(fsdp::kDTypes);
}

// Whether an integer type has just this value.
template <class T> bool holds(const Json& value) {
  if (value.is_number_unsigned()) return std::in_range<T>(value.get<uint64_t>());
  return value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
}

template <class T> bool is_number_for(const Json& value, const Rule& rule) {
  if constexpr (kIsInteger<T>)
    if (!holds<T>(value)) return false;
  return value.is_number() && in_range(value.get<double>(), rule);
}

bool is_text_for(const Json& value, const Rule& rule) {
  if (!value.is_string()) return false;
  if (rule.choices.empty()) return value != "" || rule.may_be_empty;
  return std::ranges::find(rule.choices, value.get<std::string>()) != rule.choices.end();
}

/// Sets `field` from JSON; false when the value is not what the rule allows.
template <class T> bool assign(T& field, const Json& value, const Rule& rule) {
  if constexpr (std::is_same_v<T, ChosenDType>) {
    return assign_dtype(field, value);
  } else if constexpr (kIsOptional<T>) {
    typename T::value_type inner{};
    if (!assign(inner, value, rule)) return false;
    field = inner;
    return true;
  } else if constexpr (kIsList<T>) {
    if (std::is_same_v<T, std::vector<std::string>> && value.is_string())
      return assign(field, Json::array({value}), rule);  // a list of one
    if (!value.is_array() || (rule.length && value.size() != rule.length) || value.size() < rule.least_length)
      return false;
    T list;
    for (const Json& element : value)
      if (!assign(list.emplace_back(), element, rule)) return false;
    field = std::move(list);
    return true;
  } else {
    bool fits = false;
    if constexpr (std::is_same_v<T, bool>)
      fits = value.is_boolean();
    else if constexpr (std::is_same_v<T, std::string>)
      fits = is_text_for(value, rule);
    else
      fits = is_number_for<T>(value, rule);
    if (fits) field = value.get<T>();
    return fits;
  }
}

// As JSON text; "inf" or "nan" for what JSON has no number for.
template <class T> std::string text_of(const T& field) {
  if constexpr (std::is_same_v<T, ChosenDType>) {
    return Json(field ? name_of(*field) : kUnset).dump();
  } else if constexpr (kIsOptional<T>) {
    return field ? text_of(*field) : "";
  } else if constexpr (kIsList<T>) {
    std::string list;
    for (const auto& element : field) list += concat(list.empty() ? "" : ",", text_of(element));
    return concat("[", list, "]");
  } else {
    if constexpr (std::is_same_v<T, double>)
      if (!std::isfinite(field)) return concat(field);
    return Json(field).dump();
  }
}

}  // namespace

template <class T> std::string checked_json(const std::string& key, const T& value) try {
  return text_of(value);
} catch (const Json::type_error&) {
  fail(key, " has a text that is no UTF-8, as texts are here; write it in UTF-8");
}

template <class T> void OptionList::add(std::string key, T& field, std::string meaning, const Rule& rule) {
  SG_CHECK(!find(key), "option '", key, "' is listed twice");
  auto assign_it = [&field, rule](const std::string& json) {
    Json value = Json::parse(json, nullptr, false);
    return !value.is_discarded() && assign(field, value, rule);
  };
  auto json = [&field, key] { return checked_json(key, field); };
  options_.push_back({std::move(key), std::move(meaning), expected<T>(rule), assign_it, json});
}

const Option* OptionList::find(const std::string& key) const {
  auto found = std::ranges::find(options_, key, &Option::key);
  return found == options_.end() ? nullptr : &*found;
}

template std::string checked_json(const std::string&, const bool&);
template std::string checked_json(const std::string&, const int64_t&);
template std::string checked_json(const std::string&, const double&);
template std::string checked_json(const std::string&, const std::string&);

template void OptionList::add(std::string, bool&, std::string, const Rule&);
template void OptionList::add(std::string, int&, std::string, const Rule&);
template void OptionList::add(std::string, int64_t&, std::string, const Rule&);
template void OptionList::add(std::string, double&, std::string, const Rule&);
template void OptionList::add(std::string, std::string&, std::string, const Rule&);
template void OptionList::add(std::string, std::vector<int64_t>&, std::string, const Rule&);
template void OptionList::add(std::string, std::vector<double>&, std::string, const Rule&);
template void OptionList::add(std::string, std::vector<std::string>&, std::string, const Rule&);
template void OptionList::add(std::string, std::optional<bool>&, std::string, const Rule&);
template void OptionList::add(std::string, std::optional<int64_t>&, std::string, const Rule&);
template void OptionList::add(std::string, std::optional<std::string>&, std::string, const Rule&);
template void OptionList::add(std::string, std::optional<DType>&, std::string, const Rule&);

}  // namespace shardgrad::train
