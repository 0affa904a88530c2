// The training of tests/python/twin_test.py in C++, line by line: what each strategy has trained goes into files that
// the test compares bit by bit with those of the program in Python.
//
//     python_twin FOLDER        on as many ranks as a launcher has started

#include <string>

#include <shardgrad/shardgrad.h>

namespace {

using namespace shardgrad;

struct Block : nn::Module {
  nn::Child<nn::Linear> up, down;
  nn::Child<nn::Dropout> drop;
  explicit Block(int64_t width)
      : up(child<nn::Linear>("up", width, 2 * width)),
        down(child<nn::Linear>("down", 2 * width, width)),
        drop(child<nn::Dropout>("drop", 0.2)) {}
  Tensor forward(const Tensor& x) { return x + drop(down(gelu(up(x)))); }
};

struct Net : nn::Module {
  nn::Child<nn::Linear> first = child<nn::Linear>("first", 6, 8);
  nn::Child<nn::ModuleList<Block>> blocks = child<nn::ModuleList<Block>>("blocks");
  nn::Child<nn::LayerNorm> norm;
  nn::Child<nn::Linear> head;
  Net() {
    for (int i = 0; i < 3; ++i) blocks->add(8);
    norm = child<nn::LayerNorm>("norm", 8);
    head = child<nn::Linear>("head", 8, 3);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = first(x);
    for (const nn::Child<Block>& block : *blocks) y = block(y);
    return head(norm(y));
  }
};

void train(nn::Child<Net>& model, fsdp::Sharded& sharded, optim::Optimizer& optimizer, dist::ProcessGroup& world) {
  constexpr int64_t kBatch = 16;
  int64_t part = kBatch / world.size(), begin = world.rank() * part;
  for (uint64_t step = 0; step < 5; ++step) {
    progress() = {step, begin};
    Tensor x = randn({kBatch, 6}, "x"), labels = randint(0, 3, {kBatch}, "y");
    Tensor loss = cross_entropy(model(x.rows(begin, begin + part)), labels.rows(begin, begin + part), double(kBatch));
    loss.backward();
    fsdp::clip_grad_norm(sharded, 0.5);
    optimizer.step();
    optimizer.zero_grad();
  }
}

void run(const std::string& folder, fsdp::Strategy strategy, dist::ProcessGroup& world) {
  manual_seed(7);
  auto model = nn::make<Net>();
  fsdp::Config config{.strategy = strategy};
  if (strategy == fsdp::Strategy::hybrid) config.shard_ranks = std::max(1, world.size() / 2);
  auto sharded = fsdp::fully_shard(*model, world, config);
  optim::AdamW optimizer(model->named_parameters(), {.lr = 1e-2}, {{"*.bias", {.weight_decay = 0}}});
  train(model, *sharded, optimizer, world);
  auto state = fsdp::full_state_dict(*sharded), moments = fsdp::full_optim_state_dict(*sharded, optimizer);
  if (world.rank() != 0) return;
  state.merge(moments);
  train::save_safetensors(folder + "/cpp-" + fsdp::name_of(strategy) + ".safetensors", state);
}

}  // namespace

int main(int argc, char** argv) {
  return dist::run_job([&](dist::Job& job) {
    SG_CHECK(argc == 2, "usage: python_twin FOLDER");
    for (auto strategy : {fsdp::Strategy::ddp, fsdp::Strategy::zero1, fsdp::Strategy::zero2, fsdp::Strategy::zero3,
                          fsdp::Strategy::hybrid})
      run(argv[1], strategy, job.world());
    return 0;
  });
}
