// In a scope of Autocast a parameter that is used again, unchanged, is converted once for all its further uses.

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardgrad/autograd/recompute.h>
#include <tests/autograd/support.h>
#include <tests/numbers.h>

namespace shardgrad::test {
namespace {

constexpr int64_t kExtent = 8, kCopyBytes = kExtent * kExtent * 2;

Tensor square_weight(const std::string& name) {
  Tensor w = (normal({kExtent, kExtent}, name) * 0.4).detach().set_requires_grad();
  w.set_name(name);
  return w;
}
Tensor rows_of(const std::string& name) { return normal({4, kExtent}, name); }

// A layer that is called in a loop.
Tensor looped(Tensor y, const Tensor& w, int times) {
  for (int i = 0; i < times; ++i) y = linear(y, w, Tensor());
  return y;
}
// Each use in a scope of its own, so that nothing is shared.
Tensor looped_apart(Tensor y, const Tensor& w, int times, DType dtype = DType::bf16) {
  for (int i = 0; i < times; ++i) {
    Autocast scope(dtype);
    y = linear(y, w, Tensor());
  }
  return y;
}

int64_t copied() { return context().ledger().current(Category::converted_parameter); }

// Counts how often a tensor's values are converted by this thread.
class ConversionsOf final : public LaunchTrial {
 public:
  explicit ConversionsOf(Tensor tensor) : tensor_(std::move(tensor)) {}
  void launched(const Call& call) override {
    auto is_read = [this](const Tensor& input) { return input.storage() == tensor_.storage(); };
    if (std::string(call.slot.name()) == "cast" && std::ranges::any_of(call.inputs, is_read)) {
      if (count_ == fails_at) throw OutOfMemory("no memory left");
      ++count_;
    }
    call.run(false);
  }
  /// Since it was asked last.
  int take() { return std::exchange(count_, 0); }
  int fails_at = -1;

 private:
  Tensor tensor_;
  int count_ = 0;
};

TEST(ConvertedCopies, AParameterOfManyUsesIsConvertedAtTheFirstTwo) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  ConversionsOf conversions(w);
  for (auto [uses, expected] : {std::pair(1, 1), std::pair(2, 2), std::pair(7, 2)}) {
    Autocast scope(DType::bf16);
    looped(x, w, uses);
    EXPECT_EQ(conversions.take(), expected) << uses;
  }
  looped_apart(x, w, 7);
  EXPECT_EQ(conversions.take(), 7) << "a scope of its own for each";
}

TEST(ConvertedCopies, ValuesAndGradientsHaveTheBitsOfSeparateConversions) {
  Context context;
  for (DType dtype : {DType::bf16, DType::f16})
    for (bool inside : {false, true}) {
      Tensor x = rows_of("x"), apart = square_weight("w"), shared = square_weight("w"), dy = ones({4, kExtent}, dtype);
      Tensor expected = looped_apart(x, apart, 6, dtype), y;
      expected.backward(dy);
      {
        Autocast scope(dtype);
        y = looped(x, shared, 6);
        if (inside) y.backward(dy);
      }
      if (!inside) y.backward(dy);
      EXPECT_EQ(bits(y), bits(expected)) << dtype;
      EXPECT_EQ(shared.grad().dtype(), DType::f32);
      EXPECT_EQ(bits(shared.grad()), bits(apart.grad())) << dtype << (inside ? " inside" : " outside");
    }
}

TEST(ConvertedCopies, OneUseKeepsNothingAndTheScopesEndGivesAllBack) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x"), y;
  {
    Autocast scope(DType::bf16);
    y = looped(x, w, 1);
    EXPECT_EQ(copied(), 0);
    y = looped(y, w, 1);
    EXPECT_EQ(copied(), kCopyBytes);
    y = looped(y, w, 5);
    EXPECT_EQ(copied(), kCopyBytes);
  }
  EXPECT_EQ(copied(), 0) << "although the graph is there";
  y.backward(ones({4, kExtent}, DType::bf16));
}

TEST(ConvertedCopies, BackwardInTheScopeReadsThemAndKeepsNone) {
  Context context;
  Tensor often = square_weight("often"), once = square_weight("once");
  Autocast scope(DType::bf16);
  {
    ConversionsOf conversions(often);
    Tensor y = looped(rows_of("x").set_requires_grad(), often, 3);
    EXPECT_EQ(conversions.take(), 2);
    sum(y).backward();
    EXPECT_EQ(conversions.take(), 0);
  }
  ConversionsOf conversions(once);
  sum(looped(rows_of("x").set_requires_grad(), once, 1)).backward();
  EXPECT_EQ(conversions.take(), 2);
  EXPECT_EQ(copied(), kCopyBytes) << "of the other one";
}

TEST(ConvertedCopies, AChangeInPlaceIsSeenByTheNextUse) {
  Context context;
  Tensor other = square_weight("other").detach();
  const std::pair<const char*, std::function<void(Tensor&)>> changes[] = {
      {"copy_into", [&](Tensor& w) { copy_into(w, other); }},
      {"fill_", [](Tensor& w) { fill_(w, 0.25); }},
      {"+=",
       [&](Tensor& w) {
         NoGrad no_grad;
         w += other;
       }},
      {"a row of it", [&](Tensor& w) { copy_into(w.detach().alias_rows(2, 3), other.alias_rows(2, 3)); }}};
  for (const auto& [name, change] : changes) {
    Tensor w = square_weight("w"), x = rows_of("x");
    Autocast scope(DType::bf16);
    looped(x, w, 3);
    change(w);
    ConversionsOf conversions(w);
    Tensor y = looped(x, w, 1);
    EXPECT_EQ(conversions.take(), 1) << name;
    EXPECT_EQ(copied(), 0) << name << ": what is out of date is let go of";
    EXPECT_EQ(bits(y), bits(linear(x.to(DType::bf16), w.to(DType::bf16), Tensor()))) << name;
    y = looped(x, w, 3);
    Tensor narrow = w.to(DType::bf16);
    EXPECT_EQ(bits(y), bits(looped(x.to(DType::bf16), narrow.detach(), 3))) << name;
  }
}

// As where a loop of steps lies in one scope.
TEST(ConvertedCopies, AParameterThatChangesBetweenItsUsesIsNotKept) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  Autocast scope(DType::bf16);
  for (int step = 0; step < 4; ++step) {
    looped(x, w, 1);
    fill_(w, step);
  }
  EXPECT_EQ(copied(), 0);
}

TEST(ConvertedCopies, AScopeWithinAnotherSharesThem) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  ConversionsOf conversions(w);
  Autocast outer(DType::bf16);
  looped(x, w, 1);
  {
    Autocast inner(DType::bf16);
    looped(x, w, 4);
  }
  {
    Autocast off(std::nullopt);
    EXPECT_EQ(linear(x, w, Tensor()).dtype(), DType::f32);
  }
  looped(x, w, 4);
  EXPECT_EQ(conversions.take(), 2);
  {
    Autocast other(DType::f16);
    EXPECT_EQ(looped(x, w, 4).dtype(), DType::f16);
    EXPECT_EQ(conversions.take(), 2) << "one copy for each dtype";
  }
  EXPECT_EQ(copied(), 2 * kCopyBytes) << "until the outermost scope ends";
}

TEST(ConvertedCopies, TheyGoWithTheLastScopeInWhateverOrderScopesEnd) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  auto outer = std::make_unique<Autocast>(DType::bf16), inner = std::make_unique<Autocast>(DType::bf16);
  Tensor expected = looped(x, w, 3);
  outer.reset();
  EXPECT_EQ(bits(looped(x, w, 3)), bits(expected));
  EXPECT_EQ(copied(), kCopyBytes);
  inner.reset();
  EXPECT_EQ(copied(), 0);
  auto off = std::make_unique<Autocast>(std::nullopt);
  {
    Autocast on(DType::bf16);
    looped(x, w, 3);
    off.reset();
    EXPECT_EQ(copied(), kCopyBytes);
  }
  EXPECT_EQ(copied(), 0);
}

TEST(ConvertedCopies, AnExceptionLeavesNoneBehind) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  auto fail_in_scope = [&] {
    Autocast scope(DType::bf16);
    looped(x, w, 3);
    throw std::runtime_error("in the scope");
  };
  EXPECT_THROW(fail_in_scope(), std::runtime_error);
  EXPECT_EQ(copied(), 0);
  Autocast scope(DType::bf16);
  Tensor first = looped(x, w, 1);
  {
    ConversionsOf conversions(w);
    conversions.fails_at = 0;
    EXPECT_THROW(looped(x, w, 1), OutOfMemory);
    EXPECT_EQ(copied(), 0);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bits(looped(x, w, 1)), bits(first)) << "after a copy that failed";
}

TEST(ConvertedCopies, AThreadHasItsOwn) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  Autocast scope(DType::bf16);
  Tensor expected = looped(x, w, 3);
  std::thread([&] {
    ContextScope here(context);
    Autocast other(DType::bf16);
    ConversionsOf conversions(w);
    EXPECT_EQ(bits(looped(x, w, 3)), bits(expected));
    EXPECT_EQ(conversions.take(), 2);
    EXPECT_EQ(copied(), 2 * kCopyBytes);
  }).join();
  EXPECT_EQ(copied(), kCopyBytes);
}

TEST(ConvertedCopies, ACopyThatWasMadeWithoutGradCutsNoGradient) {
  Context context;
  Tensor w = square_weight("w"), again = square_weight("w"), x = rows_of("x");
  sum(looped_apart(x, again, 2)).backward();
  Autocast scope(DType::bf16);
  {
    NoGrad no_grad;
    EXPECT_FALSE(looped(x, w, 3).requires_grad());
  }
  ConversionsOf conversions(w);
  Tensor y = looped(x, w, 2);
  EXPECT_TRUE(y.requires_grad());
  {
    NoGrad no_grad;
    EXPECT_FALSE(looped(x, w, 1).requires_grad());
  }
  EXPECT_EQ(conversions.take(), 0);
  sum(y).backward();
  EXPECT_EQ(bits(w.grad()), bits(again.grad()));
}

// --- recomputed regions ----------------------------------------------------------------------------------------------

struct Regions {
  Tensor x = rows_of("x").set_requires_grad(), w = square_weight("w");
  Tensor forward(bool recompute) const {
    auto body = [this](const Tensor& h) { return tanh(linear(tanh(linear(h, w, Tensor())), w, Tensor())); };
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = recompute ? checkpoint(body, y) : body(y);
    return y;
  }
  std::vector<std::vector<uint8_t>> gradients() const { return {bits(x.grad()), bits(w.grad())}; }
};

TEST(ConvertedCopies, RegionsShareThemAndDoNotHoldThem) {
  Context context;
  Regions plain, outside, inside;
  Tensor y;
  {
    Autocast scope(DType::bf16);
    sum(plain.forward(false)).backward();
    ConversionsOf conversions(outside.w);
    y = outside.forward(true);
    EXPECT_EQ(conversions.take(), 2);
  }
  EXPECT_EQ(copied(), 0) << "although regions will run again";
  y.backward(ones({4, kExtent}, DType::bf16));
  {
    Autocast scope(DType::bf16);
    ConversionsOf conversions(inside.w);
    y = inside.forward(true);
    y.backward(ones({4, kExtent}, DType::bf16));
    EXPECT_EQ(conversions.take(), 2) << "what runs again in the scope reads the copy";
  }
  EXPECT_EQ(inside.gradients(), outside.gradients());
  EXPECT_EQ(inside.gradients(), plain.gradients());
}

TEST(ConvertedCopies, ARegionStillFindsAParameterThatWasChanged) {
  Context context;
  Regions changed;
  Tensor y;
  {
    Autocast scope(DType::bf16);
    y = changed.forward(true);
  }
  fill_(changed.w, 0);
  EXPECT_REFUSED(sum(y).backward(), "'w'", "changed in place");
}

// --- what is not kept ------------------------------------------------------------------------------------------------

TEST(ConvertedCopies, OfPlainParametersOnly) {
  Context context;
  Tensor fixed = square_weight("w").detach(), computed = square_weight("w") * 1.0, owned = square_weight("w"),
         lent = square_weight("w");
  leaf_of(owned).set_sink(std::make_shared<PoisonedSink>(owned));
  lent.storage()->lease("a test");
  Autocast scope(DType::bf16);
  for (const Tensor& w : {fixed, computed, owned, lent}) {
    ConversionsOf conversions(w);
    looped(rows_of("x"), w, 4);
    EXPECT_EQ(conversions.take(), 4);
  }
  EXPECT_EQ(copied(), 0);
  lent.storage()->end_lease();
  looped(rows_of("x"), lent, 4);
  EXPECT_EQ(copied(), kCopyBytes);
}

TEST(ConvertedCopies, AWriteOfWhoBorrowedAParameterIsSeenByTheNextUse) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  Autocast scope(DType::bf16);
  looped(x, w, 3);
  w.storage()->lease("a test");
  std::fill_n(w.data<float>(), w.numel(), 0.25f);
  w.storage()->end_lease();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(bits(looped(x, w, 1)), bits(linear(x.to(DType::bf16), w.detach().to(DType::bf16), Tensor()))) << i;
}

// Memory of a tensor that is gone is given to the next one.
TEST(ConvertedCopies, AnotherTensorInTheSamePlaceHasItsOwnValues) {
  Context context;
  Tensor x = rows_of("x");
  Autocast scope(DType::bf16);
  for (int i = 0; i < 8; ++i) {
    Tensor w = square_weight(concat("w", i));
    Tensor y = looped(x, w, 3);
    EXPECT_EQ(bits(y), bits(looped(x, w.detach(), 3))) << i;
  }
}

TEST(ConvertedCopies, OfTensorsThatAreGoneGoWhenOthersAreMade) {
  Context context;
  Tensor x = rows_of("x");
  std::vector<Tensor> in_their_places;
  Autocast scope(DType::bf16);
  for (int i = 0; i < 8; ++i) {
    looped(x, square_weight(concat("w", i)), 3);
    EXPECT_LE(copied(), 2 * kCopyBytes) << i;
    in_their_places.push_back(square_weight("another"));
  }
}

TEST(ConvertedCopies, AParameterThatIsNotInMemoryIsRefusedAsEver) {
  Context context;
  Tensor w = square_weight("w"), x = rows_of("x");
  Autocast scope(DType::bf16);
  looped(x, w, 3);
  w.storage()->release(current_stream(kCpu));
  EXPECT_REFUSED(looped(x, w, 1), "'w'", "not in memory");
}

TEST(ConvertedCopies, AreCountedOnMetaAsElsewhere) {
  Context context;
  Tensor w = zeros({kExtent, kExtent}, kMeta).set_requires_grad(), x = zeros({4, kExtent}, kMeta);
  Autocast scope(DType::bf16);
  looped(x, w, 3);
  EXPECT_EQ(copied(), kCopyBytes);
}

}  // namespace
}  // namespace shardgrad::test
