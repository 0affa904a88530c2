#include <shardgrad/train/data/dataset.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include <shardgrad/core/context.h>

namespace shardgrad::data {

Shape Field::rows(int64_t rows) const {
  std::vector<int64_t> dims{rows};
  dims.insert(dims.end(), shape.begin(), shape.end());
  return Shape(dims);
}

const Standardisation& Dataset::input_transform() const {
  static const Standardisation none;
  return none;
}

int64_t Dataset::ignored_labels(std::span<const int64_t>) const { return 0; }

std::vector<Tensor> Dataset::room_for(int64_t rows, Device device) const {
  TagScope tag(Category::data);
  std::vector<Tensor> room;
  for (const Field& field : fields()) room.push_back(empty_on_host(field.rows(rows), field.dtype, device));
  return room;
}

std::vector<void*> places_of(std::span<const Tensor> fields) {
  std::vector<void*> places;
  for (const Tensor& field : fields) places.push_back(field.out().data);
  return places;
}

std::vector<Tensor> Dataset::fetch(std::span<const int64_t> indices) const {
  for (int64_t index : indices)
    SG_CHECK(index >= 0 && index < size(), "Dataset: sample ", index, " does not exist; there are ", size());
  std::vector<Tensor> fields = room_for(int64_t(indices.size()));
  read(indices, places_of(fields));
  return fields;
}

std::vector<Field> Splits::fields() const {
  std::vector<Field> fields = train->fields();
  if (fields.size() < 2) return fields;
  if (classes > 0) fields[1].classes = classes;
  fields[1].label_bytes = bytes_per_token;
  return fields;
}

TensorDataset::TensorDataset(std::vector<Tensor> fields, Standardisation inputs)
    : fields_(std::move(fields)), inputs_(std::move(inputs)) {
  SG_CHECK(!fields_.empty(), "TensorDataset: no field given; pass at least one tensor");
  for (const Tensor& field : fields_) {
    SG_CHECK(field.device() == kCpu, "TensorDataset: a field is on ", field.device(), "; copy it with .to(kCpu)");
    SG_CHECK(field.ndim() >= 1 && field.size(0) == fields_[0].size(0), "TensorDataset: fields have shapes ",
             fields_[0].shape(), " and ", field.shape(), "; dimension 0 counts the samples and must be equal");
  }
}

std::vector<Field> TensorDataset::fields() const {
  std::vector<Field> fields;
  for (const Tensor& field : fields_) fields.push_back({Shape(field.shape().dims().subspan(1)), field.dtype()});
  return fields;
}

void TensorDataset::read(std::span<const int64_t> indices, std::span<void* const> to) const {
  for (size_t f = 0; f < fields_.size(); ++f) {
    const Tensor& field = fields_[f];
    size_t bytes = field.size(0) == 0 ? 0 : field.bytes() / size_t(field.size(0));
    auto* out = static_cast<std::byte*>(to[f]);
    const auto* from = static_cast<const std::byte*>(field.in().data);
    for (size_t i = 0; i < indices.size() && bytes > 0; ++i)
      std::memcpy(out + i * bytes, from + size_t(indices[i]) * bytes, bytes);
  }
}

int64_t TensorDataset::ignored_labels(std::span<const int64_t> indices) const {
  if (fields_.size() < 2 || fields_[1].dtype() != DType::i64) return 0;
  int64_t count = 0, of_sample = fields_[1].numel() / std::max<int64_t>(1, size());
  const auto* labels = fields_[1].data<int64_t>();
  for (int64_t index : indices)
    count += std::count(labels + index * of_sample, labels + (index + 1) * of_sample, kIgnored);
  return count;
}

uint64_t TensorDataset::fingerprint() const {
  uLong sum = crc32(0, nullptr, 0);
  for (const Tensor& field : fields_) sum = crc32_z(sum, static_cast<const Bytef*>(field.in().data), field.bytes());
  return sum;
}

}  // namespace shardgrad::data
