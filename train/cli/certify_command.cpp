#include <iostream>

#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/certify_speed.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/cli/speed_text.h>

namespace shardgrad::cli {
namespace {

std::string why_left_out(const std::string& op, Device device) {
  try {
    context().backend(device);
  } catch (const Error&) {
    return "which is not here";
  }
  std::string missing = missing_kernels(op, device.kind);
  return missing.empty() ? concat("which --device ", device, " tries") : concat("which has no kernel ", missing);
}

// One run is about one device. Who wrote kernels for several is told that the others' were not tried.
std::string left_out(const std::string& op, Device tried) {
  std::string text;
  for (Device device : {kCpu, kSim, kCuda})
    if (device.kind != tried.kind)
      text += concat(text.empty() ? "" : ", ", device, " (", why_left_out(op, device), ")");
  return text;
}

}  // namespace

int certify_command(const CertifyOptions& options) {
  Context context;
  for (const std::string& library : options.libraries) load_kernels(library);
  Device device = parse_device(options.device);
  context.backend(device);  // its kernels are in the table from here on, or it is told why not
  std::string others = left_out(options.op, device);  // of what stands in the table before anything is replaced
  TableCopy built_in;
  std::function<void()> replace;
  if (!options.use.empty()) replace = [&] { use_all_kernels(options.use); };
  Certificate certificate = certify(options.op, device, replace);
  std::cout << options.op << " on " << device << ": " << certificate.cases << " cases\n";
  int failed = 0;
  for (const Certificate::Property& property : certificate.properties) {
    failed += !property.failure.empty();
    std::cout << "  " << property.name << std::string(16 - property.name.size(), ' ')
              << (property.failure.empty() ? "holds" : "FAILS: " + property.failure)
              << (property.note.empty() ? "" : concat(" (", property.note, ")")) << '\n';
  }
  std::cout << std::flush;
  SpeedReport speed{"only what keeps its promises is", "", {}};
  if (!failed) speed = measure_speeds(options.op, device, replace ? &built_in : nullptr);
  failed += !speed.wrong.empty();
  std::cout << speed_text(speed)
            << (failed
                    ? concat("not certified: ", failed, " of ", certificate.properties.size() + 1, " properties fail")
                    : std::string("certified"))
            << "\nleft out: " << others << std::endl;
  return failed ? int(ErrorKind::internal) : 0;
}

}  // namespace shardgrad::cli
