#include <shardgrad/train/predict_run.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include <shardgrad/autograd/autocast.h>
#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/data/npy_file.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/notes.h>
#include <shardgrad/train/text.h>
#include <shardgrad/train/trained.h>

namespace shardgrad::train {
namespace {

// Rows [begin, end) of a file, as the model knows them.
Tensor inputs_of(const data::NpyFile& file, const Notes& notes, int64_t begin, int64_t end) {
  auto width = size_t(file.row_numel());
  std::vector<std::byte> bytes(size_t(file.row_bytes() * (end - begin)));
  file.file().read(bytes.data(), file.row_begin(begin), std::ssize(bytes));
  std::vector<double> numbers(width * size_t(end - begin));
  file.convert(bytes.data(), std::span(numbers));
  double most =
      notes.inputs.dtype == DType::f64 ? std::numeric_limits<double>::max() : double(std::numeric_limits<float>::max());
  for (size_t i = 0; i < numbers.size(); ++i)
    SG_CHECK(std::abs(numbers[i]) <= most, "'", file.path(), "': row ", begin + int64_t(i / width), " has ",
             std::isnan(numbers[i]) ? "NaN" : format("%g", numbers[i]), "; the model was trained on finite numbers");
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = notes.input_transform.apply(numbers[i], i % width);
  Tensor x = from_vector<double>(numbers, notes.inputs.rows(end - begin), {DType::f64, kCpu}).to(notes.inputs.dtype);
  return to_device(x, context().default_device());
}

// Samples of one number may be an array of one dimension, as in training.
void check_shape(const data::NpyFile& file, const Shape& sample) {
  std::string extents;
  for (int d = 0; d < sample.ndim(); ++d) extents += concat(", ", sample[d]);
  bool numbers = file.shape().ndim() == 1 && sample.numel() == 1;
  bool is_sample = file.shape() == sample;
  SG_CHECK(numbers || (file.shape().ndim() == sample.ndim() + 1 && file.row_numel() == sample.numel()), "'",
           file.path(), "' has shape ", file.shape(), "; the model takes (rows", extents, ")",
           is_sample ? concat(": a single sample is (1", extents, ")") : "");
}

// Where predictions go: collected for .npy, line by line for .csv.
class Output {
 public:
  Output(std::string path, const Notes& notes) : path_(std::move(path)), notes_(notes) {
    SG_CHECK(path_.ends_with(".csv") || path_.ends_with(".npy"), "'", path_,
             "' has another ending than .csv and .npy, which say what is written");
    if (path_.ends_with(".csv")) file_.open(unfinished());
    if (path_.ends_with(".csv") && !file_) cannot("write", path_);
  }
  ~Output() {
    std::error_code ignored;
    if (file_.is_open()) std::filesystem::remove(unfinished(), ignored);
  }
  void add(const Prediction& prediction) {
    int64_t columns = prediction.values.size(1);
    std::vector<double> values = prediction.values.to(DType::f64).to_vector<double>();
    const data::Standardisation& t = notes_.target_transform;
    SG_CHECK(t.mean.size() <= 1 || std::ssize(t.mean) == columns, "the model gives ", columns,
             " columns, and its file says how ", t.mean.size(), " were transformed");
    for (size_t i = 0; i < values.size(); ++i) values[i] = t.undo(values[i], i % size_t(columns));
    bool labels = !notes_.class_names.empty() && prediction.columns.at(0) == "class";
    if (file_.is_open()) write_lines(prediction.columns, values, columns, labels);
    if (!file_.is_open()) all_.insert(all_.end(), values.begin(), values.end());
    columns_ = columns;
  }
  void finish() {
    if (file_.is_open()) {
      if (!file_.flush()) cannot("write", path_);
      if (std::rename(unfinished().c_str(), path_.c_str()) != 0) cannot("write", path_);
      return;
    }
    int64_t rows = columns_ == 0 ? 0 : std::ssize(all_) / columns_;
    data::write_npy(path_, from_vector<float>(all_, {rows, columns_}, {DType::f32, kCpu}));
  }

 private:
  void write_lines(const std::vector<std::string>& names, const std::vector<double>& values, int64_t columns,
                   bool labels) {
    std::string text;
    for (const std::string& name : names) text.append(text.empty() ? "" : ",").append(name);
    text = columns_ == 0 ? text + (labels ? ",label\n" : "\n") : "";
    for (size_t i = 0; i < values.size(); ++i) {
      text += format_shortest(float(values[i]));
      bool last = int64_t(i + 1) % columns == 0;
      if (last && labels)
        text.append(",").append(quoted(notes_.class_names.at(size_t(values[i + 1 - size_t(columns)]))));
      text += last ? "\n" : ",";
    }
    file_ << text;
    if (!file_) cannot("write", path_);
  }
  std::string unfinished() const { return concat(path_, ".", getpid(), ".tmp"); }  // nobody else's
  static std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string inside;
    for (char c : text) inside += c == '"' ? std::string("\"\"") : std::string(1, c);
    return concat("\"", inside, "\"");
  }

  std::string path_;
  const Notes& notes_;
  std::ofstream file_;
  std::vector<float> all_;
  int64_t columns_ = 0;
};

}  // namespace

Predicted predict_run(const Config& config, const std::string& run, dist::ProcessGroup& world, const std::string& input,
                      const std::string& output) {
  SG_CHECK(world.size() == 1, "predict works on one rank, and here are ", world.size(), "; start it without launch");
  SG_CHECK(config.ranks.count <= 1, config.ranks.said, ", and predict works on one rank; leave that out");
  Trained trained(config, run, world);
  Notes notes = read_notes(run, trained.metadata);
  data::NpyFile file(input);
  check_shape(file, notes.inputs.shape);
  SG_CHECK(is_floating(notes.inputs.dtype) || !file.is_floating(), "'", input,
           "' holds floating numbers; the model was trained on integers");
  std::error_code unknown;
  SG_CHECK(!std::filesystem::equivalent(input, output, unknown), "'", output, "' is the input, too");
  Output to(output, notes);
  NoGrad no_grad;
  Autocast precision(forward_dtype(config));
  for (int64_t begin = 0; begin < std::max<int64_t>(1, file.rows()); begin += config.batch) {
    Tensor x = inputs_of(file, notes, begin, std::min(file.rows(), begin + config.batch));
    to.add(trained.task->predict(x));
  }
  file.file().check_unchanged();
  to.finish();
  return {file.rows(), trained.step};
}

}  // namespace shardgrad::train
