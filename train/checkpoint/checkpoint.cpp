#include <shardgrad/train/checkpoint/checkpoint.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/together.h>
#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/train/checkpoint/finite.h>
#include <shardgrad/train/files.h>

namespace shardgrad::train {
namespace {

namespace fs = std::filesystem;
using Access = SafetensorsFile::Access;

// Replicas have the same values: one of them writes.
bool writes(const fsdp::Sharded& sharded) {
  dist::ProcessGroup* replica = sharded.mesh().replica();
  return !replica || replica->rank() == 0;
}

template <class Call> void on_disk(const Call& call) {
  try {
    call();
  } catch (const fs::filesystem_error& error) {
    fail("cannot write the checkpoint: '", error.path1().string(), "': ", error.code().message());
  }
}

// Makes the folder with files of their full size.
void make_folder(const std::string& path, const Config& config, const Reached& reached, TrainingState state) {
  fs::create_directory(path);
  SafetensorsFile::Texts metadata{
      {"format", "pt"}, {"step", std::to_string(reached.step)}, {"model", model_text(config)}};
  metadata.insert(state.notes.begin(), state.notes.end());
  SafetensorsFile::create(path + "/" + kModelFile, model_specs(state.model, state.sharded), metadata);
  SafetensorsFile::create(path + "/" + kOptimizerFile, optimizer_specs(state.optimizers), metadata);
}

Hashes zeros_for(const StateSpecs& specs) {
  Hashes hashes;
  for (const auto& [name, spec] : specs) hashes[name] = 0;
  return hashes;
}

constexpr const char* kOfBuffer =
    " (a buffer, which was finite when the run began: what it is made of has become too large or no number; smaller "
    "inputs or a smaller optimizer.lr may help)";

}  // namespace

std::set<std::string> finite_buffers(const fsdp::Sharded& sharded) {
  TagScope owner(Category::other);
  std::set<std::string> names;
  for (const NamedParameter& buffer : sharded.saved_buffers())
    if (!first_not_finite(buffer.tensor.detach().to(kCpu))) names.insert(buffer.name);
  return names;
}

// Elements of a tensor that go into a file.
struct CheckpointSave::Piece {
  bool of_model;
  std::string name;
  int64_t first;
  Tensor values;
  const void* elements;       // of `values`, complete
  const char* unless_finite;  // what is said of it, beside its name, where it is not finite; null: it need not be
};

// Writes this rank's pieces into the files, and adds up what they hold.
class CheckpointSave::Writer {
 public:
  Writer(CheckpointSave& save)
      : save_(save),
        model_(save.folder_.path + "/" + kModelFile, Access::write),
        optimizer_(save.folder_.path + "/" + kOptimizerFile, Access::write) {}
  void write(const Piece& piece) {
    DType dtype = piece.values.dtype();
    int64_t count = piece.values.numel();
    (piece.of_model ? model_ : optimizer_).write(piece.name, piece.first, {piece.elements, dtype, count});
    Hashes& hashes = piece.of_model ? save_.manifest_.model : save_.manifest_.optimizer;
    hashes.at(piece.name) += content_hash(piece.elements, dtype, count, piece.first);
    if (!piece.unless_finite || !save_.not_finite_.empty()) return;
    if (int64_t at = first_not_finite(piece.elements, dtype, count); at < count)
      save_.not_finite_ = concat("element ", piece.first + at, " of '", piece.name, "'", piece.unless_finite);
  }
  void keep(Piece piece) { pieces_.push_back(std::move(piece)); }
  void write_kept() {
    for (const Piece& piece : pieces_)
      if (!save_.given_up_) write(piece);
    if (!save_.given_up_) sync();
  }
  void sync() {
    model_.sync();
    optimizer_.sync();
  }

 private:
  CheckpointSave& save_;
  SafetensorsFile model_, optimizer_;
  std::vector<Piece> pieces_;
};

CheckpointSave::CheckpointSave(const std::string& run, const Config& config, const Reached& reached,
                               TrainingState state, How how)
    : run_(run), world_(state.sharded.group()) {
  TagScope owner(Category::other);
  SG_CHECK(reached.step >= 0, "save_checkpoint: step is ", reached.step, ", expected 0 or more");
  fsdp::check_replicas(state.sharded, "save_checkpoint");
  manifest_ = {reached, to_json(config), zeros_for(model_specs(state.model, state.sharded)),
               zeros_for(optimizer_specs(state.optimizers))};
  Buffers buffers = fsdp::mean_buffers(state.model, world_);
  for (const NamedParameter& buffer : state.model.saved_buffers())  // it goes on as who loads them will
    copy_into(buffer.tensor, buffers.at(buffer.name));
  Steps steps;
  for (const optim::Optimizer* optimizer : state.optimizers) steps.merge(fsdp::optim_steps(state.sharded, *optimizer));
  begin(config, state);
  try {
    if (writes(state.sharded)) {
      writer_ = std::make_unique<Writer>(*this);
      visit(state, buffers, steps, [&](Piece piece) {
        if (how == How::now)
          writer_->write(piece);
        else
          writer_->keep(std::move(piece));
      });
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  auto rest = [this, how] {
    try {
      if (writer_ && !failure_) how == How::now ? writer_->sync() : writer_->write_kept();
    } catch (...) {
      failure_ = std::current_exception();
    }
    written_ = true;
  };
  if (how == How::now)
    rest();
  else
    thread_ = Thread(rest);
}

CheckpointSave::~CheckpointSave() { given_up_ = true; }

CheckpointSave::Folder::~Folder() {
  std::error_code ignored;  // the space is wanted by whoever saves next
  if (is_mine) fs::remove_all(path, ignored);
}

// A number of its own keeps ranks of a killed job, which may still write for a moment, out of this one's files.
void CheckpointSave::begin(const Config& config, TrainingState state) {
  std::string folder = run_ + "/" + step_folder(step()), number = hash_text(std::random_device()());
  folder_.path = dist::same_text(world_, {"", "checkpoint"}, concat(folder, ".tmp-", number.substr(8)));
  dist::together(world_, {"", "checkpoint"}, [&] {
    if (world_.rank() != 0) return;
    SG_CHECK(fs::is_directory(run_), "the run's folder '", run_, "' is gone: it was removed or renamed while the run ",
             "trained, and step ", step(), " cannot be saved in it");
    check_free(run_, step());
    on_disk([&] {
      remove_unfinished(run_);
      folder_.is_mine = true;
      make_folder(folder_.path, config, manifest_.reached, state);
    });
  });
}

void CheckpointSave::visit(TrainingState state, const Buffers& buffers, const Steps& steps,
                           const std::function<void(Piece)>& call) const {
  std::set<std::string> trained;
  for (const NamedParameter& parameter : state.model.named_parameters())
    if (parameter.tensor.requires_grad()) trained.insert(parameter.name);
  auto give = [&](bool of_model, const std::string& name, int64_t first, const Tensor& values, const char* unless) {
    call({of_model, name, first, values, values.in().data, unless});
  };
  fsdp::visit_pieces(state.sharded, [&](const auto& piece) {
    give(true, piece.name, piece.begin, piece.values, trained.contains(piece.name) ? "" : nullptr);
  });
  for (optim::Optimizer* optimizer : state.optimizers)
    fsdp::visit_optim_pieces(*optimizer,
                             [&](const auto& piece) { give(false, piece.name, piece.begin, piece.values, ""); });
  if (world_.rank() != 0) return;
  std::map<std::string, optim::Optimizer::Rates> rates;
  for (const optim::Optimizer* optimizer : state.optimizers) rates.merge(optimizer->rates());
  for (const auto& [name, buffer] : buffers)
    give(true, name, 0, buffer.view({buffer.numel()}), state.finite_buffers.contains(name) ? kOfBuffer : nullptr);
  std::vector<int64_t> counts;
  std::vector<double> learn;
  for (const auto& [name, count] : steps) {
    counts.push_back(count);
    auto [lr, own, ratio] = rates.at(name);
    learn.insert(learn.end(), {lr, own, ratio});
  }
  if (counts.empty()) return;
  give(false, kSteps, 0, from_vector(counts, {std::ssize(counts)}, {DType::i64, kCpu}), nullptr);
  give(false, kRates, 0, from_vector(learn, {std::ssize(learn)}, {DType::f64, kCpu}), "");
}

std::string CheckpointSave::not_finite() {
  if (thread_.joinable()) thread_.join();
  dist::together(world_, {"", "checkpoint"}, [&] {
    if (failure_) std::rethrow_exception(failure_);
  });
  writer_.reset();
  std::vector<int64_t> ranks = world_.share<int64_t>({!not_finite_.empty()}, {"", "checkpoint"});
  auto first = std::ranges::find(ranks, 1);
  return first == ranks.end() ? ""
                              : dist::same_text(world_, {"", "checkpoint"}, not_finite_, int(first - ranks.begin()));
}

std::string CheckpointSave::finish(Keep keep) {
  if (std::string what = not_finite(); !what.empty())
    fail_as(ErrorKind::rank_failed, "step ", step(), ": ", what,
            " is not finite; nothing was saved, and the last checkpoint is as it was");
  manifest_.model = sum_over_ranks(world_, manifest_.model);
  manifest_.optimizer = sum_over_ranks(world_, manifest_.optimizer);
  dist::together(world_, {"", "checkpoint"}, [&] {
    if (world_.rank() != 0) return;
    on_disk([&] {
      auto header = [&](const char* name) {
        return SafetensorsFile(folder_.path + "/" + name, Access::read).header_hash();
      };
      manifest_.headers = {header(kModelFile), header(kOptimizerFile)};
      std::string path = folder_.path + "/" + kManifestFile;
      write_file(path, to_json(manifest_));
      sync_path(path);
      note_ = commit_checkpoint(run_, folder_.path, step(), keep);
    });
  });
  folder_.is_mine = false;
  return manifest_.hash();
}

std::string save_checkpoint(const std::string& run, const Config& config, const Reached& reached, TrainingState state,
                            Keep keep) {
  check_keep(keep);
  return CheckpointSave(run, config, reached, state, CheckpointSave::How::now).finish(keep);
}

std::optional<std::string> latest_checkpoint(const std::string& run) { return last_checkpoint(run).folder; }

}  // namespace shardgrad::train
