#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {

namespace plain {
extern const Loops loops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Loops loops;
}
namespace avx512 {
extern const Loops loops;
}
#endif

const Loops* loops_of(Isa isa) {
  if (isa > best_isa()) return nullptr;
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx512:
      return &avx512::loops;
    case Isa::avx2:
      return &avx2::loops;
#endif
    case Isa::plain:
      return &plain::loops;
    default:
      return nullptr;
  }
}

const Loops& loops() {
  static const Loops& best = *loops_of(best_isa());
  return best;
}

}  // namespace shardgrad::cpu
