// LSTM and GRU beside their formulas and beside themselves; torch_parity_test.cpp has PyTorch's numbers.

#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/adam.h>

#include <tests/autograd/support.h>
#include <tests/nn/gradcheck_module.h>

namespace shardgrad::test {
namespace {

TEST(Recurrent, AnLstmIsItsFormula) {
  Context context;
  auto lstm = nn::make<nn::LSTM>(3, 2);
  Tensor x = randn({4, 5, 3}), h = randn({1, 5, 2}), c = randn({1, 5, 2});
  auto [y, last_h, last_c] = lstm(x, h, c);
  nn::StateDict w = lstm->state_dict();
  Tensor before = h[0], cell = c[0];
  for (int64_t place = 0; place < 4; ++place) {
    Tensor gates = linear(x[place], w.at("weight_ih_l0"), w.at("bias_ih_l0")) +
                   linear(before, w.at("weight_hh_l0"), w.at("bias_hh_l0"));
    auto gate = [&](int64_t i) { return slice(gates, 1, 2 * i, 2 * i + 2); };
    cell = sigmoid(gate(1)) * cell + sigmoid(gate(0)) * tanh(gate(2));
    before = sigmoid(gate(3)) * tanh(cell);
    EXPECT_EQ(bits(y[place]), bits(before)) << place;
  }
  EXPECT_EQ(bits(last_h), bits(before));
  EXPECT_EQ(bits(last_c), bits(cell));
}

TEST(Recurrent, GradientsAgreeWithDifferences) {
  struct Outputs : nn::Module {
    nn::Child<nn::LSTM> lstm = child<nn::LSTM>("lstm", 3, 2, nn::RecurrentOptions{.layers = 2, .batch_first = true});
    nn::Child<nn::GRU> gru = child<nn::GRU>("gru", 2, 3, nn::RecurrentOptions{.bias = false, .bidirectional = true});
    Tensor forward(const Tensor& x) { return gru(lstm(x).y).y; }
  };
  Context context;
  EXPECT_EQ(gradcheck_module(nn::make<Outputs>(), {4, 3, 3}), 13u);  // x, 8 of the LSTM and 4 of the GRU
}

TEST(Recurrent, ASequenceInPartsIsTheWhole) {
  Context context;
  auto lstm = nn::make<nn::LSTM>(3, 4, nn::RecurrentOptions{.layers = 2});
  auto gru = nn::make<nn::GRU>(3, 4, nn::RecurrentOptions{.layers = 2});
  Tensor x = randn({6, 2, 3});
  auto [y, h, c] = lstm(x);
  auto first = lstm(x.rows(0, 4));
  auto second = lstm(x.rows(4, 6), first.h, first.c);
  EXPECT_EQ(bits(cat({first.y, second.y})), bits(y));
  EXPECT_EQ(bits(second.h), bits(h));
  EXPECT_EQ(bits(second.c), bits(c));
  auto begun = gru(x.rows(0, 1));
  EXPECT_EQ(bits(gru(x.rows(1, 6), begun.h).y), bits(gru(x).y.rows(1, 6)));
}

TEST(Recurrent, SamplesFirstAndOneSampleAreTheSameNumbers) {
  Context context;
  auto places_first = nn::make<nn::GRU>(3, 4, nn::RecurrentOptions{.bidirectional = true});
  auto samples_first = nn::make<nn::GRU>(3, 4, nn::RecurrentOptions{.batch_first = true, .bidirectional = true});
  Tensor x = randn({5, 2, 3});
  Tensor y = places_first(x).y;
  EXPECT_EQ(bits(transpose(samples_first(transpose(x, 0, 1)).y, 0, 1)), bits(y));
  auto one = samples_first(squeeze(slice(x, 1, 1, 2), 1));
  EXPECT_EQ(one.y.shape(), (Shape{5, 8}));
  EXPECT_EQ(one.h.shape(), (Shape{2, 4}));
  EXPECT_EQ(values(one.y), values(squeeze(slice(y, 1, 1, 2), 1)));
  EXPECT_EQ(bits(places_first(squeeze(slice(x, 1, 1, 2), 1), zeros({2, 4})).y), bits(one.y));
}

TEST(Recurrent, DropoutIsBetweenLayersInTrainingAndTheSameForEverySample) {
  Context context;
  auto lstm = nn::make<nn::LSTM>(3, 8, nn::RecurrentOptions{.layers = 2, .dropout = 0.5});
  Tensor x = randn({4, 6, 3});
  auto run = [&](int64_t first, int64_t last) {
    progress() = {1, first};
    return lstm(slice(x, 1, first, last)).y;
  };
  Tensor whole = run(0, 6);
  EXPECT_EQ(values(cat({run(0, 2), run(2, 6)}, 1)), values(whole));  // as parts of a batch on two ranks
  lstm->eval();
  Tensor plain = run(0, 6);
  EXPECT_NE(values(plain), values(whole));
  auto without = nn::make<nn::LSTM>(3, 8, nn::RecurrentOptions{.layers = 2});
  without->load_state_dict(lstm->state_dict());
  EXPECT_EQ(bits(without(x).y), bits(plain));
}

TEST(Recurrent, RemembersTheFirstOfManyPlaces) {
  struct Recall : nn::Module {
    nn::Child<nn::LSTM> lstm = child<nn::LSTM>("lstm", 2, 16);
    nn::Child<nn::Linear> out = child<nn::Linear>("out", 16, 2);
    Tensor forward(const Tensor& x) { return out(squeeze(lstm(x).h, 0)); }
  };
  Context context;
  auto model = nn::make<Recall>();
  optim::Adam optimizer(model->named_parameters(), {.lr = 0.02});
  double loss = 1;
  for (int step = 0; step < 80; ++step) {
    Tensor labels = randint(0, 2, {32}), x = randn({12, 32, 2}) * 0.2;
    x = index_put(x, {0}, one_hot(labels, 2));
    Tensor now = cross_entropy(model(x), labels);
    loss = now.item();
    now.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  EXPECT_LT(loss, 0.1);
}

TEST(Recurrent, RefusesWhatDoesNotFitByName) {
  Context context;
  EXPECT_REFUSED(nn::make<nn::LSTM>(0, 2), "LSTM");
  EXPECT_REFUSED((nn::make<nn::GRU>(2, 2, nn::RecurrentOptions{.layers = 2, .dropout = 1.5})), "GRU");
  EXPECT_REFUSED((nn::make<nn::GRU>(2, 2, nn::RecurrentOptions{.dropout = 0.5})), "between layers");
  auto lstm = nn::make<nn::LSTM>(3, 2);
  EXPECT_REFUSED(lstm(zeros({4, 5, 2})), "[4, 5, 2]");
  EXPECT_REFUSED(lstm(zeros({3})), "LSTM");
  EXPECT_REFUSED(lstm(zeros({0, 5, 3})), "no places");
  EXPECT_REFUSED(lstm(zeros({4, 5, 3}), zeros({1, 5, 2})), "both or none");
  EXPECT_REFUSED(lstm(zeros({4, 5, 3}), zeros({1, 4, 2}), zeros({1, 4, 2})), "[1, 5, 2]");
  EXPECT_REFUSED(lstm(zeros({4, 3}), zeros({2}), zeros({2})), "LSTM");
}

}  // namespace
}  // namespace shardgrad::test
