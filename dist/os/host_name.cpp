#include <shardgrad/dist/os/host_name.h>

#include <unistd.h>

namespace shardgrad::dist {

std::string host_name() {
  char name[256] = "";
  bool known = gethostname(name, sizeof name - 1) == 0 && name[0] != 0;
  return known ? name : "localhost";
}

}  // namespace shardgrad::dist
