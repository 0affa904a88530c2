// How numbers are said, and how names are shortened.

#include <shardgrad/picture/text.h>

#include <limits>

#include <gtest/gtest.h>

namespace shardgrad::picture {
namespace {

TEST(Text, NumbersAreSaidInTheirMeasure) {
  EXPECT_EQ(said(0, Unit::bytes), "0");
  EXPECT_EQ(said(12, Unit::bytes), "12 B");
  EXPECT_EQ(said(1536, Unit::bytes), "1.50 KiB");
  EXPECT_EQ(said(12595200, Unit::bytes), "12.0 MiB");
  EXPECT_EQ(said(3.0 * 0x1p60, Unit::bytes), "3072 PiB");
  EXPECT_EQ(said(3.2e-3, Unit::seconds), "3.20 ms");
  EXPECT_EQ(said(15e-9, Unit::seconds), "15.0 ns");
  EXPECT_EQ(said(90, Unit::seconds), "90 s") << "minutes from two on";
  EXPECT_EQ(said(150, Unit::seconds), "2.50 min");
  EXPECT_EQ(said(0.8871, Unit::plain), "0.887");
  EXPECT_EQ(said(-41, Unit::plain), "-41");
  EXPECT_EQ(said(2.5e-7, Unit::plain), "2.5e-7");
  EXPECT_EQ(said(1e300, Unit::plain), "1e300");
  EXPECT_EQ(said(std::numeric_limits<double>::infinity(), Unit::bytes), "not finite");
}

TEST(Text, TicksHaveTheDigitsOfTheirStep) {
  EXPECT_EQ(said(0.30000000000000004, 0.1), "0.3");
  EXPECT_EQ(said(2, 0.5), "2.0");
  EXPECT_EQ(said(2000, 500), "2000");
  EXPECT_EQ(said(-1e-18, 0.1), "0");
  EXPECT_EQ(said(2.5e-5, 5e-6), "2.5e-5");
  EXPECT_EQ(said(-6e307, 2e307), "-6e307");
}

TEST(Text, PercentIsAHundredOnlyForAllOfIt) {
  EXPECT_EQ(percent_of(0), "0 %");
  EXPECT_EQ(percent_of(0.001), "less than 1 %");
  EXPECT_EQ(percent_of(0.874), "87 %");
  EXPECT_EQ(percent_of(0.9999), "more than 99 %");
  EXPECT_EQ(percent_of(1), "100 %");
}

TEST(Text, LongNamesKeepTheirBeginningAndTheirEnd) {
  EXPECT_EQ(shortened("layers.0", 200), "layers.0");
  std::string name = "model.transformer.layers.17.attention.projection.weight", kept = shortened(name, 150);
  EXPECT_LE(width_of(kept), 150);
  EXPECT_GT(width_of(kept), 120) << "no more than need be is left out";
  EXPECT_EQ(kept.rfind("model.", 0), 0u) << kept;
  EXPECT_EQ(kept.substr(kept.size() - 6), "weight") << kept;
  EXPECT_NE(kept.find("…"), std::string::npos);
  EXPECT_EQ(shortened("層層層層層層", 50), "層…層") << "no letter is cut in two";
  EXPECT_EQ(shortened("name", 0), "…");
}

TEST(Text, NamesThatStandTogetherKeepWhatTellsThemApart) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(told_apart({"blocks.0", "blocks.1"}, 200), (Names{"blocks.0", "blocks.1"})) << "these have room";
  EXPECT_EQ(told_apart({"model.layers.7.attention", "model.layers.17.attention"}, 150), (Names{"…7…", "…17…"}));
  EXPECT_EQ(told_apart({"model.layers.7.attention", "model.layers.17.mlp"}, 150), (Names{"…7.attention", "…17.mlp"}));
  EXPECT_EQ(told_apart({"model.embedding.of.tokens", "model.embedding.of.tokens"}, 150), (Names{"…tokens", "…tokens"}));
  EXPECT_EQ(told_apart({"a", "a.very.long.name.of.a.unit.somewhere"}, 100)[0], "a");
  EXPECT_EQ(told_apart({}, 100), Names{});
  for (const std::string& name : told_apart({std::string(90, 'x'), std::string(90, 'y')}, 100))
    EXPECT_LE(width_of(name), 100) << name;
}

}  // namespace
}  // namespace shardgrad::picture
