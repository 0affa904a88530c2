#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <shardgrad/fsdp/state/replicas.h>
#include <shardgrad/optim/muon.h>
#include <shardgrad/optim/sgd.h>
#include <shardgrad/train/checkpoint/safetensors.h>
#include <shardgrad/train/weights.h>

#include "checkpoint_files.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(CheckpointFiles, HoldWhatTheFullStateHoldsHoweverManyRanksWrote) {
  for (auto strategy : {fsdp::Strategy::zero3, fsdp::Strategy::zero1, fsdp::Strategy::ddp})
    for (int ranks : {1, 3, 4}) {
      std::filesystem::remove(folder_ / "latest");
      dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
        Trained trained(world, strategy, 3);
        save(trained, 3);
        auto model = fsdp::full_state_dict(*trained.sharded);
        auto optimizer = fsdp::full_optim_state_dict(*trained.sharded, *trained.optimizer);
        // Every rank has running statistics of its own samples: the mean over the ranks is saved.
        std::map<std::string, Tensor> means;
        for (const auto& buffer : trained.model->named_buffers()) {
          Tensor sum = clone(buffer.tensor.to(DType::f64));
          world.all_reduce(sum).host_wait();
          means[buffer.name] = (sum / double(ranks)).to(DType::f32);
        }
        if (world.rank() != 0) return;
        model.merge(means);
        std::vector<int64_t> steps;  // in the order of the parameters' names
        std::vector<double> rates;
        for (const auto& [key, tensor] : optimizer) {
          if (key.ends_with(".step")) steps.push_back(int64_t(tensor.item()));
          if (key.ends_with(".lr"))
            for (double each : tensor.to_vector<double>()) rates.push_back(each);
        }
        std::erase_if(optimizer,
                      [](const auto& each) { return each.first.ends_with(".step") || each.first.ends_with(".lr"); });
        optimizer["step"] = from_vector(steps, {std::ssize(steps)}, {DType::i64, kCpu});
        optimizer["lr"] = from_vector(rates, {std::ssize(steps), 3}, {DType::f64, kCpu});
        for (const auto& [name, expected] : {std::pair{"/model", model}, std::pair{"/optimizer", optimizer}}) {
          train::SafetensorsFile file(*latest() + name + ".safetensors", train::SafetensorsFile::Access::read);
          ASSERT_EQ(file.tensors().size(), expected.size()) << name;
          for (const auto& [key, tensor] : expected) {
            Tensor saved = empty({tensor.numel()}, {tensor.dtype(), kCpu});
            file.read(key, 0, saved);
            EXPECT_EQ(saved.to(DType::f64).to_vector<double>(), tensor.to(DType::f64).to_vector<double>()) << key;
          }
        }
      });
    }
}

TEST_F(CheckpointFiles, ARunGoesOnWithTheSameBitsAtAnyNumberOfRanks) {
  for (int ranks : {1, 2, 3}) {
    std::filesystem::remove(folder_ / "latest");
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 3);
      save(trained, 3);
    });
    std::string model = tensors("model.safetensors"), optimizer = tensors("optimizer.safetensors");
    for (int others : {1, 2, 4})
      for (auto strategy : {fsdp::Strategy::zero3, fsdp::Strategy::ddp}) {
        dist::run_ranks(others, [&](dist::ProcessGroup& world) {
          Trained trained(world, strategy, 1);
          train::Reached reached = load(trained);
          EXPECT_EQ(reached.step, 3);
          EXPECT_EQ(reached.samples, 30);
          EXPECT_EQ(reached.data, 7);
          EXPECT_EQ(reached.scaler.factor, 1024);
          EXPECT_EQ(reached.scaler.good_steps, 3);
          save(trained, 4);
        });
        EXPECT_EQ(tensors("model.safetensors"), model) << ranks << " to " << others;
        EXPECT_EQ(tensors("optimizer.safetensors"), optimizer) << ranks << " to " << others;
        dist::run_ranks(1, [&](dist::ProcessGroup& world) {
          Trained trained(world, strategy, 0);
          load(trained);
          save(trained, 3);
        });
      }
  }
}

// From any number of ranks and strategy to any other: the same parameters and optimizer state, and, saved again, the
// same bytes.
using CheckpointFilesSlow = CheckpointFiles;
TEST_F(CheckpointFilesSlow, GoFromAnyRanksAndStrategyToAnyOther) {
  using enum fsdp::Strategy;
  struct Way {
    int ranks;
    fsdp::Strategy strategy;
  };
  std::vector<Way> ways;
  for (int ranks : {1, 2, 3, 4, 5})
    for (auto strategy : {zero3, zero2, zero1, ddp, hybrid})
      if (strategy != hybrid || ranks % 2 == 0) ways.push_back({ranks, strategy});
  for (int ranks : {6, 7, 8}) ways.push_back({ranks, zero3});  // of which some own nothing of a small flat parameter
  for (const Way& from : ways) {
    std::filesystem::remove_all(folder_ / "step-3");
    std::filesystem::remove(folder_ / "latest");
    dist::run_ranks(from.ranks, [&](dist::ProcessGroup& world) {
      Trained trained(world, from.strategy, 2);
      save(trained, 2);
    });
    std::string hash = train::read_manifest(*latest()).hash();
    std::string files = tensors("model.safetensors") + tensors("optimizer.safetensors");
    for (const Way& to : ways) {
      dist::run_ranks(to.ranks, [&](dist::ProcessGroup& world) {
        Trained trained(world, to.strategy, 1);
        train::load_checkpoint(folder_ / "step-2", config_, trained.state());
        EXPECT_EQ(train::save_checkpoint(folder_.path(), config_, {3, 30, 7, {}}, trained.state(), {.count = 2}), hash)
            << from.ranks << " to " << to.ranks;
      });
      EXPECT_EQ(tensors("model.safetensors") + tensors("optimizer.safetensors"), files);
      std::filesystem::remove_all(folder_ / "step-3");
      folder_.write("latest", "step-2\n");
    }
    std::filesystem::remove_all(folder_ / "step-2");
  }
}

TEST_F(CheckpointFiles, OnlyTheLastOneStays) {
  EXPECT_EQ(latest(), std::nullopt);
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 1);
    save(trained, 1);
    save(trained, 2);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-2"}));
  EXPECT_EQ(latest(), folder_ / "step-2");
}

TEST_F(CheckpointFiles, WhatACrashLeftIsRemovedByTheNextOne) {
  save_on_one_rank();
  std::filesystem::create_directory(folder_ / "step-1");
  std::filesystem::create_directory(folder_ / "step-7.tmp");
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 0);
    save(trained, 3);
    EXPECT_THAT(error_of([&] { save(trained, 3); }), HasSubstr("step-3' is saved already"));
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-3"}));
}

// Only checkpoints are removed: folders named so that hold a checkpoint's files and nothing else.
TEST_F(CheckpointFiles, WhatSomebodyPutIntoTheRunsFolderStays) {
  save_on_one_rank();
  std::filesystem::create_directory(folder_ / "step-2-backup");
  std::filesystem::create_directory(folder_ / "step-by-step");
  std::filesystem::create_directory(folder_ / "step-1");
  folder_.write("step-1/notes.txt", "mine");
  folder_.write("step-7", "a file");
  std::filesystem::create_directory(folder_ / "step-5.tmp");
  folder_.write("step-5.tmp/run.json", "{}");
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 0);
    save(trained, 3);
  });
  EXPECT_EQ(names(),
            (std::vector<std::string>{"latest", "step-1", "step-2-backup", "step-3", "step-7", "step-by-step"}));
  EXPECT_EQ(read_file(folder_ / "step-1/notes.txt"), "mine");
}

TEST_F(CheckpointFiles, SayInTheirMetadataWhatTheyAre) {
  save_on_one_rank();
  for (const char* name : {"/model.safetensors", "/optimizer.safetensors"}) {
    auto metadata = train::SafetensorsFile(*latest() + name, train::SafetensorsFile::Access::read).metadata();
    EXPECT_EQ(metadata["format"], "pt");
    EXPECT_EQ(metadata["step"], "2");
    EXPECT_THAT(metadata["model"], HasSubstr(R"("layers":[784,256,10])"));
  }
}

// Nobody holds a second copy of the shard: neither who saves nor who loads.
TEST_F(CheckpointFiles, SavingAndLoadingNeedAPieceOfMemoryAndNotAnotherShard) {
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    auto model = nn::make<nn::Linear>(1024, 2048);
    auto sharded = fsdp::fully_shard(model.module(), world, {});
    optim::AdamW optimizer(model->named_parameters(), {});
    auto more_than_now = [&](const auto& call) {
      Ledger& ledger = context().ledger();
      int64_t before = ledger.current();
      ledger.reset_peaks();
      call();
      return ledger.peak() - before;
    };
    train::TrainingState state{model.module(), *sharded, optimizer};
    optimizer.state_slices();  // which makes the state
    const int64_t piece = fsdp::kPieceBytes + 4096;
    EXPECT_LE(more_than_now([&] { train::save_checkpoint(folder_.path(), config_, {1, 1, 1, {}}, state); }), piece);
    EXPECT_LE(more_than_now([&] { train::load_checkpoint(*latest(), config_, state); }), piece);
  });
}

// The least that a model can have of either kind.
struct Counter : nn::Module {
  Tensor scale = param("scale", {5}, nn::init::ones()), seen = buffer("seen", {2}, DType::i64, 3);
  Tensor forward(const Tensor& x) { return x * scale; }
};

TEST_F(CheckpointFiles, OneParameterAndABufferOfIntegersComeBack) {
  const std::vector<int64_t> kSeen{(int64_t(1) << 40) + 1, -7};
  for (bool saved : {false, true})
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      auto model = nn::make<Counter>();
      auto sharded = fsdp::fully_shard(model.module(), world);
      optim::AdamW optimizer(model->named_parameters(), {});
      train::TrainingState state{model.module(), *sharded, optimizer};
      if (!saved) {
        sum(model(ones({5}))).backward();
        optimizer.step();
        copy_into(model->seen, from_vector(kSeen, {2}, {DType::i64, kCpu}));
        train::save_checkpoint(folder_.path(), config_, {1, 10, 7, {}}, state);
      } else {
        train::load_checkpoint(latest().value(), config_, state);
        EXPECT_EQ(model->seen.to_vector<int64_t>(), kSeen);
        EXPECT_EQ(optimizer.steps(), (std::map<std::string, int64_t>{{"scale", 1}}));
      }
    });
}

// Muon for matrices, another one for the rest: one checkpoint has the states of both.
TEST_F(CheckpointFiles, OptimizersThatDivideAModelAreSavedTogether) {
  struct Two {
    optim::Muon matrices;
    optim::SGD others;
    static std::vector<NamedParameter> those(nn::Module& model, bool matrices) {
      std::vector<NamedParameter> some;
      for (const NamedParameter& each : model.named_parameters())
        if ((each.tensor.ndim() == 2) == matrices) some.push_back(each);
      return some;
    }
    explicit Two(nn::Module& model)
        : matrices(those(model, true), {.lr = 0.02}), others(those(model, false), {.lr = 0.01, .momentum = 0.9}) {}
    train::SavedOptimizers all() { return std::vector<optim::Optimizer*>{&matrices, &others}; }
  };
  auto train = [](nn::Child<Net>& model, Two& two, int from, int steps) {
    for (int i = from; i < from + steps; ++i) {
      Tensor y = model(test::normal({4, 5}, concat("x", i)));
      (mean(y * y) / context().world_size()).backward();  // gradients are summed over ranks
      two.matrices.step();
      two.others.step();
      two.matrices.zero_grad();
      two.others.zero_grad();
    }
  };
  std::map<std::string, std::vector<double>> expected;
  for (int ranks : {2, 3, 1})
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      auto model = nn::make<Net>();
      auto sharded = fsdp::fully_shard(model.module(), world);
      Two two(model.module());
      train::TrainingState state{model.module(), *sharded, two.all()};
      if (ranks == 2) {
        train(model, two, 0, 3);
        train::save_checkpoint(folder_.path(), config_, {3, 30, 7, {}}, state);
      } else {
        train::load_checkpoint(latest().value(), config_, state);
        EXPECT_EQ(two.matrices.steps().at("first.weight"), 3);
        EXPECT_EQ(two.others.steps().at("first.bias"), 3);
      }
      train(model, two, 3, 2);
      auto values = fsdp::full_state_dict(*sharded);
      for (const auto& [name, tensor] : values) {
        std::vector<double> now = tensor.to(DType::f64).to_vector<double>();
        auto [first, added] = expected.try_emplace(name, now);
        for (size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], first->second[i], added ? 0 : 1e-6) << name;
      }
      train::TrainingState half{model.module(), *sharded, two.others};
      EXPECT_THAT(error_of([&] { train::load_checkpoint(latest().value(), config_, half); }),
                  HasSubstr("first.weight.momentum_buffer"));
      optim::AdamW third(model->named_parameters(), {});
      EXPECT_THAT(error_of([&] {
                    train::SavedOptimizers({&two.others, &third});
                  }),
                  AllOf(HasSubstr("'first.bias'"), HasSubstr("two of them")));
    });
}

TEST_F(CheckpointFiles, AParameterThatWasFrozenAfterSomeStepsIsNoTrouble) {
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 2);
    trained.model->named_parameters().front().tensor.set_requires_grad(false);
    save(trained, 2);
    auto state_of = [&](Trained& run) {
      std::map<std::string, std::vector<double>> values;
      for (const auto& piece : fsdp::sharded_optim_state_dict(*run.optimizer))
        values[piece.name] = piece.values.to(DType::f64).to_vector<double>();
      return values;
    };
    auto before = state_of(trained);
    for (const char* kind : {".exp_avg", ".exp_avg_sq"})
      EXPECT_TRUE(world.rank() != 0 || before.contains(concat("first.weight", kind)));
    EXPECT_EQ(load(trained).step, 2);
    EXPECT_EQ(state_of(trained), before);
    Trained resumed(world, fsdp::Strategy::zero3, 0);
    resumed.model->named_parameters().front().tensor.set_requires_grad(false);
    EXPECT_EQ(load(resumed).step, 2);
    EXPECT_EQ(state_of(resumed), before);
  });
}

// Every rank hears of it, and all ranks go on with the same parameters, of which some are the file's.
TEST_F(CheckpointFiles, ARankThatCannotReadToItsEndIsNotLeftAlone) {
  for (auto strategy : {fsdp::Strategy::zero3, fsdp::Strategy::zero1})
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      Trained trained(world, strategy, 2);
      int filled = 0;
      auto fill = [&](const auto& piece) {
        if (world.rank() == 1 && ++filled == 2) fail("the disk is gone");
        fill_(piece.values, 0.5 + double(piece.begin));
      };
      auto said = [&](const char* call) {
        return world.rank() == 1 ? std::string("the disk is gone")
                                 : concat("rank 1: the disk is gone; ", call, " has filled the state in part");
      };
      EXPECT_EQ(error_of([&] { fsdp::fill_pieces(*trained.sharded, fill); }), said("fill_pieces"));
      Tensor y = trained.model(test::normal({4, 5}, "x")).detach().to(DType::f64), sum = clone(y);
      world.all_reduce(sum).host_wait();
      EXPECT_EQ(sum.to_vector<double>(), (y + y).to_vector<double>());
      filled = 0;
      EXPECT_EQ(error_of([&] { fsdp::fill_optim_pieces(*trained.sharded, *trained.optimizer, fill); }),
                said("fill_optim_pieces"));
    });
}

TEST_F(CheckpointFiles, CopiesOfTheModelThatAreNotTheSameAnyMoreAreNotSaved) {
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::ddp, 1);
    save(trained, 1);
    const fsdp::Location& where = trained.sharded->index().at("first.weight");
    NoGrad no_grad;
    if (world.rank() == 1) fill_(where.flat->shard().rows(0, 1), 5);
    EXPECT_THAT(error_of([&] { save(trained, 2); }),
                HasSubstr("save_checkpoint: rank 1 and rank 0 hold copies of 'first.weight' of unit 'first..last'"));
    world.barrier();
    EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-1"}));
  });
}

// A save is a collective: the others are in another one.
TEST_F(CheckpointFiles, ARankThatSavesWhileAnotherTrainsIsNamed) {
  for (fsdp::Strategy strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero3}) {
    std::string said = error_of([&] {
      dist::run_ranks(2, [&](dist::ProcessGroup& world) {
        Trained trained(world, strategy, 1);
        world.rank() == 1 ? save(trained, 1) : trained.train(1);
      });
    });
    EXPECT_THAT(said, HasSubstr(strategy == fsdp::Strategy::ddp ? "save_checkpoint" : "mean_buffers"));
    EXPECT_THAT(said, HasSubstr("rank 1"));
    EXPECT_THAT(said, HasSubstr("of unit '")) << "in which the other trains";
    EXPECT_TRUE(names().empty());
  }
}

// One rank's part under the whole's name would be all that is left of it.
TEST_F(CheckpointFiles, AModelThatIsAPartOfALargerOneIsNotSaved) {
  struct Piece : nn::Module {
    Tensor w = param("w", {2}, nn::init::ones(), {0, 2, 4});
    Tensor forward(const Tensor& x) { return x * w; }
  };
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    auto model = nn::make<Piece>();
    auto sharded = fsdp::fully_shard(model.module(), world);
    optim::AdamW optimizer(model->named_parameters(), {});
    std::string said = error_of([&] {
      train::save_checkpoint(folder_.path(), config_, {1, 10, 7, {1024, 3}}, {model.module(), *sharded, optimizer});
    });
    EXPECT_THAT(said, HasSubstr("'w' is a part, indices [2, 4) along dimension 0 of 4"));
    EXPECT_TRUE(names().empty());
  });
}

// `latest` moves, and the older one goes, only once every rank has written.
TEST_F(CheckpointFiles, B29_ARankThatFailsWhileSavingLeavesTheLastCheckpointWhole) {
  std::string model, optimizer;
  std::string message = error_of([&] {
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 2);
      save(trained, 2);
      if (world.rank() == 0) {
        model = bytes("model.safetensors");
        optimizer = bytes("optimizer.safetensors");
      }
      trained.train(1);
      if (world.rank() == 1) fail("rank 1 is gone");
      save(trained, 3);
    });
  });
  EXPECT_THAT(message, HasSubstr("rank 1 is gone"));
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-2"}));
  EXPECT_EQ(latest(), folder_ / "step-2");
  EXPECT_EQ(bytes("model.safetensors"), model);
  EXPECT_EQ(bytes("optimizer.safetensors"), optimizer);
  dist::run_ranks(1, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 0);
    EXPECT_EQ(load(trained).step, 2);
    save(trained, 3);
  });
  EXPECT_EQ(names(), (std::vector<std::string>{"latest", "step-3"}));
}

TEST_F(CheckpointFiles, SettingsThatChangeTheRunAreRefusedAndOthersMayChange) {
  save_on_one_rank();
  config_.strategy = "ddp";
  config_.device = "acc";
  config_.fsdp.options.prefetch = 2;
  config_.log_interval = 3;
  config_.trace_steps = {1, 9};
  config_.resume = true;
  EXPECT_EQ(refusal(), "no error");
  config_.batch = 17;
  config_.optimizer.lr = 0.5;
  EXPECT_EQ(refusal(),
            concat("'", folder_ / "step-2",
                   "' was saved by another run, which this one cannot go on with:\n"
                   "  batch is 17, was 256\n  optimizer.lr is 0.5, was 0.1\nset another name, or the old values"));
}

TEST_F(CheckpointFiles, ASettingThatMeantNothingThenIsNoDifference) {
  save_on_one_rank();
  config_.micro_batches = 4;
  EXPECT_THAT(refusal(), HasSubstr(":\n  micro_batches is 4, was 1\nset another name"));
  config_.micro_batches = 1;
  config_.schedule.name = "step";
  config_.schedule.step_size = 3;
  EXPECT_THAT(refusal(),
              HasSubstr("  schedule.name is \"step\", was \"constant\"\n  schedule.step_size is 3, was not set\n"));
}

TEST_F(CheckpointFiles, HaveTheLearningRates) {
  auto rates = [](const optim::Optimizer& of) {
    std::vector<double> all{of.lr()};
    for (size_t i = 0; i < of.parameters().size(); ++i) all.push_back(of.lr_of(i));
    return all;
  };
  std::vector<double> saved;
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 1);
    trained.optimizer->set_lr_of(1, 0.7);
    trained.optimizer->set_lr(0.003);
    trained.optimizer->set_lr_of(2, 0.5);
    save(trained, 1);
    if (world.rank() == 0) saved = rates(*trained.optimizer);
  });
  for (int ranks : {1, 3})
    dist::run_ranks(ranks, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero1, 0);
      load(trained);
      EXPECT_EQ(rates(*trained.optimizer), saved);
    });
}

// As those of before were written, which did not have them.
TEST_F(CheckpointFiles, WithoutLearningRatesLeaveThemAsTheyAre) {
  save_on_one_rank();
  std::string path = folder_ / "step-2/optimizer.safetensors";
  std::map<std::string, Tensor> kept;
  Context context;
  {
    train::SafetensorsFile file(path, train::SafetensorsFile::Access::read);
    for (const auto& [name, entry] : file.tensors()) {
      Tensor values = empty({entry.spec.shape.numel()}, {entry.spec.dtype, kCpu});
      file.read(name, 0, values);
      if (name != "lr") kept[name] = values.alias(entry.spec.shape);
    }
    ASSERT_EQ(kept.size(), file.tensors().size() - 1);
  }
  train::save_safetensors(path, kept);
  auto about = nlohmann::ordered_json::parse(bytes("run.json"));
  about["format"] = 1;
  for (const char* later : {"headers", "check"}) about.erase(later);
  about["hashes"]["optimizer"].erase("lr");
  folder_.write("step-2/run.json", about.dump(2));
  dist::run_ranks(2, [&](dist::ProcessGroup& world) {
    Trained trained(world, fsdp::Strategy::zero3, 0);
    trained.optimizer->set_lr(0.25);
    EXPECT_EQ(load(trained).step, 2);
    EXPECT_EQ(trained.optimizer->lr(), 0.25);
    EXPECT_EQ(trained.optimizer->steps().at("first.weight"), 2);
  });
}

// A trained parameter or its moments; statistics and frozen parameters may hold an infinity.
TEST_F(CheckpointFiles, WhatIsNotFiniteIsNotSaved) {
  for (bool of_optimizer : {false, true}) {
    dist::run_ranks(2, [&](dist::ProcessGroup& world) {
      Trained trained(world, fsdp::Strategy::zero3, 1);
      NoGrad no_grad;
      fill_(trained.model->named_buffers().front().tensor, std::numeric_limits<double>::infinity());
      save(trained, of_optimizer ? 3 : 1);
      Tensor values =
          of_optimizer ? trained.optimizer->state_slices().front().values : trained.sharded->flats()[0]->shard();
      if (world.rank() == 1) fill_(values.rows(0, 1), std::numeric_limits<double>::quiet_NaN());
      std::string said = error_of([&] { save(trained, of_optimizer ? 4 : 2); });
      EXPECT_THAT(said, HasSubstr("element "));
      EXPECT_THAT(said, HasSubstr("is not finite; nothing was saved"));
    });
    EXPECT_EQ(names().back(), of_optimizer ? "step-3" : "step-1");
  }
}

TEST_F(CheckpointFiles, AFolderThatCannotBeWrittenIsRefused) {
  std::filesystem::remove_all(folder_.path());
  EXPECT_THAT(error_of([&] { save_on_one_rank(); }),
              HasSubstr("' is gone: it was removed or renamed while the run trained, and step 2 cannot be saved"));
  std::filesystem::create_directory(folder_.path());
}

// Each group of its data axis would write the run's folder for itself.
TEST(Checkpoint, OfAModelOnAMeshIsRefused) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    parallel::Mesh mesh(world, {{"data", 1}, {"model", 2}});
    auto model = nn::make<nn::Linear>(3, 2);
    auto sharded = fsdp::fully_shard(model.module(), mesh, "data");
    try {
      train::model_specs(model.module(), *sharded);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("sharded over an axis of a mesh; save full_state_dict"));
    }
  });
}

// As PyTorch's register_buffer(persistent=False).
struct Tabled : nn::Module {
  Tensor scale = param("scale", {3}, nn::init::ones()), table = buffer("table", {3}, DType::f32, 7);
  Tabled() { own_buffers().back().object->persistent = false; }
  Tensor forward(const Tensor& x) { return x * scale + table; }
};

TEST_F(CheckpointFiles, ABufferThatIsNotSavedHasItsInitialValuesWhereWeightsAreLoaded) {
  Context context;
  auto saved = nn::make<Tabled>(), loaded = nn::make<Tabled>();
  saved->materialize();
  fill_(saved->table, 9);
  train::save_safetensors(folder_ / "weights.safetensors", saved->state_dict());
  train::load_model(folder_ / "weights.safetensors", *loaded);
  EXPECT_EQ(loaded->table.to_vector<float>(), std::vector<float>(3, 7));
  EXPECT_EQ(loaded->state_dict().size(), 1u);
}

}  // namespace
}  // namespace shardgrad
