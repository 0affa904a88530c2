#include <shardgrad/train/data/csv.h>

#include <array>

#include <shardgrad/core/context.h>
#include <shardgrad/train/data/column_statistics.h>
#include <shardgrad/train/data/csv_table.h>
#include <shardgrad/train/data/split.h>

namespace shardgrad::data {
namespace {

using RowList = std::vector<int64_t>;

Standardisation statistics_of(std::span<const double> values, size_t width, const RowList& rows) {
  ColumnStatistics statistics(width);
  for (int64_t row : rows) statistics.add(values.subspan(size_t(row) * width, width));
  return statistics.by_column();
}

// These rows of `values`, transformed.
Tensor rows_of(std::span<const double> values, size_t width, const RowList& rows, const Standardisation& transform) {
  Tensor result = empty({std::ssize(rows), int64_t(width)}, {DType::f32, kCpu});
  auto* out = result.data<float>();
  for (int64_t row : rows)
    for (size_t c = 0; c < width; ++c) {
      double value = values[size_t(row) * width + c];
      *out++ = float(transform.mean.empty() ? value : (value - transform.mean[c]) / transform.scale[c]);
    }
  return result;
}

Tensor classes_of(const CsvTable& table, const RowList& rows) {
  std::vector<int64_t> classes;
  for (int64_t row : rows) classes.push_back(int64_t(table.targets[size_t(row)]));
  return from_vector(classes, {std::ssize(rows)}, {DType::i64, kCpu});
}

}  // namespace

CsvData read_csv(const CsvOptions& options) {
  check_test_share(options.test_share);
  bool classes = options.kind == TargetKind::classes;
  SG_CHECK(!classes || !options.standardise_target, "standardise_target is for regression; classes have no scale");
  CsvTable table = read_table(options);
  std::array<RowList, 2> parts;  // training, test
  for (int64_t row = 0; row < std::ssize(table.targets); ++row)
    parts[is_test_row(options.seed, row, options.test_share)].push_back(row);
  check_parts(options.path, std::ssize(parts[0]), std::ssize(parts[1]));
  size_t width = table.columns.size();
  CsvData data{{}, table.columns, table.classes, {}};
  Standardisation inputs = statistics_of(table.inputs, width, parts[0]);
  if (options.standardise_target) data.target = statistics_of(table.targets, 1, parts[0]);
  TagScope tag(Category::data);
  auto part = [&](const RowList& rows) {
    Tensor x = rows_of(table.inputs, width, rows, inputs);
    Tensor y = classes ? classes_of(table, rows) : rows_of(table.targets, 1, rows, data.target);
    return std::make_shared<TensorDataset>(std::vector{x, y}, inputs);
  };
  data.splits = {part(parts[0]), part(parts[1])};
  return data;
}

}  // namespace shardgrad::data
