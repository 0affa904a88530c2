// Memory handed to another library and back (autograd/dlpack.h): who keeps it alive, and what is refused.

#include <array>
#include <thread>

#include <shardgrad/autograd/dlpack.h>
#include <shardgrad/core/context.h>

#include <tests/autograd/support.h>

namespace shardgrad::test {
namespace {

template <class M> void expect_round_trip(M* lent, const Tensor& x) {
  int deleted = 0;
  auto* theirs = new M(*lent);  // as another library would hold it, to see its deleter called
  struct Owner {
    M* lent;
    int* deleted;
  };
  theirs->owner = new Owner{lent, &deleted};
  theirs->deleter = [](M* self) {
    auto* owner = static_cast<Owner*>(self->owner);
    ++*owner->deleted;
    owner->lent->deleter(owner->lent);
    delete owner, delete self;
  };
  {
    Tensor y = dlpack::borrow(theirs), row = y[1];
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.dtype(), x.dtype());
    EXPECT_EQ(y.in().data, x.in().data) << "no copy";
    y = Tensor();
    row += 1;
    EXPECT_EQ(deleted, 0) << "a view needs it still";
  }
  EXPECT_EQ(deleted, 1);
}

TEST(Dlpack, WhatIsLentAndBorrowedIsTheSameMemory) {
  Context context;
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    Tensor x = tensor({{1, 2, 3}, {4, 5, 6}}, dtype);
    expect_round_trip(dlpack::lend(x), x);
    expect_round_trip(dlpack::lend_unversioned(x), x);
    EXPECT_EQ(values(x), list({1, 2, 3, 6, 7, 8}));
  }
}

TEST(Dlpack, APartIsLentFromWhereItBegins) {
  Context context;
  Tensor x = arange(12, DType::f32).view({4, 3}), part = x.rows(1, 3);
  dlpack::Versioned* lent = dlpack::lend(part);
  const dlpack::Array& array = lent->array;
  EXPECT_EQ(static_cast<char*>(array.data) + array.byte_offset, static_cast<const void*>(part.data<float>()));
  EXPECT_EQ(array.ndim, 2);
  EXPECT_EQ((std::array{array.shape[0], array.shape[1], array.strides[0], array.strides[1]}),
            (std::array<int64_t, 4>{2, 3, 3, 1}));
  EXPECT_EQ(values(dlpack::copy_of(array)), list({3, 4, 5, 6, 7, 8}));
  lent->deleter(lent);
}

TEST(Dlpack, LentMemoryStaysWhenItsTensorGoesAndIsNotReleasedMeanwhile) {
  Context context;
  Tensor x = tensor({1., 2.});
  Ref<Storage> storage = x.storage();
  dlpack::Versioned* lent = dlpack::lend(x, "a cache");
  EXPECT_REFUSED(storage->release(current_stream(kCpu)), "leased to a cache");
  x += 1;
  EXPECT_EQ(static_cast<float*>(lent->array.data)[1], 3) << "a change in place is seen on the other side";
  x = Tensor();
  EXPECT_EQ(static_cast<float*>(lent->array.data)[0], 2);
  lent->deleter(lent);
  storage->release(current_stream(kCpu));
  EXPECT_EQ(context.ledger().current(), 0);
}

TEST(Dlpack, ALoanMayEndOnAThreadWithoutAContext) {
  Context context;
  dlpack::Versioned* last = dlpack::lend(ones({1000}));
  Tensor x = ones({10});
  dlpack::Versioned* lent = dlpack::lend(x);
  std::thread([&] { lent->deleter(lent), last->deleter(last); }).join();
  EXPECT_EQ(context.ledger().current(), 40) << "the memory of the one that nobody else had is given back";
  x.storage()->release(current_stream(kCpu));
}

TEST(Dlpack, RefusesToLendWhatOthersCouldNotUse) {
  Context context;
  EXPECT_REFUSED(dlpack::lend(tensor({1.}).set_requires_grad()), "gradient", "detach()");
  EXPECT_REFUSED(dlpack::lend(empty({2}, kMeta)), "meta");
  EXPECT_REFUSED(dlpack::lend(zeros({2}, kAcc)), "acc", ".to(kCpu)");
}

// Changes what is lent of six floats, borrows it, and gives the refusal.
template <class Change> std::string refusal_of(Change change) {
  Tensor x = arange(6, DType::f32).view({2, 3});
  dlpack::Versioned* lent = dlpack::lend(x);
  change(*lent);
  std::string message = refusal([&] { dlpack::borrow(lent); });
  EXPECT_THROW(x.storage()->release(current_stream(kCpu)), Error) << "no deleter was called";
  lent->deleter(lent);
  return message;
}

TEST(Dlpack, RefusesToBorrowWhatCannotBeHadHavingCalledNoDeleter) {
  Context context;
  auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << message << "' lacks '" << part << "'";
  };
  expect(refusal_of([](dlpack::Versioned& m) { m.major = 2; }), "version 2.0 is not known");
  expect(refusal_of([](dlpack::Versioned& m) { m.flags = dlpack::kReadOnly; }), "read-only");
  expect(refusal_of([](dlpack::Versioned& m) {
           m.array.device = {dlpack::DeviceType::cuda, 0};
         }),
         "copy it to the host");
  expect(refusal_of([](dlpack::Versioned& m) { m.array.dtype.bits = 8; }), "float8");
  expect(refusal_of([](dlpack::Versioned& m) { m.array.dtype.lanes = 4; }), "in vectors");
  expect(refusal_of([](dlpack::Versioned& m) { std::swap(m.array.strides[0], m.array.strides[1]); }), "row by row");
}

TEST(Dlpack, CopiesWhatHasGapsOrIsReadOnly) {
  Context context;
  Tensor x = arange(6, DType::f32).view({2, 3});
  dlpack::Versioned* lent = dlpack::lend(x);
  lent->flags = dlpack::kReadOnly;
  std::swap(lent->array.shape[0], lent->array.shape[1]);
  std::swap(lent->array.strides[0], lent->array.strides[1]);
  EXPECT_EQ(values(dlpack::copy_of(lent->array)), list({0, 3, 1, 4, 2, 5}));
  lent->deleter(lent);
}

}  // namespace
}  // namespace shardgrad::test
