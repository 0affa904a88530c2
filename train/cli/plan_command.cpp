#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <set>

#include <shardgrad/certify/certify_speed.h>
#include <shardgrad/core/columns.h>
#include <shardgrad/core/context.h>
#include <shardgrad/train/build.h>
#include <shardgrad/train/cli/plan_time.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/cli/speed_text.h>
#include <shardgrad/train/network.h>
#include <shardgrad/train/plan.h>
#include <shardgrad/train/registry.h>
#include <shardgrad/train/short_batches.h>
#include <shardgrad/train/text.h>

namespace shardgrad::cli {

namespace {

std::string fixed(double value, int digits) { return train::format_fixed(value, digits); }

double gibibytes(int64_t bytes) { return double(bytes) / (1 << 30); }

// What a rank does in a second, and in words where that of computing is from.
struct Speeds {
  train::Rates rates;
  std::string computing;
};

// The speed of a product here, of the numbers that the run would multiply, where nobody has said a speed.
Speeds speeds_of(const train::Config& config, const PlanOptions& options) {
  Speeds speeds{
      {.flops = options.tflops * 1e12, .bandwidth = options.bandwidth * 1e9, .latency = options.latency / 1e6},
      "as --tflops says"};
  if (options.tflops > 0) return speeds;
  Device device = choose_device(config.device, false);
  bool here = device == kCpu || (device.kind == DeviceKind::cuda && cuda_device_count() > 0);
  if (!here) return {speeds.rates, concat("not counted: there is no ", device, " here to time it; say --tflops")};
  const auto& params = config.fsdp.options.param_dtype;
  DType dtype = train::forward_dtype(config).value_or(params.value_or(DType::f32));
  speeds.rates.flops = product_rate(dtype, device);
  speeds.computing =
      concat("as fast as a product of ", dtype, " on this machine's ", device, "; --tflops says another");
  return speeds;
}

std::string describe(const Speeds& speeds) {
  std::string text = "computing: ";
  if (speeds.rates.flops > 0) text += concat("at ", amount(speeds.rates.flops, "FLOP/s"), ", ");
  text += concat(speeds.computing, "\nsending: ");
  if (speeds.rates.bandwidth > 0) return text + concat("at ", amount(speeds.rates.bandwidth, "B/s"), "\n");
  return text + (speeds.rates.latency > 0 ? "latency alone; say --bandwidth, too\n" : "not counted; say --bandwidth\n");
}

// In which memory and bytes sent are written, for small models have none of the larger.
struct Units {
  double memory = 1 << 30, sent = 1e9;
  const char *memory_name = "GiB", *sent_name = "GB";
};
Units units_for(const std::vector<train::Offer>& offers) {
  int64_t most = 0;
  for (const train::Offer& offer : offers) most = std::max(most, offer.plan.peak);
  return most < (1 << 30) ? Units{1 << 20, 1e6, "MiB", "MB"} : Units{};
}

// A peak, bytes sent, and the least seconds of a step.
std::string cell_of(const train::Offer& offer, const Units& units, const train::Rates& rates, double memory) {
  if (!offer.why_not.empty()) return "-";
  double step = train::least_time(offer.plan, rates).step();
  bool fits = memory > 0 && gibibytes(offer.plan.peak) <= memory;
  return concat(fixed(double(offer.plan.peak) / units.memory, 3), " / ",
                fixed(double(offer.plan.bytes_sent) / units.sent, 3), " / ", step > 0 ? fixed(step, 4) : "?",
                fits ? " *" : "");
}

// A run has its data and the workspaces of kernels beside what a plan counts.
std::string memory_of(const PlanOptions& options) { return concat(options.memory, " GiB without data and workspace"); }

std::string fits(const std::vector<train::Offer>& offers, const PlanOptions& options) {
  std::string text;
  for (const train::Offer& offer : offers) {
    if (offer.ranks != options.ranks || !offer.why_not.empty()) continue;
    double peak = gibibytes(offer.plan.peak);
    text += concat(text.empty() ? "" : ", ", offer.strategy, peak <= options.memory ? " yes (" : " no (",
                   std::setprecision(3), peak, ")");
  }
  return concat("fits in ", memory_of(options), ": ", text, " at ", options.ranks,
                options.ranks == 1 ? " rank\n" : " ranks\n");
}

int ranks_of(const train::Config& config, const PlanOptions& options) {
  auto said = int(config.ranks.count);
  SG_CHECK(said == 0 || options.ranks == 0 || said == options.ranks || options.compare || options.time,
           config.ranks.said, ", and the plan is to be of ", options.ranks, options.ranks == 1 ? " rank" : " ranks",
           "; leave --ranks out, or say --ranks ", said);
  return options.ranks > 0 ? options.ranks : std::max(said, 1);
}

// False where no strategy can be had on any number of ranks.
bool print_side_by_side(const train::Config& config, const data::Outline& data, const PlanOptions& options,
                        const Speeds& speeds) {
  std::vector<int> counts = counts_with(options.ranks);
  std::vector<train::Offer> all = train::offers(config, data, counts, {choose_device(config.device, false)});
  Units units = units_for(all);
  std::vector<std::vector<std::string>> rows{{"ranks"}};
  std::set<std::string> reasons;
  for (const train::Offer& offer : all) {
    if (offer.ranks == counts[0]) rows[0].push_back(offer.strategy);
    std::string name = std::to_string(offer.ranks);
    if (rows.back()[0] != name) rows.push_back({name});
    rows.back().push_back(cell_of(offer, units, speeds.rates, options.memory));
    if (!offer.why_not.empty()) reasons.insert(offer.why_not);
  }
  std::cout << "predicted, batch " << config.batch << ": " << units.memory_name << " at most in a rank's memory / "
            << units.sent_name << " that it sends in a step / s that a step takes at least"
            << (options.memory > 0 ? ", * where it fits" : "") << "\n"
            << in_columns(rows);
  for (const std::string& reason : reasons) std::cout << "- " << reason << "\n";
  if (options.memory > 0) std::cout << fits(all, options);
  std::cout << std::flush;
  return std::ranges::any_of(all, [](const train::Offer& offer) { return offer.why_not.empty(); });
}

void print_time(const fsdp::Plan& plan, const Speeds& speeds) {
  train::LeastTime time = train::least_time(plan, speeds.rates);
  std::cout << "computes " << amount(plan.flops, "FLOP") << " in products and attention\n" << describe(speeds);
  if (time.computing > 0) std::cout << "computing takes at least " << fixed(time.computing, 4) << " s\n";
  if (time.sending > 0) std::cout << "sending takes at least " << fixed(time.sending, 4) << " s\n";
  if (time.step() > 0) std::cout << "a step takes at least " << fixed(time.step(), 4) << " s\n";
}

dist::PretendedRanks ranks_as(const PlanOptions& options, Device device) {
  dist::PretendedRanks as{device, options.group, {}};
  if (options.machines == 1 && options.group != "mpi") {
    bool alone = options.ranks == 1 && options.group.empty();
    return {device, alone ? "single" : "shared_memory", {}};
  }
  if (options.machines > 0 && options.group.empty()) as.group = "two_level";
  bool several = as.group == "two_level";
  SG_CHECK(several == (options.machines > 0),
           several ? "--group two_level needs" : "--machines is for --group two_level,",
           several ? " --machines, the number of machines that the ranks are dealt to"
                   : " whose ranks send differently within a machine");
  SG_CHECK(options.machines <= options.ranks, options.machines, " machines are more than ", options.ranks, " ranks");
  for (int rank = 0; several && rank < options.ranks; ++rank)
    as.machines.push_back(int(int64_t(rank) * options.machines / options.ranks));
  SG_CHECK(!options.measure || options.group != "mpi", "--measure runs ranks as threads, which MPI does not connect; ",
           "leave --group mpi out of it");
  return as;
}

// The plan of one number of ranks.
fsdp::Plan print_plan(const train::Config& config, const data::Outline& data, const PlanOptions& options,
                      const Speeds& speeds, const dist::PretendedRanks& as) {
  train::check_short_batches(config, data, options.ranks, as);
  fsdp::Plan predicted = train::plan(config, data, options.ranks, kMeta, as);
  std::cout << "predicted for " << options.ranks << (options.ranks == 1 ? " rank" : " ranks") << ", strategy "
            << config.strategy << ", batch " << config.batch << ", one step:\n"
            << predicted.table();
  if (options.memory > 0)
    std::cout << (gibibytes(predicted.peak) <= options.memory ? "fits" : "does not fit") << " in " << memory_of(options)
              << "\n";
  print_time(predicted, speeds);
  return predicted;
}

// How many ranks, and which strategy, is what is asked.
int print_any_ranks(const train::Config& config, const data::Outline& data, const PlanOptions& options,
                    const Speeds& speeds, const dist::PretendedRanks& as) {
  try {
    print_plan(config, data, options, speeds, as);
    std::cout << "\n";
    print_side_by_side(config, data, options, speeds);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input || !print_side_by_side(config, data, options, speeds)) throw;
  }
  return 0;
}

PlanOptions with_network(PlanOptions options) {
  if (options.network.empty()) return options;
  train::Network network = train::read_network(options.network);
  options.bandwidth = network.bandwidth;
  options.latency = network.latency;
  options.from = concat("as '", options.network, "' says", network.from.empty() ? "" : ": ", network.from);
  return options;
}

int plan_command(PlanOptions options) {
  train::Config config = train::read_config(options.config, options.overrides, *options.registry);
  bool any_ranks = options.ranks == 0 && config.ranks.count == 0;
  options.ranks = ranks_of(config, options);
  Context context;  // what is read of the data lives in it
  data::Outline data = config.registry->outline_of(config.data, uint64_t(config.seed));
  Speeds speeds = options.time ? Speeds{} : speeds_of(config, options);
  if (options.compare) {
    print_side_by_side(config, data, options, speeds);
    std::cout << describe(speeds) << std::flush;
    return 0;
  }
  if (options.time) return time_steps(config, data, options);
  Device device = choose_device(config.device, options.measure);
  dist::PretendedRanks as = ranks_as(options, device);
  if (!options.measure && any_ranks && as.group.empty()) return print_any_ranks(config, data, options, speeds, as);
  fsdp::Plan predicted = print_plan(config, data, options, speeds, as);
  if (!options.measure) return 0;
  fsdp::Plan measured = train::plan(config, data, options.ranks, device, as);
  std::cout << "\nmeasured with ranks as threads of this process:\n" << measured.table();
  std::cout << (measured == predicted ? "as predicted" : "NOT as predicted; please report this") << std::endl;
  return measured == predicted ? 0 : int(ErrorKind::internal);
}

CLI::Option* add_time(CLI::App& command, PlanOptions& options) {
  CLI::Option* time =
      command.add_flag("--time", options.time, "every strategy on 1 to 4096 ranks, how long a step takes");
  command
      .add_option("--per-machine", options.per_machine,
                  "for --time: ranks of a machine, which are timed side by side; unset: 1")
      ->check(CLI::Range(1, 1024))
      ->needs(time);
  command
      .add_option("--threads", options.threads, "for --time: threads that a rank computes with; unset: this machine's")
      ->check(CLI::Range(1, 1024))
      ->needs(time);
  return time;
}

}  // namespace

void add_plan(CLI::App& app, PlanOptions& options, std::function<int()>& chosen) {
  CLI::App* command = app.add_subcommand("plan", "Memory, traffic and least time of a training step, before training");
  auto number = [command](const char* name, double& value, const char* meaning) {
    return command->add_option(name, value, meaning)->check([](const std::string& given) {
      return std::strtod(given.c_str(), nullptr) > 0 ? "" : "'" + given + "' is no number above 0";
    });
  };
  command->add_option("config", options.config, "the configuration, a JSON file")->required();
  command->add_option("--ranks", options.ranks, "number of ranks; unset: what gpus or devices says, or 1")
      ->check(CLI::Range(1, 4096));
  command->add_option("--set", options.overrides, "change one key, e.g. --set strategy=zero2")->allow_extra_args(false);
  CLI::Option* measure =
      command->add_flag("--measure", options.measure, "also run the step here, ranks as threads, and compare");
  CLI::Option* group =
      command
          ->add_option(
              "--group", options.group,
              "what connects the ranks, as SHARDGRAD_GROUP does; unset: what needs no memory to send. Those of "
              "shared_memory gather on the CPU without copying")
          ->check(CLI::IsMember({"shared_memory", "two_level", "mpi"}));
  CLI::Option* machines =
      command->add_option("--machines", options.machines, "machines that the ranks are dealt to in order")
          ->check(CLI::Range(1, 4096));
  CLI::Option* compare =
      command->add_flag("--compare", options.compare, "every strategy on 1 to 4096 ranks, side by side");
  CLI::Option* memory = number("--memory", options.memory, "GiB that a rank has: say what fits");
  CLI::Option* tflops =
      number("--tflops", options.tflops, "TFLOP that a rank computes in a second; unset: a product is timed here");
  CLI::Option* time = add_time(*command, options);
  for (CLI::Option* table : {compare, time})
    for (CLI::Option* other : {group, machines, measure}) table->excludes(other);
  for (CLI::Option* other : {compare, memory, tflops}) time->excludes(other);
  CLI::Option* network =
      command->add_option("--network", options.network, "a file that says both, see doctor --measure");
  number("--bandwidth", options.bandwidth, "GB that a rank sends in a second; unset: sending takes no time")
      ->excludes(network);
  number("--latency", options.latency, "microseconds that a collective takes, however little it sends")
      ->excludes(network);
  command->callback([&] { chosen = [&] { return plan_command(with_network(options)); }; });
}

}  // namespace shardgrad::cli
