#pragma once
// CUDA's atomics, which give back the old value, and its loads and stores with a hint to the caches. One thread runs at
// a time, so reading and writing are one step.

#include <algorithm>
#include <type_traits>

#include <shardgrad/kernels/sim/warp.h>

#define SG_HERE shardgrad::sim::SourceLine here = shardgrad::sim::SourceLine::current()
#define SG_ATOMIC(name, result)                                                                                      \
  template <class T> T name(T* at, std::type_identity_t<T> value, SG_HERE) {                                         \
    return shardgrad::sim::atomic(                                                                                   \
        at, [=]([[maybe_unused]] T old) { return T(result); }, here);                                                \
  }                                                                                                                  \
  template <class T> T name##_block(T* at, std::type_identity_t<T> value, SG_HERE) { return name(at, value, here); } \
  template <class T> T name##_system(T* at, std::type_identity_t<T> value, SG_HERE) { return name(at, value, here); }
SG_ATOMIC(atomicAdd, old + value)
SG_ATOMIC(atomicSub, old - value)
SG_ATOMIC(atomicMax, old < value ? value : old)
SG_ATOMIC(atomicMin, value < old ? value : old)
SG_ATOMIC(atomicAnd, old& value)
SG_ATOMIC(atomicOr, old | value)
SG_ATOMIC(atomicXor, old ^ value)
SG_ATOMIC(atomicExch, value)
/// Counts up to `value`, and down from it.
SG_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
SG_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef SG_ATOMIC

template <class T> T atomicCAS(T* at, std::type_identity_t<T> compare, std::type_identity_t<T> value, SG_HERE) {
  return shardgrad::sim::atomic(
      at, [=](T old) { return old == compare ? value : old; }, here);
}

#define SG_LOAD(name) \
  template <class T> T name(const T* from, SG_HERE) { return shardgrad::sim::load_hinted(from, here); }
#define SG_STORE(name)                                                          \
  template <class T> void name(T* to, std::type_identity_t<T> value, SG_HERE) { \
    shardgrad::sim::store_hinted(to, value, here);                              \
  }
SG_LOAD(__ldg)
SG_LOAD(__ldca)
SG_LOAD(__ldcg)
SG_LOAD(__ldcs)
SG_LOAD(__ldlu)
SG_LOAD(__ldcv)
SG_STORE(__stwb)
SG_STORE(__stcg)
SG_STORE(__stcs)
SG_STORE(__stwt)
#undef SG_LOAD
#undef SG_STORE
#undef SG_HERE
