#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include <shardgrad/autograd/traverse.h>
#include <shardgrad/core/context.h>

namespace shardgrad {
namespace {

struct Named {
  Tensor q;
  std::optional<Tensor> k;
  int heads;
  std::string label;
  std::map<std::string, Tensor> rest;
};

class Hidden {
 public:
  explicit Hidden(Tensor t) : inside(std::move(t)), name("x") {}
  Tensor inside;
  std::string name;
};
inline auto tensors_of(Hidden& hidden) { return std::tie(hidden.inside); }

struct One {
  Tensor a;
};
struct Two {
  Tensor a, b;
};
struct Three {
  Tensor a, b, c;
};
struct Four {
  Tensor a, b, c, d;
};
struct Five {
  Tensor a, b, c, d, e;
};
struct Six {
  Tensor a, b, c, d, e, f;
};
struct Seven {
  Tensor a, b, c, d, e, f, g;
};
struct Eight {
  Tensor a, b, c, d, e, f, g, h;
};

template <class T> int count(T value) {
  int found = 0;
  for_each_tensor(value, [&](const Tensor&) { ++found; });
  return found;
}

TEST(Traverse, FindsTensorsInEveryStandardHolder) {
  Context context;
  Tensor t = empty({1});
  EXPECT_EQ(count(t), 1);
  EXPECT_EQ(count(std::optional<Tensor>(t)), 1);
  EXPECT_EQ(count(std::optional<Tensor>()), 0);
  EXPECT_EQ(count(std::vector<Tensor>{t, t, t}), 3);
  EXPECT_EQ(count(std::array<Tensor, 2>{t, t}), 2);
  EXPECT_EQ(count(std::pair<int, Tensor>(1, t)), 1);
  EXPECT_EQ(count(std::tuple<Tensor, std::string, std::vector<Tensor>>(t, "a", {t, t})), 3);
  EXPECT_EQ(count(std::map<std::string, std::vector<Tensor>>{{"a", {t}}, {"b", {t, t}}}), 3);
}

TEST(Traverse, FindsTensorsInPlainStructsAndWhereAFunctionPoints) {
  Context context;
  Tensor t = empty({1});
  EXPECT_EQ(count(Named{t, t, 3, "label", {{"a", t}}}), 3);
  EXPECT_EQ(count(std::vector<Named>{{t, {}, 1, "", {}}, {t, t, 1, "", {}}}), 3);
  EXPECT_EQ(count(Hidden(t)), 1);
}

TEST(Traverse, FindsTheTensorsOfStructsOfUpToEightMembers) {
  Context context;
  Tensor t = empty({1});
  EXPECT_EQ(count(One{t}), 1);
  EXPECT_EQ(count(Two{t, t}), 2);
  EXPECT_EQ(count(Three{t, t, t}), 3);
  EXPECT_EQ(count(Four{t, t, t, t}), 4);
  EXPECT_EQ(count(Five{t, t, t, t, t}), 5);
  EXPECT_EQ(count(Six{t, t, t, t, t, t}), 6);
  EXPECT_EQ(count(Seven{t, t, t, t, t, t, t}), 7);
  EXPECT_EQ(count(Eight{t, t, t, t, t, t, t, t}), 8);
}

TEST(Traverse, KnowsAtCompileTimeWhatCannotHoldTensors) {
  static_assert(!holds_tensors<int>);
  static_assert(!holds_tensors<const std::string&>);
  static_assert(!holds_tensors<std::vector<std::vector<double>>>);
  static_assert(!holds_tensors<std::map<std::string, int>>);
  static_assert(!holds_tensors<Shape>);
  static_assert(!holds_tensors<Tensor*>);
  static_assert(!holds_tensors<std::pair<std::string, int>>);
  static_assert(holds_tensors<const Tensor&>);
  static_assert(holds_tensors<Named&&>);
  static_assert(holds_tensors<std::span<const Tensor>>);
}

TEST(Traverse, MayReplaceTensors) {
  Context context;
  Tensor a = empty({1}), b = empty({2});
  std::map<std::string, Tensor> value{{"x", a}};
  for_each_tensor(value, [&](Tensor& tensor) { tensor = b; });
  EXPECT_TRUE(value["x"].same_as(b));
}

}  // namespace
}  // namespace shardgrad
