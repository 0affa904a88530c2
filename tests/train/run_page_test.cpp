// The page of a run. What a browser makes of it is tested by tests/repo/run_page.py.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include <shardgrad/picture/text.h>
#include <shardgrad/train/report/page.h>
#include <shardgrad/train/shallow_json.h>

#include "small_run.h"

namespace shardgrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RunPage : public TrainerTest {
 protected:
  RunPage() { config_.epochs = 2; }
  std::string page_of(const std::string& folder) { return train::page(train::read_run(folder)); }
  nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(read_file(path)); }
};

// What the page says to programs.
std::set<double> numbers_on(const std::string& page) {
  std::set<double> numbers;
  std::regex datum("<data value=\"([^\"]*)\">");
  for (std::sregex_iterator found(page.begin(), page.end(), datum), end; found != end; ++found)
    numbers.insert(std::stod((*found)[1]));
  return numbers;
}

// Of a table's rows what stands in front, and the numbers behind it.
using NamedNumbers = std::vector<std::pair<std::string, std::vector<double>>>;
NamedNumbers rows_of(const std::string& page, const std::string& first_heading) {
  size_t begin = page.find(concat("<th scope=\"col\">", first_heading, "</th>"));
  std::string table = page.substr(begin, page.find("</table>", begin) - begin);
  NamedNumbers rows;
  std::regex row("<tr><th scope=\"row\">([^<]*)</th>(.*)</tr>"), datum("<data value=\"([^\"]*)\">");
  for (std::sregex_iterator found(table.begin(), table.end(), row), end; found != end; ++found) {
    std::string cells = (*found)[2];
    rows.emplace_back((*found)[1], std::vector<double>());
    for (std::sregex_iterator cell(cells.begin(), cells.end(), datum); cell != end; ++cell)
      rows.back().second.push_back(std::stod((*cell)[1]));
  }
  return rows;
}

TEST_F(RunPage, TablesHaveTheNumbersOfTheFilesInTheirRowsAndColumns) {
  train::Result result = train(2);
  std::string page = page_of(result.folder);
  auto plan = json_of(result.folder + "/about.json")["plan"], ledger = json_of(result.folder + "/ledger.json");
  double parameters = 0;
  for (const auto& unit : plan["units"]) parameters += unit["parameters"].get<double>();
  NamedNumbers units, peaks;
  for (const auto& unit : plan["units"]) {
    units.emplace_back(unit["name"],
                       std::vector<double>{unit["parameters"], unit["parameters"].get<double>() / parameters});
    for (const char* key : {"full_bytes", "gathers", "reductions", "bytes_sent"})
      units.back().second.push_back(unit[key]);
  }
  EXPECT_GE(units.size(), 2u);
  EXPECT_EQ(rows_of(page, "unit"), units);
  for (const auto& [owner, bytes] : ledger["categories"].items()) {
    peaks.emplace_back(owner, std::vector<double>{bytes["peak"]});
    if (owner == "data" || owner == "workspace" || owner == "other") continue;  // of which a plan says nothing
    peaks.back().second.insert(peaks.back().second.begin(), plan["peaks"].value(owner, 0.0));
  }
  std::ranges::sort(peaks);
  peaks.emplace_back("everything at once", std::vector<double>{ledger["peak"]});
  EXPECT_EQ(rows_of(page, "peak of"), peaks);
}

TEST_F(RunPage, SaysTheNumbersOfTheFiles) {
  train::Result result = train(2);
  std::string page = page_of(result.folder);
  auto about = json_of(result.folder + "/about.json"), ledger = json_of(result.folder + "/ledger.json");
  auto lines = metrics(result);
  std::set<double> said = numbers_on(page);
  auto says = [&](const nlohmann::json& number) { return said.contains(number.get<double>()); };
  EXPECT_TRUE(says(ledger["peak"]));
  EXPECT_TRUE(says(about["end"]["step_bytes"]));
  EXPECT_THAT(page, HasSubstr("sent by rank 0 in a step, as predicted"));
  for (const auto& line : lines)
    for (const auto& [key, value] : line.items()) EXPECT_TRUE(!value.is_number() || says(value)) << key;
  EXPECT_THAT(page, HasSubstr("ended after step <data value=\"20\">20</data> of <data value=\"20\">"));
  EXPECT_THAT(page, HasSubstr("== predicted, to the byte"));
  EXPECT_THAT(page, Not(HasSubstr("class=\"differs\"")));
  EXPECT_THAT(page, HasSubstr(train::read_run(result.folder).checkpoint->hash()));
}

TEST_F(RunPage, SaysSharesInWordsAsToPrograms) {
  std::string page = page_of(train(2).folder);
  EXPECT_THAT(page, HasSubstr("of communication hidden behind computing"));
  int shares = 0;
  std::regex share("<data value=\"([^\"]*)\">([^<]* %)</data>");
  for (std::sregex_iterator found(page.begin(), page.end(), share), end; found != end; ++found, ++shares)
    EXPECT_EQ((*found)[2], picture::percent_of(std::stod((*found)[1])));
  EXPECT_GT(shares, 0);
}

// A trace is one list of all events. In the time of this thread, which others do not lengthen: sixteen times as many
// take sixteen times as long, and not 256 times.
TEST(ShallowJson, TakesTimeAsItsTextIsLong) {
  auto seconds = [](int events) {
    std::string text = "[";
    for (int i = 0; i < events; ++i) text += concat(i > 0 ? "," : "", R"({"name": "\"[{", "args": {"step": )", i, "}}");
    text += "]";
    timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    EXPECT_EQ(train::parse_shallow(text).size(), size_t(events));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return double(end.tv_sec - begin.tv_sec) + 1e-9 * double(end.tv_nsec - begin.tv_nsec);
  };
  EXPECT_LT(seconds(32'000), 64 * std::max({seconds(2'000), seconds(2'000), seconds(2'000)}));
}

TEST(ShallowJson, HasEightLevels) {
  auto nested = [](int levels) { return std::string(size_t(levels), '[') + std::string(size_t(levels), ']'); };
  EXPECT_FALSE(train::parse_shallow(nested(8)).is_discarded());
  EXPECT_TRUE(train::parse_shallow(nested(9)).is_discarded());
  EXPECT_EQ(train::parse_shallow(R"({"a": "\\", "b": "[[[[[[[[[\"[[["})").size(), 2);
  EXPECT_TRUE(train::parse_shallow(R"({"a": 1)").is_discarded());
}

TEST_F(RunPage, ShowsWhatWasSetOtherwise) {
  std::string page = page_of(train(1).folder);
  EXPECT_THAT(page,
              HasSubstr("<th scope=\"row\">optimizer.lr</th><td><span class=\"mark\">0.01</span></td><td>0.1</td>"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">seed</th><td>1</td><td></td>"));
}

TEST_F(RunPage, EveryPictureIsThere) {
  std::string page = page_of(train(2).folder);
  for (const char* title : {"Training loss", "Test accuracy", "Learning rate", "Norm of the gradients",
                            "Samples per second", "Memory of rank 0 over the traced steps", "Step 4 on every rank",
                            "Bytes that rank 0 sent in step 4", "Who waited for whom", "Units on rank 0 in step 4"})
    EXPECT_THAT(page, HasSubstr(concat(">", title, "</title>")));
  config_.trace_steps = {0, 0};
  page = page_of(train(2).folder);
  EXPECT_THAT(page, AllOf(HasSubstr("No step was traced"), HasSubstr(">Training loss</title>")));
}

TEST_F(RunPage, OfALanguageTaskHasTokensOverTime) {
  train::Result result = train(1);
  auto lines = metrics(result);
  std::ofstream file(result.folder + "/metrics.jsonl");
  for (auto& line : lines) {
    line["tokens_per_s"] = 64 * line["samples_per_s"].get<double>();
    file << line << "\n";
  }
  file.close();
  auto about = json_of(result.folder + "/about.json");
  about["end"]["tokens_per_s"] = 4096.5;
  std::ofstream(result.folder + "/about.json") << about;
  std::string page = page_of(result.folder);
  EXPECT_THAT(page, AllOf(HasSubstr(">Tokens per second</title>"), HasSubstr("<span>tokens per second</span>"),
                          Not(HasSubstr("amples per second"))));
  std::set<double> said = numbers_on(page);
  EXPECT_TRUE(said.contains(4096.5));
  for (const auto& line : lines) EXPECT_TRUE(said.contains(line["tokens_per_s"].get<double>()));
}

// Of a thousand ranks the first ones are traced: others may be those that were waited for.
TEST_F(RunPage, OfMoreRanksThanAreTracedSaysSo) {
  std::string folder = train(2).folder;
  EXPECT_THAT(page_of(folder), AllOf(HasSubstr(">Who waited for whom</title>"), HasSubstr("What moved in step 4")));
  auto about = json_of(folder + "/about.json");
  about["ranks"] = 1000;
  std::ofstream(folder + "/about.json") << about;
  EXPECT_THAT(page_of(folder), AllOf(HasSubstr(">Step 4 on the first ranks</title>"),
                                     HasSubstr("Not all ranks were traced, so it is not known who waited for whom."),
                                     Not(HasSubstr(">Who waited for whom</title>")),
                                     Not(HasSubstr("What moved in step 4")), HasSubstr("Bytes that rank 0 sent")));
}

// Whose loss jumps from step to step: the means show where it goes.
TEST_F(RunPage, OfManyStepsEachOfWhichIsToldHasMeansToo) {
  config_.log_steps = true;
  std::string folder = train(1).folder;
  std::string page = page_of(folder);
  EXPECT_THAT(page, AllOf(HasSubstr("Of every step."), Not(HasSubstr("mean of"))));
  std::ofstream lines(folder + "/metrics.jsonl");
  for (int step = 1; step <= 1000; ++step)
    lines << concat(R"({"step": )", step, R"(, "loss": )", step % 2 == 0 ? 3 : 1, R"(, "lr": 1})") << "\n";
  lines.close();
  page = page_of(folder);
  EXPECT_THAT(page, AllOf(HasSubstr("each line ends at 3."), HasSubstr("mean of 10 ends at 2.")));
}

TEST_F(RunPage, OfARunThatWasStoppedSaysSo) {
  stop_at_ = "step      8 ";
  train::Result result = train(2);
  ASSERT_TRUE(result.stopped);
  EXPECT_THAT(page_of(result.folder), HasSubstr("stopped as asked after step <data value="));
}

TEST_F(RunPage, OfARunThatWasKilledShowsWhatThereIs) {
  std::string folder = train(2).folder;
  std::string about = read_file(folder + "/about.json");
  auto without_end = nlohmann::json::parse(about);
  without_end.erase("end");
  std::ofstream(folder + "/about.json") << without_end;
  std::filesystem::remove(folder + "/ledger.json");
  std::string lines = read_file(folder + "/metrics.jsonl");
  std::ofstream(folder + "/metrics.jsonl") << lines.substr(0, lines.size() - 20);
  std::string page = page_of(folder);
  EXPECT_THAT(page,
              AllOf(HasSubstr("has not ended"), HasSubstr("ledger.json is not there"), HasSubstr("Training loss")));
  for (const char* name : {"about.json", "metrics.jsonl", "trace.json", "latest"}) {
    std::filesystem::remove(folder + "/" + name);
    EXPECT_THAT(page_of(folder), HasSubstr("</html>")) << "without " << name;
  }
}

TEST_F(RunPage, ADamagedFileIsNamedAndTheRestIsShown) {
  std::string folder = train(1).folder;
  auto damaged = [&](const std::string& name, const std::string& text) {
    std::string whole = read_file(folder + "/" + name), page;
    std::ofstream(folder + "/" + name) << text;
    std::string message = error_of([&] { page = page_of(folder); });
    std::ofstream(folder + "/" + name) << whole;
    return page.empty() ? message : page;
  };
  EXPECT_THAT(damaged("config.json", "{\"a\": "), HasSubstr("/config.json' is damaged"));
  for (const char* name : {"about.json", "ledger.json"})
    EXPECT_THAT(damaged(name, "{\"a\": "),
                AllOf(HasSubstr(concat("/", name, "&#39; is damaged")), HasSubstr("Training loss")));
  EXPECT_THAT(damaged("trace.json", "{}"), AllOf(HasSubstr("/trace.json&#39; is damaged"), HasSubstr("Training loss")));
  EXPECT_THAT(damaged("metrics.jsonl", "{}\n{\"step\": 1}\n{\"step\": \"x\"}\n{\"st"),
              HasSubstr("/metrics.jsonl&#39;: 2 lines are damaged and left out"));
  for (const char* text : {"{}", "{\"peak\": 1e300, \"categories\": {}}"})
    EXPECT_THAT(damaged("ledger.json", text),
                AllOf(HasSubstr("/ledger.json&#39; lacks what belongs there, and is left out"),
                      HasSubstr("Training loss"), HasSubstr("gathers a step")));
  EXPECT_THAT(damaged("about.json", "{}"),
              AllOf(HasSubstr("/about.json&#39; lacks what belongs there, and is left out"), HasSubstr("Training loss"),
                    Not(HasSubstr("/ledger.json&#39;"))));
  EXPECT_THAT(damaged("config.json", "{\"log_steps\": \"x\"}"), HasSubstr("/config.json' lacks what belongs there"));
  EXPECT_THAT(page_of(folder), HasSubstr("</html>")) << "and now it is whole again";
}

// A line of progress wants the gradients' norm, which sends something that the plan's step does not.
TEST_F(RunPage, AStepWithALineOfProgressIsAsPredictedToo) {
  config_.log_interval = 1;
  for (double clip : {0.0, 1.0}) {
    config_.clip_grad_norm = clip;
    std::string page = page_of(train(2).folder);
    EXPECT_THAT(page, AllOf(HasSubstr("are equal."), HasSubstr("== predicted, to the byte")));
    EXPECT_THAT(page, Not(HasSubstr("class=\"differs\""))) << clip;
  }
}

// What an earlier process left is not compared with the plan of this one.
TEST_F(RunPage, ARunThatGoesOnOtherwiseDoesNotShowWhatItDidBefore) {
  config_.resume = true;
  config_.epochs = 1;
  std::string folder = train(2).folder;
  EXPECT_THAT(page_of(folder), HasSubstr("Step 4 on every rank"));
  config_.epochs = 2;
  train(2);
  EXPECT_THAT(page_of(folder), HasSubstr("Step 4 on every rank")) << "it goes on as it was";
  config_.epochs = 3;
  config_.strategy = "ddp";
  train(1);
  std::string page = page_of(folder);
  EXPECT_THAT(page,
              AllOf(HasSubstr("ended after step"), HasSubstr("No step was traced"), HasSubstr("1</data> rank (")));
}

TEST_F(RunPage, ACheckpointThatWasRemovedIsANote) {
  std::string folder = train(1).folder;
  std::filesystem::remove_all(folder + "/step-20");
  EXPECT_THAT(page_of(folder), AllOf(HasSubstr("the last checkpoint cannot be read"), HasSubstr("Training loss")));
}

TEST_F(RunPage, OfManyLinesItShowsSome) {
  std::string folder = train(1).folder;
  auto lines = metrics({.folder = folder});
  std::ofstream file(folder + "/metrics.jsonl");
  for (int step = 1; step <= 5000; ++step) {
    lines[0]["step"] = step;
    file << lines[0] << "\n";
  }
  file.close();
  std::string page = page_of(folder);
  EXPECT_THAT(page, AllOf(HasSubstr(">201 lines of metrics.jsonl, of 5000<"), HasSubstr("<data value=\"5000\">")));
  EXPECT_LT(page.size(), 1 << 20);
}

TEST_F(RunPage, AFolderThatIsNoRunIsRefused) {
  EXPECT_THAT(error_of([&] { train::read_run(folder_ / "nothing"); }), HasSubstr("there is no folder '"));
  EXPECT_THAT(error_of([&] { train::read_run(folder_.path()); }),
              HasSubstr("is no folder of a run: it has no config.json"));
}

// Names are a user's, files may be anybody's.
TEST_F(RunPage, TextsCannotBecomeMarkup) {
  config_.name = "<script>alert(1)<script> & \"co\"";
  std::string folder = train(1).folder;
  auto about = json_of(folder + "/about.json");
  about["host"] = "<img src=x onerror=alert(2)>";
  about["plan"]["units"][0]["name"] = "<b>unit</b>";
  std::ofstream(folder + "/about.json") << about;
  auto config = json_of(folder + "/config.json");
  config["model"]["<i>key</i>"] = {"<u>", 3};
  std::ofstream(folder + "/config.json") << config;
  std::ofstream(folder + "/metrics.jsonl", std::ios::app) << R"({"step": 21, "test_<s>": 1, "<em>": "</td>"})"
                                                          << "\n";
  std::string page = page_of(folder);
  for (const char* markup : {"<script", "<img", "<b>unit", "<i>key", "<u>", "<s>", "<em>"})
    EXPECT_THAT(page, Not(HasSubstr(markup)));
  EXPECT_THAT(page, HasSubstr("<title>&lt;script&gt;alert(1)"));
}

TEST_F(RunPage, FetchesNothingAndRunsNothing) {
  std::string page = page_of(train(2).folder);
  std::regex fetched(R"rx((src|href)="(?!#|data:,)|url\(|@import|<script|<iframe|<object| on[a-z]+=)rx");
  std::smatch found;
  EXPECT_FALSE(std::regex_search(page, found, fetched)) << found.str();
}

}  // namespace
}  // namespace shardgrad
