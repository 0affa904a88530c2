// The sum of passes that come one after the other: which are added to which, whichever bring something.

#include <shardgrad/dist/transports/pass_sums.h>

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include <shardgrad/core/context.h>

namespace shardgrad::dist {
namespace {

// Pass p brings 2^p, so that a sum tells of which passes it is; of each it is written down how it was made.
struct Written {
  std::map<float, std::string> words = {};
  PassSums sums = PassSums([this](Tensor& sum, const Tensor& more) {
    if (!sum.defined()) {
      sum = more;
      return;
    }
    float a = float(sum.item()), b = float(more.item());
    words[a + b] = concat('(', words[a], '+', words[b], ')');
    sum = from_vector<float>({a + b}, {1});
  });
  void take(int pass) {
    float value = std::ldexp(1.0f, pass);
    words[value] = std::to_string(pass);
    sums.take(pass, from_vector<float>({value}, {1}));
  }
  std::string join() {
    Tensor total;
    sums.join(total);
    return words[float(total.item())];
  }
};

TEST(PassSums, AreAddedAsACounterCarries) {
  Context context;
  Written written;
  for (int pass = 0; pass < 7; ++pass) written.take(pass);
  EXPECT_EQ(written.sums.tensors().size(), 3);
  EXPECT_EQ(written.join(), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_TRUE(written.sums.empty());
}

TEST(PassSums, PassesThatBringNothingLeaveTheOthersWhereTheyStand) {
  Context context;
  for (unsigned brings = 1; brings < 256; ++brings) {  // of eight passes
    Written written;
    std::vector<std::string> tree(8);  // the same tree from the leaves up, over what is there
    for (int pass = 0; pass < 8; ++pass) {
      if (!(brings >> pass & 1)) continue;
      tree[size_t(pass)] = std::to_string(pass);
      written.take(pass);
    }
    for (; tree.size() > 1; tree.resize(tree.size() / 2))
      for (size_t i = 0; i < tree.size() / 2; ++i) {
        std::string a = tree[2 * i], b = tree[2 * i + 1];
        tree[i] = a.empty() ? b : b.empty() ? a : concat('(', a, '+', b, ')');
      }
    ASSERT_EQ(written.join(), tree[0]);
  }
}

TEST(PassSums, APassFollowsAllThatWereTaken) {
  Context context;
  Written written;
  EXPECT_TRUE(written.sums.follows(0)) << "the first";
  for (int pass : {0, 1}) written.take(pass);
  EXPECT_FALSE(written.sums.follows(1)) << "it was the last one";
  EXPECT_TRUE(written.sums.follows(2));
  written.take(4);
  EXPECT_FALSE(written.sums.follows(3)) << "0+1 is 0..3 by now";
  EXPECT_FALSE(written.sums.follows(4));
  EXPECT_TRUE(written.sums.follows(5));
}

}  // namespace
}  // namespace shardgrad::dist
