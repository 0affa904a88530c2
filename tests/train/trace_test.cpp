#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <shardgrad/train/step_trace.h>
#include <shardgrad/train/trace.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using train::RankTrace;

std::vector<RankTrace> written_and_read(const std::vector<RankTrace>& ranks) {
  TemporaryFolder folder;
  std::vector<std::string> events;
  for (const RankTrace& rank : ranks) events.push_back(train::trace_events(rank));
  folder.write("trace.json", train::trace_file(events));
  EXPECT_TRUE(nlohmann::json::accept(read_file(folder / "trace.json")));
  return train::read_trace(folder / "trace.json");
}

Record gather_of(const std::string& unit) {
  return {.op = "all_gather",
          .unit = unit,
          .phase = "forward",
          .lane = "network",
          .elements = 100,
          .bytes_sent = 200,
          .dtype = DType::bf16,
          .begin = 0.25,
          .end = 0.5,
          .group = ~uint64_t(0),
          .number = 7};
}

TEST(Trace, WhatIsWrittenIsReadBack) {
  RankTrace first{.rank = 0, .host = "here", .steps = {{3, 0.125, 1}, {4, 1, 2.5}}};
  first.records = {gather_of("a \"quoted\" <unit>"), {.op = "step", .phase = "step", .lane = "compute", .begin = 1.5}};
  first.memory = {{0.25, 0.5, 0.75}, {{"activation", {0, 64, 0}}, {"parameter_shard", {400, 400, 400}}}};
  RankTrace second{.rank = 5, .host = "there", .steps = {{3, 0.25, 1}}};
  auto ranks = written_and_read({second, first});
  ASSERT_EQ(ranks.size(), 2);
  EXPECT_EQ(ranks[0].rank, 0);
  EXPECT_EQ(ranks[0].host, "here");
  EXPECT_EQ(ranks[0].steps, first.steps);
  ASSERT_EQ(ranks[0].records.size(), 2);
  const Record& gather = ranks[0].records[0];
  EXPECT_EQ(gather.op, "all_gather");
  EXPECT_EQ(gather.unit, "a \"quoted\" <unit>");
  EXPECT_EQ(gather.phase, "forward");
  EXPECT_EQ(gather.lane, "network");
  EXPECT_EQ(gather.elements, 100);
  EXPECT_EQ(gather.bytes_sent, 200);
  EXPECT_EQ(gather.dtype, DType::bf16);
  EXPECT_EQ(gather.group, ~uint64_t(0));
  EXPECT_EQ(gather.number, 7);
  EXPECT_EQ(gather.begin, 0.25);
  EXPECT_EQ(gather.end, 0.5);
  EXPECT_EQ(ranks[0].records[1].op, "step");
  EXPECT_LT(ranks[0].records[1].end, 0) << "it had not ended";
  EXPECT_EQ(ranks[0].memory.moments, first.memory.moments);
  ASSERT_EQ(ranks[0].memory.owners.size(), 2);
  EXPECT_EQ(ranks[0].memory.owners[0].name, "activation");
  EXPECT_THAT(ranks[0].memory.owners[0].bytes, ElementsAre(0, 64, 0));
  EXPECT_THAT(ranks[0].memory.owners[1].bytes, ElementsAre(400, 400, 400));
  EXPECT_EQ(ranks[1].rank, 5);
  EXPECT_EQ(ranks[1].host, "there");
  EXPECT_TRUE(ranks[1].memory.moments.empty());
}

// As Perfetto and chrome://tracing want it.
TEST(Trace, IsAChromeTrace) {
  auto events =
      nlohmann::json::parse(train::trace_file({train::trace_events({.rank = 3, .records = {gather_of("a")}})}));
  nlohmann::json process = events["traceEvents"][0], record = events["traceEvents"][1], lane = events["traceEvents"][2];
  EXPECT_EQ(process["name"], "process_name");
  EXPECT_EQ(process["args"]["name"], "rank 3");
  EXPECT_EQ(record["name"], "all_gather a");
  EXPECT_EQ(record["ph"], "X");
  EXPECT_EQ(record["pid"], 3);
  EXPECT_EQ(record["ts"], 250000.0);
  EXPECT_EQ(record["dur"], 250000.0);
  EXPECT_EQ(lane["name"], "thread_name");
  EXPECT_EQ(lane["args"]["name"], "network");
  EXPECT_EQ(lane["tid"], record["tid"]);
}

TEST(Trace, NamesMayBeNoText) {
  EXPECT_EQ(written_and_read({{.records = {gather_of("\xff")}}}).at(0).records.at(0).unit, "\xEF\xBF\xBD");
}

TEST(Trace, TheLastStepHasWhatBeginsInIt) {
  RankTrace trace{.steps = {{3, 0, 0.25}, {4, 0.25, 0.5}}};
  for (double begin : {0.0, 0.25, 0.375, 0.5}) trace.records.push_back({.op = "x", .begin = begin, .end = 1});
  auto records = train::last_step(trace);
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[0].begin, 0.25);
  EXPECT_EQ(records[1].begin, 0.375);
  trace.steps.clear();
  EXPECT_EQ(train::last_step(trace).size(), 4);
}

// So that a file that somebody made to use up memory cannot.
TEST(Trace, MoreRanksOrOwnersThanThereCanBeAreRefused) {
  TemporaryFolder folder;
  auto refusal_of = [&](const std::string& events) {
    folder.write("trace.json", train::trace_file({events}));
    return error_of([&] { train::read_trace(folder / "trace.json"); });
  };
  std::string ranks;
  for (int rank = 0; rank <= train::kTracedRanks; ++rank)
    ranks += concat(rank == 0 ? "" : ",\n", train::trace_events({.rank = rank, .records = {}}));
  EXPECT_THAT(refusal_of(ranks), HasSubstr("more ranks"));
  RankTrace memory{.memory = {{0}, {}}};
  for (int i = 0; i <= 64; ++i) memory.memory.owners.push_back({concat("owner", i), {1}});
  EXPECT_THAT(refusal_of(train::trace_events(memory)), HasSubstr("too many owners"));
  EXPECT_THAT(refusal_of(R"({"ph": "C", "pid": 0, "ts": 0, "args": {"a": 1e300}})"), HasSubstr("is no whole number"));
  EXPECT_THAT(refusal_of(R"({"ph": "M", "pid": 1e300, "name": "x"})"), HasSubstr("is no whole number"));
}

TEST(Trace, ADamagedFileIsRefusedByName) {
  TemporaryFolder folder;
  std::string whole = train::trace_file({train::trace_events({.steps = {{1, 0, 1}}, .records = {gather_of("a")}})});
  std::string deep = R"({"traceEvents": )" + std::string(100000, '[');
  std::vector<std::string> texts{"", "[]", "{}", R"({"traceEvents": [7]})", whole.substr(0, whole.size() / 2), deep};
  for (auto [from, to] : {std::pair(R"("group":")", R"("group":"x)"),
                          {R"("tid":0)", R"("tid":9)"},
                          {R"("dtype":")", R"("dtype":"x)"},
                          {"\"pid\"", "\"\""}}) {
    std::string text = whole;
    ASSERT_NE(text.find(from), text.npos);
    texts.push_back(text.replace(text.find(from), std::string(from).size(), to));
  }
  for (const std::string& text : texts) {
    folder.write("trace.json", text);
    EXPECT_THAT(error_of([&] { train::read_trace(folder / "trace.json"); }),
                AllOf(HasSubstr("/trace.json' is damaged"), Not(HasSubstr("json.exception"))))
        << text.substr(0, 200);
  }
  folder.write("trace.json", "");
  EXPECT_THAT(error_of([&] { train::read_trace(folder / "trace.json"); }),
              HasSubstr("/trace.json' is damaged: it is empty"));
}

std::vector<int64_t> numbers_of(const std::vector<RankTrace::Step>& steps) {
  std::vector<int64_t> numbers;
  for (const RankTrace::Step& step : steps) numbers.push_back(step.number);
  return numbers;
}

class TracedRun : public TrainerTest {
 protected:
  std::vector<RankTrace> trace_of(const train::Result& result) {
    return train::read_trace(result.folder + "/trace.json");
  }
};

TEST_F(TracedRun, HasTheStepsOfAllRanksAndNoOthers) {
  config_.epochs = 1;
  config_.trace_steps = {2, 4};
  auto ranks = trace_of(train(3));
  ASSERT_EQ(ranks.size(), 3);
  for (const RankTrace& rank : ranks) {
    EXPECT_THAT(numbers_of(rank.steps), ElementsAre(2, 3, 4));
    EXPECT_EQ(rank.host, ranks[0].host);
    for (const Record& record : rank.records) EXPECT_GE(record.begin, rank.steps[0].begin);
    auto is_forward = [](const Record& record) { return record.op == "forward" && record.unit == "layer0"; };
    EXPECT_EQ(std::ranges::count_if(rank.records, is_forward), 3) << "one for each step";
    EXPECT_EQ(std::ranges::count_if(last_step(rank), is_forward), 1);
    EXPECT_EQ(rank.memory.moments.empty(), rank.rank > 0) << "it is rank 0's";
  }
}

// Ranks leave a collective together, whatever clock they have.
TEST_F(TracedRun, RanksShareAClock) {
  auto ranks = trace_of(train(2));
  int met = 0;
  for (const Record& mine : last_step(ranks[0]))
    for (const Record& other : last_step(ranks[1]))
      if (mine.number != 0 && mine.op == "reduce_scatter" && mine.group == other.group && mine.number == other.number &&
          other.op == mine.op) {
        ++met;
        EXPECT_LT(mine.begin, other.end);
        EXPECT_LT(other.begin, mine.end);
      }
  EXPECT_EQ(met, 2) << "one for each unit";
}

TEST_F(TracedRun, SaysWhatAStepSentAndHeldToTheByte) {
  config_.log_interval = 100;  // a step that is told of also sends for its norm
  for (const char* strategy : {"zero3", "zero2", "ddp"}) {
    config_.strategy = strategy;
    train::Result result = train(2);
    auto first = trace_of(result).at(0);
    EXPECT_THAT(numbers_of(first.steps), ElementsAre(3, 4)) << "unless told otherwise";
    int64_t sent = 0;
    for (const Record& record : last_step(first)) sent += record.bytes_sent;
    EXPECT_EQ(sent, result.step_bytes);
    auto about = nlohmann::json::parse(read_file(result.folder + "/about.json"));
    const auto& plan = about["plan"];
    std::vector<int64_t> held(first.memory.moments.size());
    for (const auto& owner : first.memory.owners)
      if (owner.name != "data" && plan["peaks"].contains(owner.name))
        for (size_t i = 0; i < held.size(); ++i) held[i] += owner.bytes[i];
    EXPECT_EQ(std::ranges::max(held), plan["peak"].get<int64_t>() - plan["peaks"]["data"].get<int64_t>()) << strategy;
  }
}

TEST_F(TracedRun, OfStepsThatTheRunDoesNotHaveIsOfThoseThatItHas) {
  config_.steps = 5;
  config_.trace_steps = {4, 9};
  EXPECT_THAT(numbers_of(trace_of(train(2)).at(1).steps), ElementsAre(4, 5));
  config_.trace_steps = {6, 9};
  EXPECT_FALSE(std::filesystem::exists(train(2).folder + "/trace.json"));
  config_.trace_steps = {0, 0};
  EXPECT_FALSE(std::filesystem::exists(train(2).folder + "/trace.json"));
}

TEST_F(TracedRun, ChangesNoNumber) {
  config_.trace_steps = {0, 0};
  auto expected = metrics(train(2));
  config_.trace_steps = {1, 30};
  auto lines = metrics(train(2));
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["loss"], expected[i]["loss"]);
}

TEST_F(TracedRun, StepsThatAreNoneAreRefused) {
  for (std::vector<int64_t> steps : {std::vector<int64_t>{5, 3}, {0, 3}, {1, 101}}) {
    config_.trace_steps = steps;
    EXPECT_THAT(error_of([&] { train(1); }), HasSubstr("trace_steps is ["));
  }
  EXPECT_FALSE(std::filesystem::exists(config_.runs)) << "before a folder is made";
}

TEST(StepTrace, LeavesWhatTheProgramDoesWithLedgerAndRecorderAsItIs) {
  dist::run_ranks(2, [](dist::ProcessGroup& world) {
    Ledger& ledger = context().ledger();
    int changes = 0;
    ledger.on_change([&changes](Tag, int64_t) { ++changes; });
    context().recorder().set_tracing(true);
    train::StepTrace trace({1, 1}, world);
    trace.begin(1);
    int before = changes;
    { Tensor t = empty({8}); }
    EXPECT_EQ(changes, before + 2);
    trace.end(1);
    EXPECT_TRUE(trace.is_complete());
    EXPECT_TRUE(context().recorder().tracing());
    EXPECT_EQ(trace.gather().empty(), world.rank() > 0);
    EXPECT_FALSE(trace.has_steps());
    ledger.on_change(nullptr);
  });
}

TEST(StepTrace, OfAStepThatFailsLeavesNothingBehind) {
  dist::run_ranks(1, [](dist::ProcessGroup& world) {
    {
      train::StepTrace trace({1, 2}, world);
      trace.begin(1);
      EXPECT_TRUE(context().ledger().is_observed());
      EXPECT_TRUE(context().recorder().tracing());
    }
    EXPECT_FALSE(context().ledger().is_observed());
    EXPECT_FALSE(context().recorder().tracing());
  });
}

}  // namespace
}  // namespace shardgrad
