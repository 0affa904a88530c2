#include <shardgrad/train/data/dataset.h>
#include <zlib.h>

#include <cstring>

#include <shardgrad/core/context.h>

namespace shardgrad::data {

void Dataset::check(const char* name, std::span<const int64_t> indices) const {
  for (int64_t index : indices)
    SG_CHECK(index >= 0 && index < size(), name, ": sample ", index, " does not exist; there are ", size());
}

const Standardisation& Dataset::input_transform() const {
  static const Standardisation none;
  return none;
}

TensorDataset::TensorDataset(std::vector<Tensor> fields) : fields_(std::move(fields)) {
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

std::vector<Tensor> TensorDataset::fetch(std::span<const int64_t> indices) const {
  check("TensorDataset", indices);
  TagScope tag(Category::data);
  std::vector<Tensor> rows;
  for (const Tensor& field : fields_) {
    Tensor out = empty(field.shape().with(0, int64_t(indices.size())), {field.dtype(), kCpu});
    size_t bytes = field.size(0) == 0 ? 0 : field.bytes() / size_t(field.size(0));
    auto* to = static_cast<std::byte*>(out.out().data);
    const auto* from = static_cast<const std::byte*>(field.in().data);
    for (size_t i = 0; i < indices.size() && bytes > 0; ++i)
      std::memcpy(to + i * bytes, from + size_t(indices[i]) * bytes, bytes);
    rows.push_back(std::move(out));
  }
  return rows;
}

uint64_t TensorDataset::fingerprint() const {
  uLong sum = crc32(0, nullptr, 0);
  for (const Tensor& field : fields_) sum = crc32_z(sum, static_cast<const Bytef*>(field.in().data), field.bytes());
  return sum;
}

}  // namespace shardgrad::data
