// Kernels that are offered, and chosen by name. On device meta, where no other test looks a kernel up.

#include <gtest/gtest.h>

#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/kernels/ops.h>

namespace shardgrad::test {
namespace {

void mine(const Launch&, OutView, View) {}
void other(const Launch&, OutView, View) {}
const Offer offers[] = {{"mine", kernels::neg, DeviceKind::meta, DType::f32, mine},
                        {"mine", kernels::neg, DeviceKind::meta, DType::f64, mine},
                        {"mine", kernels::sqrt, DeviceKind::meta, DType::f32, mine},
                        {"other", kernels::neg, DeviceKind::meta, DType::f32, other}};

template <class Work> std::string message_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Alternatives, AnOfferIsUsedWhenItIsChosen) {
  EXPECT_FALSE(kernels::neg.has(DeviceKind::meta, DType::f32)) << "an offer is not an entry";
  use_all_kernels(std::vector<std::string>{"neg=mine"});
  EXPECT_EQ(kernels::neg.find(DeviceKind::meta, DType::f32), mine);
  EXPECT_EQ(kernels::neg.find(DeviceKind::meta, DType::f64), mine);
  use_kernels("neg", "other");
  EXPECT_EQ(kernels::neg.find(DeviceKind::meta, DType::f32), other);
  EXPECT_EQ(kernels::neg.find(DeviceKind::meta, DType::f64), mine) << "the other is for f32 only";
}

TEST(Alternatives, ACopyOfTheTableGoesBack) {
  TableCopy before;
  use_kernels("sqrt", "mine");
  TableCopy after;
  before.restore();
  EXPECT_FALSE(kernels::sqrt.has(DeviceKind::meta, DType::f32));
  after.restore();
  EXPECT_EQ(kernels::sqrt.find(DeviceKind::meta, DType::f32), mine);
  before.restore();
  int slots = 0;
  for (const SlotBase* slot = SlotBase::first(); slot; slot = slot->next()) ++slots;
  EXPECT_GE(slots, int(kernels::all_slots().size())) << "the list of slots is whole";
}

TEST(Alternatives, AChosenKernelStaysWhenALibraryIsLoadedLaterThatHasOneToo) {
  TableCopy before;
  kernels::sqrt.add(DeviceKind::meta, DType::f64, mine);
  use_kernels("sqrt", "mine");
  auto built_in = [](const Launch&, OutView, View) {};
  kernels::sqrt.add(DeviceKind::meta, DType::f32, built_in);
  kernels::sqrt.add(DeviceKind::meta, DType::f64, built_in);
  EXPECT_EQ(kernels::sqrt.find(DeviceKind::meta, DType::f32), mine);
  EXPECT_NE(kernels::sqrt.find(DeviceKind::meta, DType::f64), mine) << "nobody chose it";
  before.restore();
}

TEST(Alternatives, WhatIsNotThereIsRefusedWithWhatIs) {
  EXPECT_EQ(message_of([] { use_kernels("nog", "mine"); }),
            "kernels.nog: there is no operation 'nog' in the kernel table");
  EXPECT_EQ(message_of([] { use_kernels("neg", "yours"); }),
            "kernels.neg: nobody offers a kernel 'yours'; offered: 'mine', 'other'. Load the library that has it "
            "(`libraries`)");
  EXPECT_NE(message_of([] { use_kernels("exp", "mine"); }).find("nothing is offered for it"), std::string::npos);
  EXPECT_NE(message_of([] { use_all_kernels(std::vector<std::string>{"neg"}); }).find("operation=name"),
            std::string::npos);
  EXPECT_NE(message_of([] { load_kernels("no/such/library.so"); }).find("no/such/library.so"), std::string::npos);
}

}  // namespace
}  // namespace shardgrad::test
