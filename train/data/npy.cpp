#include <shardgrad/train/data/npy.h>

#include <array>
#include <numeric>

#include <shardgrad/core/rng.h>
#include <shardgrad/train/data/column_statistics.h>
#include <shardgrad/train/data/npy_scan.h>
#include <shardgrad/train/data/split.h>

namespace shardgrad::data {
namespace {

// Two files, and what belongs to each of their rows.
struct NpyPair {
  NpyPair(const std::string& inputs_path, const std::string& targets_path)
      : inputs(inputs_path), targets(targets_path) {
    SG_CHECK(inputs.rows() == targets.rows(), "'", inputs.path(), "' has ", inputs.rows(), " rows, '", targets.path(),
             "' has ", targets.rows(), "; row i of one belongs to row i of the other");
  }
  NpyFile inputs, targets;
};

Shape row_shape(const NpyFile& array) { return Shape(array.shape().dims().subspan(1)); }

Field numbers_of(const NpyFile& array) { return {array.shape().ndim() == 1 ? Shape{1} : row_shape(array), DType::f32}; }

Field input_field(const NpyFile& array, Standardise standardise) {
  bool ids = array.type() == NpyFile::Type::i32 || array.type() == NpyFile::Type::i64;
  Field field = numbers_of(array);
  if (ids && standardise == Standardise::none) field.dtype = DType::i64;
  return field;
}

Field target_field(const NpyFile& array) {
  if (array.is_floating()) return numbers_of(array);
  return {array.row_numel() == 1 ? Shape() : row_shape(array), DType::i64};
}

class NpyDataset : public Dataset {
 public:
  NpyDataset(std::shared_ptr<const NpyPair> pair, std::vector<int64_t> rows, Standardise standardise,
             Standardisation transform, uint64_t fingerprint)
      : pair_(std::move(pair)),
        rows_(std::move(rows)),
        fields_{input_field(pair_->inputs, standardise), target_field(pair_->targets)},
        transform_(std::move(transform)),
        fingerprint_(fingerprint) {}
  int64_t size() const override { return std::ssize(rows_); }
  std::vector<Field> fields() const override { return fields_; }
  void read(std::span<const int64_t> indices, std::span<void* const> to) const override {
    read(pair_->inputs, indices, fields_[0].dtype, transform_, to[0]);
    read(pair_->targets, indices, fields_[1].dtype, {}, to[1]);
  }
  uint64_t fingerprint() const override { return fingerprint_; }
  const Standardisation& input_transform() const override { return transform_; }

 private:
  void read(const NpyFile& array, std::span<const int64_t> indices, DType dtype, const Standardisation& transform,
            void* to) const;

  std::shared_ptr<const NpyPair> pair_;
  std::vector<int64_t> rows_;  // of the files
  std::vector<Field> fields_;
  Standardisation transform_;
  uint64_t fingerprint_;
};

void NpyDataset::read(const NpyFile& array, std::span<const int64_t> indices, DType dtype,
                      const Standardisation& transform, void* to) const {
  auto width = size_t(array.row_numel());
  std::vector<std::byte> bytes(size_t(array.row_bytes()));
  std::vector<double> numbers(width);
  for (size_t i = 0; i < indices.size(); ++i) {
    array.file().read(bytes.data(), array.row_begin(rows_[size_t(indices[i])]), array.row_bytes());
    if (dtype == DType::i64) {
      array.convert(bytes.data(), std::span(static_cast<int64_t*>(to) + i * width, width));
      continue;
    }
    array.convert(bytes.data(), numbers);
    auto* out = static_cast<float*>(to) + i * width;
    for (size_t c = 0; c < width; ++c) out[c] = float(transform.apply(numbers[c], c));
  }
  array.file().check_unchanged();
}

// What is known of a pair when both of its files have been read from end to end.
struct Scanned {
  Standardisation transform;  // of its inputs, by the rows that are for training
  int64_t classes = 0;        // one more than its largest label
  uint64_t fingerprint = 0;
};

Scanned scan(const NpyPair& pair, Standardise standardise, const std::function<bool(int64_t row)>& trains) {
  Scanned result;
  ColumnStatistics statistics(size_t(pair.inputs.row_numel()));
  auto add = [&](int64_t row, std::span<const double> numbers) {
    if (trains(row)) statistics.add(numbers);
  };
  uint64_t inputs = scan_numbers(pair.inputs, standardise == Standardise::none ? RowNumbers() : add);
  if (standardise == Standardise::columns) result.transform = statistics.by_column();
  if (standardise == Standardise::all) result.transform = statistics.of_all();
  int64_t largest = -1;
  bool labels = !pair.targets.is_floating();
  uint64_t targets = labels ? scan_labels(pair.targets, largest) : scan_numbers(pair.targets, {});
  result.classes = largest + 1;
  result.fingerprint = stream_of(concat(inputs, pair.inputs.shape(), targets, pair.targets.shape()));
  return result;
}

using Rows = std::vector<int64_t>;

Splits split_of(const std::shared_ptr<const NpyPair>& pair, const Scanned& scanned, const NpyOptions& options) {
  std::array<Rows, 2> parts;  // training, test
  for (int64_t row = 0; row < pair->inputs.rows(); ++row)
    parts[is_test_row(options.seed, row, options.test_share)].push_back(row);
  check_parts(options.inputs, std::ssize(parts[0]), std::ssize(parts[1]));
  auto part = [&](Rows& rows, const char* name) {
    uint64_t fingerprint = stream_of(concat(scanned.fingerprint, name, options.test_share, ' ', options.seed));
    return std::make_shared<NpyDataset>(pair, std::move(rows), options.standardise, scanned.transform, fingerprint);
  };
  return {part(parts[0], "train"), part(parts[1], "test")};
}

std::shared_ptr<Dataset> whole(const std::shared_ptr<const NpyPair>& pair, const Scanned& scanned,
                               const NpyOptions& options, const Standardisation& transform) {
  Rows rows(static_cast<size_t>(pair->inputs.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return std::make_shared<NpyDataset>(pair, rows, options.standardise, transform, scanned.fingerprint);
}

void check_alike(const NpyFile& test, const Field& test_field, const NpyFile& train, const Field& train_field) {
  SG_CHECK(test_field == train_field, "'", test.path(), "' has rows ", test_field.dtype, test_field.shape, ", '",
           train.path(), "' has rows ", train_field.dtype, train_field.shape, "; both must be alike");
}

}  // namespace

NpyData read_npy(const NpyOptions& options) {
  SG_CHECK(options.test_inputs.empty() == options.test_targets.empty(),
           "of test_inputs and test_targets one is given; give both, or none for a test_share of the rows");
  auto pair = std::make_shared<const NpyPair>(options.inputs, options.targets);
  if (options.test_inputs.empty()) {
    check_test_share(options.test_share);
    Scanned scanned = scan(*pair, options.standardise,
                           [&](int64_t row) { return !is_test_row(options.seed, row, options.test_share); });
    return {split_of(pair, scanned, options), scanned.classes};
  }
  auto test = std::make_shared<const NpyPair>(options.test_inputs, options.test_targets);
  check_alike(test->inputs, input_field(test->inputs, options.standardise), pair->inputs,
              input_field(pair->inputs, options.standardise));
  check_alike(test->targets, target_field(test->targets), pair->targets, target_field(pair->targets));
  Scanned scanned = scan(*pair, options.standardise, [](int64_t) { return true; });
  Scanned test_scanned = scan(*test, Standardise::none, {});
  return {{whole(pair, scanned, options, scanned.transform), whole(test, test_scanned, options, scanned.transform)},
          std::max(scanned.classes, test_scanned.classes)};
}

}  // namespace shardgrad::data
