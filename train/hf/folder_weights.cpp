#include <shardgrad/train/hf/folder_weights.h>

#include <algorithm>
#include <cstring>
#include <set>

#include <shardgrad/autograd/node.h>
#include <shardgrad/autograd/ops.h>
#include <shardgrad/fsdp/state/state.h>
#include <shardgrad/train/files.h>
#include <shardgrad/train/hf/transpose.h>

namespace shardgrad::train::hf {
namespace {

// Names for one sentence, not more than a few.
class Listed {
 public:
  explicit Listed(const char* title) : title_(title) {}
  void add(const std::string& name, const std::string& what = "") {
    if (++count_ <= kMost) text_ += concat(count_ == 1 ? " '" : ", '", shortened(name), "'", what);
  }
  std::string text() const {
    if (count_ == 0) return "";
    return concat("; ", title_, text_, count_ > kMost ? concat(" and ", count_ - kMost, " more") : "");
  }

 private:
  static constexpr int64_t kMost = 8;
  const char* title_;
  std::string text_;
  int64_t count_ = 0;
};

// What keeps a tensor from being this part; empty for nothing.
std::string fault_of(const TensorFiles::Place& place, const Part& part) {
  auto strange = place.file->unreadable().find(place.name);
  if (strange != place.file->unreadable().end()) return " (" + strange->second + ")";
  const TensorSpec& spec = place.file->tensors().at(place.name).spec;
  if (spec.shape == part.shape && is_floating(spec.dtype)) return "";
  return concat(" (", spec.dtype, spec.shape, ", not floating", part.shape, ")");
}

// Whether two tensors of one shape and dtype hold the same bytes.
bool same_bytes(const TensorFiles::Place& a, const TensorFiles::Place& b) {
  const TensorSpec &spec = a.file->tensors().at(a.name).spec, &other = b.file->tensors().at(b.name).spec;
  if (spec.shape != other.shape || spec.dtype != other.dtype) return false;
  int64_t count = spec.shape.numel(), most = fsdp::kPieceBytes / int64_t(size_of(spec.dtype));
  for (int64_t begin = 0; begin < count; begin += most) {
    Shape part{std::min(most, count - begin)};
    Tensor x = empty(part, {spec.dtype, kCpu}), y = empty(part, {spec.dtype, kCpu});
    a.file->read(a.name, begin, x);
    b.file->read(b.name, begin, y);
    if (std::memcmp(x.in().data, y.in().data, x.bytes()) != 0) return false;
  }
  return true;
}

}  // namespace

FolderWeights::FolderWeights(const std::string& folder)
    : folder_(folder), options_(read_model_config(folder)), layout_(layout_of(options_)), files_(folder) {
  check();
}

// A table that is the head, too, may be there under either name.
const TensorFiles::Place* FolderWeights::find(const Part& part) const {
  auto place = files_.places().find(bare_name(part.name));
  if (place == files_.places().end() && part.is_table && is_tied()) place = files_.places().find(kHead);
  return place == files_.places().end() ? nullptr : &place->second;
}

const TensorFiles::Place& FolderWeights::place_of(const Part& part) const { return *find(part); }

DType FolderWeights::dtype_of(const Part& part) const {
  const TensorFiles::Place& place = place_of(part);
  return place.file->tensors().at(place.name).spec.dtype;
}

void FolderWeights::check() {
  Listed missing("missing are"), wrong("of another form are"), unexpected("not expected are");
  std::set<std::string> known;
  for (const auto& [name, parts] : layout_)
    for (const Part& part : parts) {
      known.insert(bare_name(part.name));
      const TensorFiles::Place* place = find(part);
      if (!place)
        missing.add(part.name);
      else if (std::string fault = fault_of(*place, part); !fault.empty())
        wrong.add(place->name, fault);
    }
  for (const auto& [name, place] : files_.places()) {
    bool may_be = known.contains(name) || is_left_over(name) || (is_tied() && name == kHead);
    if (!may_be && !place.file->unreadable().contains(place.name)) unexpected.add(place.name);
  }
  std::string faults = missing.text() + wrong.text() + unexpected.text();
  SG_CHECK(faults.empty(), "'", folder_, "': its tensors are not those of the ", name_of(options_), " model of its ",
           kConfigFile, faults);
  if (is_tied()) check_tied_head();
}

// transformers writes no head that is the table; others do.
void FolderWeights::check_tied_head() const {
  const char* name = std::holds_alternative<nn::Gpt2Options>(options_) ? "wte.weight" : "embed_tokens.weight";
  auto head = files_.places().find(kHead), table = files_.places().find(name), none = files_.places().end();
  if (head == none || table == none || head->second.file->unreadable().contains(head->second.name)) return;
  SG_CHECK(same_bytes(head->second, table->second), "'", folder_, "': ", kHead, " is not ", name, ", with which ",
           kConfigFile, " ties it; set tie_word_embeddings there to false, or leave the tensor out");
}

StateSpecs FolderWeights::specs(const StateSpecs& wanted) const {
  StateSpecs specs;
  for (const auto& [name, parts] : layout_) {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.own_shape()[0];
    auto model = wanted.find(name);
    if (parts[0].is_table && model != wanted.end() && model->second.shape.ndim() == 2)
      rows = std::max(rows, model->second.shape[0]);
    Shape own = parts[0].own_shape();
    specs[name] = {own.ndim() == 2 ? Shape{rows, own[1]} : Shape{rows}, dtype_of(parts[0])};
  }
  return specs;
}

void FolderWeights::read(const std::string& name, int64_t first, const Tensor& values) {
  NoGrad no_grad;
  int64_t begin = 0, last = first + values.numel();
  for (const Part& part : layout_.at(name)) {
    int64_t end = begin + part.shape.numel(), from = std::max(first, begin), to = std::min(last, end);
    if (from < to) read_part(part, from - begin, values.rows(from - first, to - first));
    begin = end;
  }
  if (int64_t from = std::max(first, begin); from < last) {
    Tensor padding = values.rows(from - first, last - first);
    std::memset(padding.out().data, 0, padding.bytes());
  }
}

std::string FolderWeights::place(const std::string& name, int64_t element) const {
  const std::vector<Part>& parts = layout_.at(name);
  auto part = parts.begin();
  while (element >= part->shape.numel() && part + 1 != parts.end()) element -= (part++)->shape.numel();
  const TensorFiles::Place& place = place_of(*part);
  return concat("'", place.file->path(), "': tensor '", shortened(place.name), "'");
}

void FolderWeights::read_part(const Part& part, int64_t first, const Tensor& values) {
  const TensorFiles::Place& place = place_of(part);
  if (!part.transposed) return read_converted(*place.file, place.name, first, values);
  const Tensor& matrix = whole(part);
  if (matrix.dtype() == values.dtype()) return read_transposed(matrix, first, values);
  Tensor read = empty(values.shape(), {matrix.dtype(), kCpu});
  read_transposed(matrix, first, read);
  copy_into(values, read.to(values.dtype()));
}

// Pieces come in order, so it is read once.
const Tensor& FolderWeights::whole(const Part& part) {
  if (whole_name_ == part.name) return whole_;
  const TensorFiles::Place& place = place_of(part);
  whole_name_.clear();
  whole_ = Tensor();
  whole_ = empty({part.shape.numel()}, {dtype_of(part), kCpu});
  place.file->read(place.name, 0, whole_);
  whole_ = whole_.alias(part.shape);
  whole_name_ = part.name;
  return whole_;
}

}  // namespace shardgrad::train::hf
