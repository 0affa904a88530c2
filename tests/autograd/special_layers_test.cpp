// One special number in what goes into a layer or a loss gives what it gives in PyTorch in f32, and so do the
// gradients: special_values.py wrote them. What is different is listed below, and told in docs/from-pytorch.md.

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include <source_folder.h>
#include <tests/autograd/special_values.h>

namespace shardgrad::test::programs {
namespace {

std::string kind_of_number(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x == 0 ? "0" : "a number";
}

double largest(const Numbers& all) {
  double most = 0;
  for (double x : all)
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

// How it is told in the list, and how docs/from-pytorch.md begins to tell of it.
struct LayerDifference {
  const char *pattern, *words;
};
constexpr LayerDifference kLayerDifferences[] = {
    {"attention, input 0 has (nan|-?inf): (result|gradient 0) is nan, in PyTorch (0|a number)",
     "**Attention** with NaN or"},
    {"attention, input 0 has (nan|-?inf): gradient 0 is a number, in PyTorch nan", "gradients of what"},
    {"(batch|group)_norm, input 1 has -?inf: result is -?inf, in PyTorch nan", "**An infinite weight**"},
    {"(layer|group)_norm, input 1 has -?inf: gradient 0 is -?inf, in PyTorch nan", "**An infinite weight**"},
    {"conv1d, input 1 has -?inf: result is nan, in PyTorch -?inf", "multiplied with the zeros of the padding"},
    {"conv2d, input 1 has (nan|-?inf): gradient 0 is nan, in PyTorch (a number|-?inf)", "as a weight that is NaN"},
    {"binary_cross_entropy_with_logits, input 0 has -inf: result is inf, in PyTorch nan",
     "of -∞ is infinite where the target"},
    {"kl_div, input 1 has -(104|inf): gradient 1 is (0|a number), in PyTorch nan",
     "**The gradient of a target** of `kl_div`"},
    {"l1_loss, input [01] has nan: gradient [01] is nan, in PyTorch 0", "**At NaN** `abs`, `l1_loss` and `elu` have"},
};

// "conv1d, input 0 has inf: result is nan, in PyTorch inf"
std::set<std::string> layer_differences(const Steps& steps, const json& line) {
  std::set<std::string> found;
  std::string begin = concat(line["step"].get<std::string>(), ", input ", line["numbers"]["special"][1].get<int>(),
                             " has ", line["numbers"]["special"][0].get<std::string>(), ": ");
  for (const Values& values : tried(steps, line)) {
    double tolerance = 2e-6 * std::max(1.0, largest(values.expected));
    for (size_t i = 0; i < values.actual.size(); ++i) {
      double actual = values.actual[i], expected = values.expected[i];
      if (!same(actual, expected, false, tolerance))
        found.insert(
            concat(begin, values.what, " is ", kind_of_number(actual), ", in PyTorch ", kind_of_number(expected)));
    }
  }
  return found;
}

TEST(SpecialLayers, GiveWhatPyTorchGives) {
  Context context;
  Steps steps = all_steps();
  std::ifstream file(std::string(kSourceFolder) + "/tests/autograd/special_layers.json");
  std::set<std::string> met;
  for (const json& line : json::parse(file))
    for (const std::string& difference : layer_differences(steps, line)) {
      auto known = std::ranges::find_if(kLayerDifferences, [&](const LayerDifference& each) {
        return std::regex_match(difference, std::regex(each.pattern));
      });
      if (known == std::end(kLayerDifferences))
        ADD_FAILURE() << difference;
      else
        met.insert(known->pattern);
    }
  std::ifstream page(std::string(kSourceFolder) + "/docs/from-pytorch.md");
  std::string docs{std::istreambuf_iterator<char>(page), {}};
  for (const LayerDifference& known : kLayerDifferences) {
    EXPECT_TRUE(met.contains(known.pattern)) << known.pattern << " is as in PyTorch";
    EXPECT_NE(docs.find(known.words), std::string::npos) << "docs/from-pytorch.md lacks '" << known.words << "'";
  }
}

}  // namespace
}  // namespace shardgrad::test::programs
