#include <shardgrad/train/checkpoint/safetensors_header.h>

#include <limits>
#include <nlohmann/json.hpp>

#include <shardgrad/core/error.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {
namespace {

constexpr size_t kLongestList = 64;  // no shape has more dimensions

// The events of the JSON parser. The first that the form does not allow ends it, however deep the rest is.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;

  bool key(string_t& name) override {
    if (place_ == Place::tensor) return open_field(name);
    name_ = name;
    if (place_ == Place::top && (name == kMetadata ? has_metadata_ : header.tensors.contains(name))) twice(name);
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::metadata) {
      if (!header.metadata.emplace(name_, text).second) twice(name_);
    } else if (field_ == kDType) {
      entry_.dtype = text;
      field_.clear();
    } else {
      wrong();
    }
    return true;
  }
  bool start_object(size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      has_metadata_ |= name_ == kMetadata;
      place_ = name_ == kMetadata ? Place::metadata : Place::tensor;
      entry_ = {};
      given_.clear();
    } else {
      wrong();
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      if (given_.size() != 3) wrong();
      header.tensors[name_] = std::move(entry_);
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }
  bool start_array(size_t) override {
    list_ = field_ == kShape ? &entry_.shape : field_ == kOffsets ? &entry_.data_offsets : nullptr;
    if (!list_) wrong();
    field_.clear();
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool number_integer(number_integer_t number) override {
    if (!list_ || list_->size() == kLongestList) wrong();
    list_->push_back(number);
    return true;
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (number > uint64_t(std::numeric_limits<int64_t>::max())) wrong();
    return number_integer(int64_t(number));
  }
  bool number_float(number_float_t, const string_t&) override { wrong(); }
  bool boolean(bool) override { wrong(); }
  bool null() override { wrong(); }
  bool binary(binary_t&) override { wrong(); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { no_object(); }

 private:
  enum class Place { outside, top, tensor, metadata };
  static constexpr const char *kMetadata = "__metadata__", *kDType = "dtype", *kShape = "shape",
                              *kOffsets = "data_offsets";

  bool open_field(const std::string& name) {
    if (name != kDType && name != kShape && name != kOffsets) wrong();
    for (const std::string& before : given_)
      if (before == name) twice(name);
    given_.push_back(name);
    field_ = name;
    return true;
  }
  [[noreturn]] void no_object() { fail("its header is not a JSON object"); }
  [[noreturn]] void twice(const std::string& name) { fail("its header has '", shortened(name), "' twice"); }
  [[noreturn]] void wrong() {
    if (place_ == Place::outside) no_object();
    if (place_ == Place::metadata || name_ == kMetadata) fail(kMetadata, " is not texts by name");
    fail("tensor '", shortened(name_), "' is not described by a dtype, a shape and data_offsets");
  }

  Place place_ = Place::outside;
  std::string name_;                      // of the tensor, or of a text of the metadata
  std::string field_;                     // of the tensor, whose value comes next
  std::vector<std::string> given_;        // fields of the tensor
  std::vector<int64_t>* list_ = nullptr;  // that is open
  SafetensorsHeader::Entry entry_;
  bool has_metadata_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& text) {
  SG_CHECK(text.find('\0') == std::string::npos, "its header has a NUL byte");  // nlohmann takes it for the end
  Reader reader;
  nlohmann::json::sax_parse(text, &reader);
  return std::move(reader.header);
}

}  // namespace shardgrad::train
