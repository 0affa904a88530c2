#include <shardgrad/core/context.h>

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include <shardgrad/core/error.h>
#include <shardgrad/core/float_mode.h>
#include <shardgrad/core/happens_before.h>

namespace shardgrad {

using detail::ContextLink;
static constinit thread_local ContextLink* top = nullptr;

// A thread computes while it has a context.
static void compute_while_current() {
  static thread_local std::optional<FlushSubnormals> flush;
  if (!Context::current())
    flush.reset();
  else if (!flush)
    flush.emplace();
}

static void put_on_top(ContextLink& link) {
  link.below = top;
  top = &link;
  compute_while_current();
}

static void take_out(const ContextLink& link) {
  ContextLink** at = &top;
  while (*at && *at != &link) at = &(*at)->below;
  if (*at) *at = link.below;
  compute_while_current();
}

// How many CPUs' time a container is given: "200000 100000" is two, "max 100000" all there are.
static double quota_of_container() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double time = 0, period = 0;
  return file >> time >> period && period > 0 ? time / period : CPU_SETSIZE;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int allowed = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, std::min(allowed, int(std::ceil(quota_of_container()))));
}

int wanted_threads(int threads, const char* omp_num_threads, int share) {
  int told = omp_num_threads ? std::atoi(omp_num_threads) : 0;
  return threads > 0 ? threads : told > 0 ? told : std::max(1, share);
}

Context::Context() : Context(Options()) {}

Context::Context(Options options) : options_(options) {
  SG_CHECK(options_.world_size >= 1 && options_.rank >= 0 && options_.rank < options_.world_size, "context: rank ",
           options_.rank, " of ", options_.world_size, " is not possible");
  options_.threads = wanted_threads(options_.threads, std::getenv("OMP_NUM_THREADS"), usable_cores());
  if (options_.check_streams || is_emulated(options_.device.kind)) checker_ = std::make_unique<HappensBefore>();
  ledger_->home()->open(*this);
  put_on_top(link_);
}

void Context::set_threads(int threads) {
  SG_CHECK(threads >= 1, "set_threads: ", threads, " threads are not possible");
  options_.threads = threads;
}

Context::~Context() {
  {
    ContextScope scope(*this);
    at_end_.run();
    while (!slots_.empty()) slots_.pop_back();
  }
  Home& home = *ledger_->home();
  home.close();
  // The host's last: what streams of the others still run takes memory of it.
  further_backends_.clear();
  for (int kind = kDeviceKindCount; kind-- > 0;) backends_[kind].reset();
  home.set_gone();
  take_out(link_);
}

Context* Context::current() { return top ? top->home->context() : nullptr; }

Context& context() {
  Context* current = Context::current();
  SG_CHECK(current,
           "this thread has no context; make one with sg::Context, or pass your context to the thread "
           "with sg::ContextScope");
  return *current;
}

Backend& Context::make(Device device) {
  SG_CHECK(device.index == 0 || device.kind == DeviceKind::cuda || is_emulated(device.kind), "device ", device,
           ": there is one ", name_of(device.kind));
  std::lock_guard lock(backend_mutex_);
  auto& backend = device.index ? further_backends_[{device.kind, device.index}] : backends_[size_t(device.kind)];
  if (!backend) {
    if (is_emulated(device.kind) && !checker_) checker_ = std::make_unique<HappensBefore>();
    backend = make_backend(device, *this);
    if (device.index == 0) backend_cache_[size_t(device.kind)].store(backend.get(), std::memory_order_release);
  }
  return *backend;
}

Context::AnySlot& Context::slot(std::type_index type, std::unique_ptr<AnySlot> (*make)()) {
  std::lock_guard lock(slot_mutex_);
  for (auto& [of, slot] : slots_)
    if (of == type) return *slot;
  return *slots_.emplace_back(type, make()).second;
}

void Context::abort(std::exception_ptr error) {
  std::lock_guard lock(abort_mutex_);
  if (abort_error_) return;
  abort_error_ = std::move(error);
  aborted_.store(true, std::memory_order_release);
}

void Context::check_abort() const {
  if (!aborted()) return;
  std::lock_guard lock(abort_mutex_);
  std::rethrow_exception(abort_error_);
}

ContextScope::ContextScope(Context& context) : link_{context.ledger().home()} { put_on_top(link_); }
ContextScope::~ContextScope() { take_out(link_); }

}  // namespace shardgrad
