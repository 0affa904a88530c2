#include <shardgrad/train/program.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <shardgrad/train/cli/program.h>

namespace shardgrad::train {
namespace {

// GNU OpenMP's idle threads spin for long by default: beside other work on the same cores a step then takes ten times
// as long. The library reads its environment when it is loaded, so the program starts itself once more.
void spin_less(char** argv) {
  if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv("/proc/self/exe", argv);
}

// Where standard input, output or error is closed, the next file that is opened would have its number, and get what is
// meant for it. Writing to what takes its place fails as before.
void keep_standard_numbers() {
  for (int number = 0; number <= 2; ++number)
    if (fcntl(number, F_GETFD) < 0) open("/dev/null", O_RDONLY);
}

}  // namespace

int program(int argc, char** argv, const Registry& registry) {
  keep_standard_numbers();
  spin_less(argv);
  return cli::run(argc, argv, registry);
}

}  // namespace shardgrad::train
