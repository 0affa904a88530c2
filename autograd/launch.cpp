#include <shardgrad/autograd/launch.h>

namespace shardgrad {

constinit thread_local detail::LaunchWatchers detail::launch_watchers;

}  // namespace shardgrad
