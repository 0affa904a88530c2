// The one SVG writer: what any text becomes, that nothing depends on the locale, and that pictures share a page.

#include <shardgrad/picture/svg.h>

#include <limits>
#include <locale>

#include <gtest/gtest.h>

#include <shardgrad/core/error.h>

namespace shardgrad::picture {
namespace {

TEST(Svg, TextIsEscapedSoThatNoNameCanAddMarks) {
  EXPECT_EQ(escaped("a <img src=x onerror=\"f('&')\">"), "a &lt;img src=x onerror=&quot;f(&#39;&amp;&#39;)&quot;&gt;");
  EXPECT_EQ(escaped("]]>"), "]]&gt;");
  EXPECT_EQ(escaped("µs, Größe, 層, 🙂"), "µs, Größe, 層, 🙂");
}

TEST(Svg, WhatXmlHasNoPlaceForIsReplaced) {
  const std::string none = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped(std::string("a\0b", 3)), "a" + none + "b");
  EXPECT_EQ(escaped("\x1b[31m"), none + "[31m");
  EXPECT_EQ(escaped("tab\tand\n"), "tab\tand\n");
  EXPECT_EQ(escaped("\xff"), none) << "no byte of UTF-8";
  EXPECT_EQ(escaped("\xc3"), none) << "the second byte is missing";
  EXPECT_EQ(escaped("\xc3(\xa9"), none + "(" + none) << "what follows is kept";
  EXPECT_EQ(escaped("\xc0\xaf"), none) << "longer than need be";
  EXPECT_EQ(escaped("\xed\xa0\x80"), none) << "half of a pair of UTF-16";
  EXPECT_EQ(escaped("\xef\xbf\xbf"), none) << "U+FFFF";
}

TEST(Svg, CoordinatesHaveAtMostTwoDigitsAndNoMinusZero) {
  EXPECT_EQ(coordinate(0), "0");
  EXPECT_EQ(coordinate(-0.001), "0");
  EXPECT_EQ(coordinate(100), "100");
  EXPECT_EQ(coordinate(1.5), "1.5");
  EXPECT_EQ(coordinate(1.0 / 3), "0.33");
  EXPECT_EQ(coordinate(-12.346), "-12.35");
  for (double none : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e9})
    EXPECT_THROW(coordinate(none), Error);
}

struct CommaForPoint : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

std::string some_picture(const std::string& id) {
  Svg svg({id, "Title", "What it shows."}, 1000.5, 20);
  svg.rect(Ink::blue, {1.5, 2, 1234.25, 4}, "a tip", 0.5);
  svg.text({1, 2}, "text");
  return svg.str();
}

TEST(Svg, IsTheSameInEveryLocale) {
  std::string before = some_picture("a");
  std::locale old = std::locale::global(std::locale(std::locale::classic(), new CommaForPoint));
  std::string after = some_picture("a");
  std::locale::global(old);
  EXPECT_EQ(after, before);
  EXPECT_NE(before.find("width=\"1234.25\""), std::string::npos) << before;
}

TEST(Svg, IsWholeAndCanBeReadOut) {
  std::string text = some_picture("a");
  EXPECT_EQ(text.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"a\" role=\"img\" "
                       "aria-labelledby=\"a-title a-desc\" viewBox=\"0 0 1000.5 20\"",
                       0),
            0u)
      << text;
  EXPECT_NE(text.find("<title id=\"a-title\">Title</title>\n<desc id=\"a-desc\">What it shows.</desc>"),
            std::string::npos);
  EXPECT_NE(text.find("<rect class=\"f-blue\" fill=\"#0072b2\" x=\"1.5\" y=\"2\" width=\"1234.25\" height=\"4\" "
                      "fill-opacity=\"0.5\"><title>a tip</title></rect>"),
            std::string::npos)
      << text;
}

// One picture with the id of another in its place differs in nothing else: no name of the page is used by both.
TEST(Svg, EveryIdAndEveryStyleIsOfThePicturesOwnId) {
  std::string a = some_picture("a-1"), b = some_picture("b_2");
  for (size_t at; (at = a.find("a-1")) != std::string::npos;) a.replace(at, 3, "b_2");
  EXPECT_EQ(a, b);
  size_t begin = a.find("<style>") + 7, end = a.find("</style>");
  std::istringstream styles(a.substr(begin, end - begin));
  for (std::string line; std::getline(styles, line);) {
    bool of_media = line.empty() || line[0] == '@' || line == "}";
    EXPECT_TRUE(of_media || line.rfind("#b_2 .", 0) == 0) << line;
  }
}

TEST(Svg, AnInkHasItsLightColourADarkOneAndAVariableOfThePage) {
  std::string text = some_picture("a");
  EXPECT_NE(text.find("#a .f-blue{fill:var(--sg-blue,#0072b2)}"), std::string::npos);
  size_t dark = text.find("@media(prefers-color-scheme:dark){");
  ASSERT_NE(dark, std::string::npos);
  EXPECT_NE(text.find("#a .f-blue{fill:var(--sg-blue,#4fa8e0)}", dark), std::string::npos);
}

TEST(Svg, AnIdThatWouldBreakAPageIsRefused) {
  for (const char* id : {"", "1a", "a b", "a\"b", "a#b", "ä", "-a"}) {
    try {
      Svg({id, "", ""}, 10, 10);
      ADD_FAILURE() << id;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("letters, digits"), std::string::npos) << error.what();
    }
  }
}

TEST(Svg, BoxesWithoutAreaAreLeftOut) {
  Svg svg({"a", "", ""}, 10, 10);
  std::string before = svg.str();
  svg.rect(Ink::paper, {1, 1, 0, 5});
  svg.rect(Ink::paper, {1, 1, 5, -1});
  EXPECT_EQ(svg.str(), before);
}

}  // namespace
}  // namespace shardgrad::picture
