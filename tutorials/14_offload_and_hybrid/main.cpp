// Offload and hybrid: what is moved between a device and the host, and what a table of ranks holds and sends, on a
// device that every machine has.

#include <cstdio>

#include <shardgrad/fsdp/fully_shard.h>
#include <shardgrad/tutorials/by_hand.h>

#include YOURS  // solution.cpp, or your copy of exercise.cpp

using sg::Tensor;
using sg::dist::ProcessGroup;
using sg::fsdp::Strategy;
namespace Category = sg::Category;

constexpr int kRanks = 4;
constexpr int64_t kWidth = 256;
const sg::dist::VirtualOptions kDevice{.device = sg::kAcc, .threads = 1};  // host memory that works like a GPU's

constexpr Category::Kind kHost = Category::named<"pinned_host">;
constexpr Category::Kind kColumns[] = {Category::parameter_shard, Category::gathered_parameter, Category::full_gradient,
                                       Category::gradient_shard,  Category::optimizer_state,    kHost};

void print_row(const char* when, const sg::Ledger& ledger, bool peak = false) {
  std::printf("%-16s", when);
  for (Category::Kind c : kColumns) std::printf(" %11.1f", double(peak ? ledger.peak(c) : ledger.current(c)) / 1024);
  std::printf("\n");
}

// What rank 0 counted in the second step.
struct Counted {
  std::map<std::string, int64_t> sent, copied;  // bytes, by collective and by direction
  int64_t shards = 0, host = 0, whole_peak = 0;
  std::string state_on, picture;
  std::vector<float> weights;
};

void count_records(Counted& counted) {
  for (const sg::Record& record : sg::context().recorder().records()) {
    if (record.op == "upload" || record.op == "download")
      counted.copied[record.op] += record.elements * int64_t(size_of(record.dtype));
    else if (record.bytes_sent > 0)
      counted.sent[record.op] += record.bytes_sent;
  }
}

Counted two_steps(ProcessGroup& world, const sg::fsdp::Config& config) {
  sg::Ledger& ledger = sg::context().ledger();
  sg::Recorder& recorder = sg::context().recorder();
  Counted counted;
  by_hand::Batches batches(world, kWidth);
  auto model = by_hand::make_model(kWidth);
  auto sharded = sg::fsdp::fully_shard(model.module(), world, config);
  sg::optim::AdamW optimizer(model->named_parameters(), {.lr = 0.01});
  for (size_t step = 0; step < 2; ++step) {
    auto row = [&](const char* when, bool peak = false) {
      if (step == 1 && world.rank() == 0) print_row(when, ledger, peak);
    };
    ledger.reset_peaks(), recorder.clear(), recorder.set_tracing(step == 1);
    sg::LedgerHistory history(ledger, recorder);
    row("before");
    Tensor loss = sg::mse_loss(model(batches.x[step]), batches.target[step], batches.count);
    row("after forward");
    loss.backward();
    row("after backward");
    counted.host = ledger.current(kHost);
    optimizer.step();
    optimizer.zero_grad();
    row("after the step"), row("highest", true);
    sg::context().backend(sg::kAcc).compute().synchronize();  // which the host is ahead of
    sg::picture::Memory picture{{"memory", "Memory of one step", "Bytes of rank 0 by owner, in the order of changes."}};
    picture.by_order = true;
    picture.bytes = sg::picture::bytes_over_time(history.before(), history.changes(), true);
    counted.picture = draw(picture);
  }
  count_records(counted);
  recorder.set_tracing(false);
  counted.shards = ledger.current(Category::parameter_shard);
  counted.whole_peak = ledger.peak(Category::gathered_parameter);
  counted.state_on = sg::concat(optimizer.state_slices().front().values.device());
  for (const auto& [name, tensor] : sg::fsdp::full_state_dict(*sharded, false))
    for (float value : tensor.to_vector<float>()) counted.weights.push_back(value);
  return counted;
}

Counted second_step(const char* title, const sg::fsdp::Config& config) {
  Counted counted;
  std::printf("\n%s, %d ranks, KiB on rank 0\n%-16s %11s %11s %11s %11s %11s %11s\n", title, kRanks, "", "shards",
              "gathered", "full grads", "grad shards", "optimizer", "in the host");
  auto body = [&](ProcessGroup& world) {
    Counted mine = two_steps(world, config);
    if (world.rank() == 0) counted = mine;
  };
  sg::dist::run_ranks(kRanks, body, kDevice);
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce"})
    std::printf("%s %.1f KiB, ", op, double(counted.sent[op]) / 1024);
  std::printf("uploads %.1f KiB, downloads %.1f KiB; ", double(counted.copied["upload"]) / 1024,
              double(counted.copied["download"]) / 1024);
  std::printf("optimizer state on %s\n", counted.state_on.c_str());
  return counted;
}

// Your table on so many ranks: sums of the same bits as over all of them, and every part where it belongs.
void check_table(int ranks, int size, const learn::Rung& rung) {
  auto body = [&](ProcessGroup& world) {
    Table table(world, size);
    std::string where = sg::concat("rank ", world.rank(), " of ", ranks, " in rows of ", size);
    rung.require(table.copies() == ranks / size,
                 sg::concat(where, ": the table has ", table.copies(), " copies of the model"));
    int64_t n = 8 * size, first = table.part() * 8;
    Tensor gradient = sg::randn({n}, "gradient of rank " + std::to_string(world.rank())), sum = sg::clone(gradient);
    world.all_reduce(sum).host_wait();
    Tensor part = sg::zeros({8}), whole = sg::zeros({n});
    table.reduce(part, gradient);
    rung.require(part.to_vector<float>() == sum.rows(first, first + 8).to_vector<float>(),
                 where + ": its part is not the sum over all ranks");
    table.gather(whole, part);
    rung.require(whole.to_vector<float>() == sum.to_vector<float>(),
                 where + ": what was gathered is not the whole sum");
  };
  sg::dist::run_ranks(ranks, body, {.threads = 1});
}

int main(int count, char** words) {
  return learn::run(count, words, [](learn::Rung& rung) {
    for (auto [ranks, size] : {std::pair(4, 2), {4, 1}, {4, 4}, {6, 2}}) check_table(ranks, size, rung);
    for (int rank = 0; rank < kRanks; ++rank) std::printf("rank %d: row %d, column %d\n", rank, rank / 2, rank % 2);
    Counted plain = second_step("zero3", {});
    Counted host = second_step("zero3, offloaded", {.move_params_to_cpu = true});
    Counted rows = second_step("hybrid in rows of 2", {.strategy = Strategy::hybrid, .shard_ranks = 2});
    rung.require(plain.weights == host.weights && plain.weights == rows.weights,
                 "the three have learned different weights");
    std::printf("\nall three learn the same bits\n");
    rung.count("host_bytes", double(host.host)), rung.count("whole_peak_bytes", double(host.whole_peak));
    rung.count("uploaded_bytes", double(host.copied["upload"])),
        rung.count("downloaded_bytes", double(host.copied["download"]));
    rung.count("part_bytes", double(rows.shards));
    rung.count("within_bytes", double(rows.sent["all_gather"] + rows.sent["reduce_scatter"]));
    rung.count("between_bytes", double(rows.sent["all_reduce"]));
    rung.picture(host.picture);
    rung.term("W", kRanks), rung.term("S", 2), rung.term("R", 2), rung.term("L", by_hand::kLayers);
    rung.term("D", double(kWidth)), rung.term("F", sizeof(float)), rung.term("M", 2);
  });
}
