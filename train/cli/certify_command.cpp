#include <iostream>

#include <shardgrad/certify/certify.h>
#include <shardgrad/certify/certify_speed.h>
#include <shardgrad/core/context.h>
#include <shardgrad/kernels/alternatives.h>
#include <shardgrad/train/cli/program.h>
#include <shardgrad/train/cli/speed_text.h>

namespace shardgrad::cli {

int certify_command(const CertifyOptions& options) {
  Context context;
  for (const std::string& library : options.libraries) load_kernels(library);
  Device device = parse_device(options.device);
  context.backend(device);  // its kernels are in the table from here on, or it is told why not
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
            << std::endl;
  return failed ? int(ErrorKind::internal) : 0;
}

}  // namespace shardgrad::cli
