#include <shardgrad/autograd/launch.h>

namespace shardgrad {

constinit thread_local LaunchTrial* LaunchTrial::current_ = nullptr;

}  // namespace shardgrad
