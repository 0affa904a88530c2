// The work whose cost is guarded. Each piece runs once as it is and once with too much on purpose: one more allocation
// and 500 more instructions per operation, which check.py must notice. For each it prints a line
//
//     NAME plain|spoilt OPERATIONS HEAP_ALLOCATIONS HEAP_BYTES TENSOR_ALLOCATIONS TENSOR_BYTES
//
// and valgrind writes the instructions of `measured`. Nothing here depends on time or on the machine's load.

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>

#include <shardgrad/autograd/ops.h>
#include <shardgrad/core/context.h>
#include <shardgrad/dist/group/process_group.h>
#include <shardgrad/dist/transports/transports.h>
#include <shardgrad/dist/watch/control.h>
#include <shardgrad/nn/nn.h>
#include <shardgrad/optim/clip.h>
#include <shardgrad/optim/sgd.h>

using namespace shardgrad;

// --- every allocation of this process, the library's included ------------------------------------------------------
static long heap_allocations = 0, heap_bytes = 0;

static void* counted(size_t bytes, size_t alignment) {
  ++heap_allocations;
  heap_bytes += long(bytes);
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, size_t(alignment)); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

// --- what is measured ----------------------------------------------------------------------------------------------
struct Work {
  std::string name;
  int operations;
  std::function<void()> prepare, run;
};

static void waste() {
  ::operator delete(::operator new(16));
  for (volatile int left = 70; left > 0;) {
    int now = left;
    left = now - 1;
  }
}

// check.py tells valgrind to count from the entry of this function to its end.
extern "C" [[gnu::noipa]] void measured(const Work& work, bool spoilt) {
  work.run();
  for (int i = 0; spoilt && i < work.operations; ++i) waste();
}

static void report(const Work& work) {
  work.prepare(), work.run();  // fills the allocator's and the kernels' caches
  work.prepare();
  long tensors = 0, tensor_bytes = 0;
  context().ledger().on_change([&](Tag, int64_t bytes) {
    if (bytes > 0) ++tensors, tensor_bytes += bytes;
  });
  work.run();
  context().ledger().on_change(nullptr);
  for (bool spoilt : {false, true}) {
    work.prepare();
    long allocations = heap_allocations, bytes = heap_bytes;
    measured(work, spoilt);
    std::printf("%s %s %d %ld %ld %ld %ld\n", work.name.c_str(), spoilt ? "spoilt" : "plain", work.operations,
                heap_allocations - allocations, heap_bytes - bytes, tensors, tensor_bytes);
  }
}

static void adds() {
  constexpr int kLength = 1000;
  Tensor a = ones({1}), x = ones({1}).set_requires_grad(), y;
  auto chain = [&] {
    y = x;
    for (int i = 0; i < kLength; ++i) y = add(y, a);
  };
  auto forget = [&] { y = Tensor(), x.zero_grad(); };
  auto without_grad = [&] {
    NoGrad no_grad;
    chain();
  };
  report({"add", kLength, forget, without_grad});
  report({"recorded_add", kLength, forget, chain});
  auto record = [&] { forget(), chain(); };
  report({"backward_of_add", kLength, record, [&] { y.backward(); }});
}

// So small that what the arithmetic needs does not hide what surrounds it.
static void training_step() {
  auto model = nn::make<nn::Sequential>();
  for (int i = 0; i < 3; ++i) model->add<nn::Linear>(4, 4, true, i < 2 ? Activation::relu : Activation::none);
  model->materialize();
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  Tensor x = ones({2, 4}), target = zeros({2, 4});
  constexpr int kOperations = 22;  // kernels launched: 4 forward, 12 backward, 6 updates
  report({"training_step", kOperations, [] {},
          [&] {
            mse_loss(model(x), target).backward();
            optimizer.step();
            optimizer.zero_grad();
          }});
}

// Per half a gradient, of many that are so small that joining them is what it costs: of a whole one 500 instructions
// more are within what check.py allows.
static void gradient_norm() {
  constexpr int kLayers = 12, kGradients = 2 * kLayers;
  auto model = nn::make<nn::Sequential>();
  for (int i = 0; i < kLayers; ++i) model->add<nn::Linear>(4, 4);
  sum(model(ones({2, 4}))).backward();
  auto parameters = model->named_parameters();
  report({"gradient_norm", 2 * kGradients, [] {}, [&] { optim::grad_norm(parameters); }});
}

// Without bytes, so that what surrounds a collective is all that there is.
static void collectives() {
  auto control = std::make_shared<dist::Control>(dist::make_private_page(2), 0);
  dist::ProcessGroup group(dist::make_pretended_transport(2, control, {}), control, std::vector{0, 1}, 1,
                           dist::GroupOptions());
  Tensor full = zeros({4}, kMeta), shard = zeros({2}, kMeta);
  constexpr int kCalls = 100;
  auto times = [](auto call) {
    return [call] {
      for (int i = 0; i < kCalls; ++i) call().host_wait();
    };
  };
  report({"all_gather", kCalls, [] {}, times([&] { return group.all_gather(full, shard, {{"unit", "forward"}}); })});
  report({"reduce_scatter", kCalls, [] {}, times([&] {
            return group.reduce_scatter(shard, full, {{"unit", "backward"}});
          })});
  report({"all_reduce", kCalls, [] {}, times([&] { return group.all_reduce(full, {{"unit", "backward"}}); })});
}

// Kernels whose loops were worth something: per row, which the call itself is small beside.
static void loops() {
  NoGrad no_grad;
  constexpr int kRows = 64;
  Tensor wide = randn({kRows, 256}, "wide"), cube = randn({kRows, 16, 64}, "cube"), y;
  Tensor rows = randn({8, kRows}, "rows"), weight = randn({kRows, kRows}, "weight");
  Tensor integers = full({kRows, 256}, 3, DType::i32), square = empty({kRows, kRows});
  auto forget = [&] { y = Tensor(); };
  report({"row_of_softmax", kRows, forget, [&] { y = softmax(wide); }});
  report({"sum_of_a_middle_dimension", kRows, forget, [&] { y = sum(cube, 1); }});
  report({"row_of_an_integer_sum", kRows, forget, [&] { y = sum(integers); }});
  report({"row_of_a_small_weight", kRows, forget, [&] { y = linear(rows, weight, Tensor()); }});
  report({"number_of_orthogonal", kRows * kRows, [] {},
          [&] {
            nn::init::orthogonal().fill(square, 0, {kRows, kRows}, "w");
          }});
}

int main() {
  Context context({.threads = 1});
  adds();
  training_step();
  gradient_norm();
  loops();
  collectives();
}
