#include <shardgrad/train/tasks/supervised.h>

#include <cmath>

#include <shardgrad/autograd/ops.h>

namespace shardgrad::train {
namespace {

void check_two_fields(const char* task, std::span<const data::Field> fields) {
  SG_CHECK(fields.size() == 2, "task ", task, " needs samples of an input and a target; the data has ", fields.size(),
           " fields");
}

}  // namespace

Tensor try_model(const Model& model, const data::Batch& batch) {
  try {
    return model(batch.fields[0]);
  } catch (const Error& error) {
    const Tensor& x = batch.fields[0];
    throw Error(error.kind(), concat("the model does not take the data's inputs, ", x.dtype(), " ", x.shape(),
                                     " of two samples: ", error.what()));
  }
}

// cross_entropy reads 16 bits as they are.
Tensor at_most_single(const Tensor& logits) { return logits.dtype() == DType::f64 ? logits.to(DType::f32) : logits; }

void Classification::Options::list(OptionList& options) {
  options.add("loss", loss, "`mse` is on one-hot targets", {.choices = {"cross_entropy", "mse"}});
}

Tensor Classification::loss_of(const Tensor& outputs, const data::Batch& batch) const {
  if (options_.loss == "cross_entropy")
    return cross_entropy(at_most_single(outputs), batch.fields[1], double(batch.global_count));
  Tensor y = outputs.to(DType::f32);
  return mse_loss(y, one_hot(batch.fields[1], y.size(1)), double(batch.global_count * y.size(1)));
}

Tensor Classification::loss(const data::Batch& batch) { return loss_of(model_(batch.fields[0]), batch); }

// Counts of integers, so the accuracy is exact on any number of ranks.
void Classification::evaluate(const data::Batch& batch, Sums& sums) {
  Tensor y = model_(batch.fields[0]);
  auto classes = argmax(y, 1).to_vector<int64_t>(), labels = batch.fields[1].to_vector<int64_t>();
  SG_CHECK(classes.size() == labels.size(), "the model gives ", classes.size(), " answers for ", labels.size(),
           " labels");
  int64_t correct = 0;
  for (size_t i = 0; i < labels.size(); ++i) correct += classes[i] == labels[i];
  sums.add("correct", double(correct));
  sums.add("loss", double(loss_of(y, batch).item()) * double(batch.global_count));
  sums.add("count", double(batch.count));
}

std::vector<Score> Classification::scores(const Sums& sums) const {
  return {{"accuracy", sums["correct"] / sums["count"]}, {"loss", sums["loss"] / sums["count"], false}};
}

Prediction Classification::predict(const Tensor& inputs) {
  Tensor y = model_(inputs).to(DType::f32), best = argmax(y, 1).to(DType::f32);
  Prediction prediction{{"class"}, cat(std::vector<Tensor>{reshape(best, {best.numel(), 1}), softmax(y)}, 1)};
  for (int64_t c = 0; c < y.size(1); ++c) prediction.columns.push_back(concat("p", c));
  return prediction;
}

void Classification::check(std::span<const data::Field> fields, const data::Batch& batch) {
  check_two_fields("classification", fields);
  SG_CHECK(fields[1].dtype == DType::i64 && fields[1].shape.ndim() == 0,
           "task classification needs one label for each sample, i64 []; the data has targets ", fields[1].dtype, " ",
           fields[1].shape, "; for numbers use the task regression");
  Tensor y = try_model(model_, batch);
  SG_CHECK(y.ndim() == 2,
           "task classification needs a number per class, [2, classes] for two samples; the model gives ", y.shape());
  SG_CHECK(fields[1].classes == 0 || y.size(1) == fields[1].classes, "the model gives numbers for ", y.size(1),
           " classes; the data has ", fields[1].classes);
}

Tensor Regression::loss(const data::Batch& batch) {
  const Tensor& targets = batch.fields[1];
  int64_t values = targets.numel() / std::max<int64_t>(1, batch.count);
  return mse_loss(model_(batch.fields[0]).to(DType::f32), targets.to(DType::f32),
                  double(batch.global_count * std::max<int64_t>(1, values)));
}

// Sums of squares in f64, of each column of the targets. The variance is about 0: what r2 loses by cancellation is
// below 1e-9 while a column's mean is below a thousand times its deviation. A column without variance has 0, or 1 where
// every prediction is exact, as scikit-learn says.
void Regression::evaluate(const data::Batch& batch, Sums& sums) {
  auto y = model_(batch.fields[0]).to(DType::f64).to_vector<double>();
  auto targets = batch.fields[1].to(DType::f64).to_vector<double>();
  SG_CHECK(y.size() == targets.size(), "the model gives ", y.size(), " numbers for ", targets.size(), " targets");
  size_t columns = 1;
  for (int dim = 1; dim < batch.fields[1].ndim(); ++dim) columns *= size_t(batch.fields[1].size(dim));
  for (size_t c = 0; c < columns; ++c) {
    double error = 0, sum = 0, squares = 0;
    for (size_t i = c; i < targets.size(); i += columns) {
      error += (y[i] - targets[i]) * (y[i] - targets[i]);
      sum += targets[i];
      squares += targets[i] * targets[i];
    }
    sums.add(concat("error", c), error);
    sums.add(concat("sum", c), sum);
    sums.add(concat("squares", c), squares);
  }
  sums.add("columns", batch.step == 0 && batch.first == 0 && batch.count > 0 ? double(columns) : 0);
  sums.add("count", double(batch.count));
}

std::vector<Score> Regression::scores(const Sums& sums) const {
  double count = sums["count"], columns = sums["columns"], r2 = 0, error = 0;
  for (int c = 0; c < columns; ++c) {
    double sum = sums[concat("sum", c)], spread = sums[concat("squares", c)] - sum * sum / count;
    bool constant = spread <= 1e-12 * sums[concat("squares", c)];
    double wrong = sums[concat("error", c)];
    r2 += constant ? double(wrong == 0) : 1 - wrong / spread;
    error += sums[concat("error", c)];
  }
  return {{"r2", r2 / columns}, {"rmse", std::sqrt(error / (count * columns)), false}};
}

Prediction Regression::predict(const Tensor& inputs) {
  Tensor y = model_(inputs).to(DType::f32);
  int64_t rows = y.size(0), columns = rows == 0 ? 0 : y.numel() / rows;
  Prediction prediction{{}, reshape(y, {rows, columns})};
  for (int64_t c = 0; c < columns; ++c) prediction.columns.push_back(concat("y", c));
  return prediction;
}

void Regression::check(std::span<const data::Field> fields, const data::Batch& batch) {
  check_two_fields("regression", fields);
  SG_CHECK(is_floating(fields[1].dtype), "task regression needs targets that are floating numbers; the data has ",
           fields[1].dtype, " ", fields[1].shape, "; for classes use the task classification");
  Tensor y = try_model(model_, batch);
  SG_CHECK(y.shape() == batch.fields[1].shape(), "the model gives ", y.shape(),
           " for two samples, the data has targets ", batch.fields[1].shape());
}

}  // namespace shardgrad::train
