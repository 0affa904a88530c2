// NaN, infinities, zeros, subnormals and large numbers give what PyTorch gives in f32, and so do their gradients:
// special_values.py wrote them. What is different is listed below, and told in docs/from-pytorch.md.

#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include <source_folder.h>
#include <tests/autograd/special_values.h>

namespace shardgrad::test::programs {
namespace {

bool same(double actual, double expected, bool signs) {
  return programs::same(actual, expected, signs, 1e-5 * std::abs(expected));
}

// "pow gradient 0 of -2 0", or "power 0.5 result of 3", by the inputs that element i is made of.
std::string name_of_element(const json& line, const std::string& what, size_t i) {
  std::ostringstream name;
  name << line["step"].get<std::string>();
  for (const json& number : line["numbers"])
    if (number.is_number()) name << " " << number.get<double>();
  name << " " << what << " of";
  bool whole = numbers_in(line["result"]).size() == 1;
  for (size_t k = 0; k < line["inputs"].size(); ++k) {
    Numbers x = numbers_in(line["inputs"][k]);
    size_t step = line["shapes"][k].size() == 2 ? line["shapes"][k][1].get<size_t>() : whole ? 1 : x.size();
    for (size_t at = i % step; at < x.size(); at += step) name << " " << x[at];
  }
  return name.str();
}

// What is different, by name; what it is here, each of them or in their order; and how docs/from-pytorch.md begins to
// tell of it.
struct Difference {
  const char *pattern, *ours, *words;
};
constexpr Difference kDifferences[] = {
    {"(abs|elu) gradient 0 of nan", "nan", "**At NaN** `abs`, `l1_loss` and `elu` have"},
    {"amax gradient 0 of .*nan.*", "0 0 1.5 0.625 0 0.625", "`amax` and `amin` give the gradient to NaN"},
    {"amin gradient 0 of .*nan.*", "0 0 1.5 0.625 0 0.625", "`amax` and `amin` give the gradient to NaN"},
    {"clamp 1\\.5 -1\\.5 gradient 0 of -?1\\.5", "1.25 1.5", "**At a bound of `clamp`**"},
    {"clamp 1\\.5 0 gradient 0 of (-?0|1\\.5)", "1 1.25 1.25", "**At a bound of `clamp`**"},
    {"gelu result of (-0|-3e\\+38|-104)", "-0", "a 0 that `gelu` makes has the sign of x"},
    {"gelu_tanh gradient 0 of -?3e\\+38", "1.25 0", "its tanh form has a gradient"},
    {"power -0\\.5 result of (-0|-inf|-9\\.99995e-41)", "inf 0 inf", "`x.pow(-0.5)`"},
    {"power 0\\.5 gradient 0 of (-0|-inf|-9\\.99995e-41)", "inf 0 inf", "`x.pow(-0.5)`"},
    {"where result of .* -0", "0", "**A number times -0**"},
    {"var(_dim 0)? gradient 0 of .*(inf|3e\\+38).*", "nan", "**Where a square overflows**"},
    {"std_dim 0 result of .*3e\\+38.*", "inf", "**Where a square overflows**"},
    {"logsumexp 0 gradient 0 of 0\\.5 3e\\+38 3e\\+38", "0.5", "`logsumexp` of equal elements"},
    {"prod gradient 0 of inf .*", "inf", "`prod` has the product"},
    {"prod gradient 0 of -inf .*", "-inf", "`prod` has the product"},
    {"prod gradient 0 of 3e\\+38 .*", "1.5e38", "`prod` has the product"},
    {"prod gradient 0 of -3e\\+38 .*", "-1.5e38", "`prod` has the product"},
};

// Finds differences, and says in the end which of the list were not met.
class Differences {
 public:
  void tell(const std::string& name, double actual, double expected) {
    for (const Difference& known : kDifferences)
      if (std::regex_match(name, std::regex(known.pattern))) {
        Numbers ours = numbers_in(known.ours);
        size_t number = met_[known.pattern]++ % ours.size();
        EXPECT_TRUE(same(actual, ours[number], name.find(" result of ") != std::string::npos))
            << name << " is " << actual << ", not " << ours[number] << ", in PyTorch " << expected;
        return;
      }
    ADD_FAILURE() << name << " is " << actual << ", in PyTorch " << expected;
  }
  void expect_all_met_and_told() const {
    std::ifstream file(std::string(kSourceFolder) + "/docs/from-pytorch.md");
    std::string docs{std::istreambuf_iterator<char>(file), {}};
    for (const Difference& known : kDifferences) {
      size_t met = met_.contains(known.pattern) ? met_.at(known.pattern) : 0;
      EXPECT_TRUE(met > 0 && met % numbers_in(known.ours).size() == 0) << known.pattern << " is as in PyTorch";
      EXPECT_NE(docs.find(known.words), std::string::npos) << "docs/from-pytorch.md lacks '" << known.words << "'";
    }
  }

 private:
  std::map<std::string, size_t> met_;
};

TEST(SpecialValues, GiveWhatPyTorchGives) {
  Context context;
  Steps steps = all_steps();
  Differences differences;
  std::ifstream file(std::string(kSourceFolder) + "/tests/autograd/special_values.json");
  std::vector<Values> before;
  for (const json& line : json::parse(file)) {
    std::vector<Values> now = tried(steps, line);
    double first = std::abs(numbers_in(line["inputs"][0])[0]);
    bool subnormal = first > 0 && first < 0x1p-126;
    for (size_t k = 0; k < now.size(); ++k)
      for (size_t i = 0; i < now[k].actual.size(); ++i) {
        double actual = now[k].actual[i], expected = now[k].expected[i];
        if (!same(actual, expected, k == 0) && !(subnormal && same(actual, before[k].expected[i], k == 0)))
          differences.tell(name_of_element(line, now[k].what, i), actual, expected);
      }
    before = std::move(now);
  }
  differences.expect_all_met_and_told();
}

}  // namespace
}  // namespace shardgrad::test::programs
