#pragma once
// CUDA's vector types, with its alignments: a type of 2 or 4 numbers moves in one instruction, or 16 bytes of it in
// each.

#include <shardgrad/kernels/sim/launch.h>

#define SG_VECTORS(name, T)                                                  \
  struct name##1 {                                                           \
    T x;                                                                     \
  };                                                                         \
  struct alignas(2 * sizeof(T)) name##2 {                                    \
    T x, y;                                                                  \
  };                                                                         \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {          \
    T x, y, z, w;                                                            \
  };                                                                         \
  inline name##1 make_##name##1(T x) { return {x}; }                         \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                 \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; } \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }

struct char3 {
  signed char x, y, z;
};
struct uchar3 {
  unsigned char x, y, z;
};
struct short3 {
  short x, y, z;
};
struct ushort3 {
  unsigned short x, y, z;
};
struct int3 {
  int x, y, z;
};
struct long3 {
  long x, y, z;
};
struct ulong3 {
  unsigned long x, y, z;
};
struct longlong3 {
  long long x, y, z;
};
struct ulonglong3 {
  unsigned long long x, y, z;
};
struct float3 {
  float x, y, z;
};
struct double3 {
  double x, y, z;
};

SG_VECTORS(char, signed char)
SG_VECTORS(uchar, unsigned char)
SG_VECTORS(short, short)
SG_VECTORS(ushort, unsigned short)
SG_VECTORS(int, int)
SG_VECTORS(uint, unsigned)
SG_VECTORS(long, long)
SG_VECTORS(ulong, unsigned long)
SG_VECTORS(longlong, long long)
SG_VECTORS(ulonglong, unsigned long long)
SG_VECTORS(float, float)
SG_VECTORS(double, double)
#undef SG_VECTORS
