#include <shardgrad/kernels/cpu/loops.h>

namespace shardgrad::cpu {

namespace plain {
extern const Loops loops;
}
namespace avx2 {
extern const Loops loops;
}
namespace avx512 {
extern const Loops loops;
}

const Loops* loops_of(Isa isa) {
  if (isa > best_isa()) return nullptr;
  switch (isa) {
#ifdef SHARDGRAD_ISA_avx512  // which ones this build has says cmake/library.cmake
    case Isa::avx512:
      return &avx512::loops;
#endif
#ifdef SHARDGRAD_ISA_avx2
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
  static const Loops* best = [] {
    for (Isa isa : {Isa::avx512, Isa::avx2})
      if (const Loops* found = loops_of(isa)) return found;
    return loops_of(Isa::plain);
  }();
  return *best;
}

}  // namespace shardgrad::cpu
