#pragma once
// Hugging Face folders that transformers has saved (scripts/make_hugging_face_fixtures.py), and copies of them to harm.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/virtual_ranks.h>
#include <shardgrad/train/hf/config.h>
#include <shardgrad/train/weights.h>
#include <source_folder.h>

#include "temporary_folder.h"

namespace shardgrad {

namespace fs = std::filesystem;

inline std::string hugging_face_folder(const std::string& name) {
  return concat(kSourceFolder, "/tests/fixtures/hugging_face/", name);
}

inline Tensor tensor_in(const train::SafetensorsFile& file, const std::string& name) {
  const TensorSpec& spec = file.tensors().at(name).spec;
  Tensor values = empty({spec.shape.numel()}, {spec.dtype, kCpu});
  file.read(name, 0, values);
  return values.view(spec.shape);
}

inline std::vector<double> numbers(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

/// The largest difference, over the largest number of `expected`.
inline double distance(const Tensor& found, const Tensor& expected) {
  EXPECT_EQ(found.shape(), expected.shape());
  double most = 0, largest = 0;
  std::vector<double> x = numbers(found), y = numbers(expected);
  for (size_t i = 0; i < y.size(); ++i) {
    most = std::max(most, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return most / largest;
}

/// A copy of a folder, whose files may be changed.
class FolderCopy {
 public:
  explicit FolderCopy(const std::string& name) {
    fs::copy(hugging_face_folder(name), path(), fs::copy_options::recursive);
  }
  std::string path() const { return folder_ / "model"; }
  /// Puts `text` in the place of `old` in config.json, or before its end.
  void configure(const std::string& old, const std::string& text) {
    std::string file = path() + "/config.json", all = read_file(file);
    size_t at = all.find(old);
    ASSERT_NE(at, std::string::npos) << old;
    folder_.write("model/config.json", all.replace(at, old.size(), text));
  }
  void write(const std::string& name, const std::string& text) { folder_.write("model/" + name, text); }
  std::string refusal() const {
    return error_of([&] {
      Context context;
      train::open_weights(path());
    });
  }

 private:
  TemporaryFolder folder_;
};

using State = std::map<std::string, Tensor>;

/// The tensors of a folder's only file, changed by `change`.
inline void rewrite(const FolderCopy& folder, const std::function<void(State&)>& change) {
  Context context;
  State state;
  std::string path = folder.path() + "/model.safetensors";
  {
    train::SafetensorsFile file(path, train::SafetensorsFile::Access::read);
    for (const auto& [name, entry] : file.tensors()) state[name] = tensor_in(file, name);
  }
  change(state);
  train::save_safetensors(path, state);
}

/// The last element of a folder's tensor becomes `value`.
inline void spoil(const FolderCopy& folder, const std::string& name, double value) {
  rewrite(folder, [&](State& state) {
    ASSERT_TRUE(state.contains(name)) << name;
    std::vector<double> values = numbers(state[name]);
    values.back() = value;
    state[name] = from_vector(values, state[name].shape(), DType::f64).to(state[name].dtype());
  });
}

}  // namespace shardgrad
