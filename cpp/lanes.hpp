// Vectors of lanes for the inner loops of simd_kernels.cpp.
//
// Written with the compilers' vector extension: sixteen float lanes everywhere, which each
// instruction set cuts into its own registers. Lanes are summed in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace silva {
namespace {

typedef float F16 __attribute__((vector_size(64)));
typedef std::int32_t I16 __attribute__((vector_size(64)));
typedef float F8 __attribute__((vector_size(32)));
typedef double D8 __attribute__((vector_size(64)));
typedef std::uint8_t U16 __attribute__((vector_size(16)));

constexpr std::size_t kBlock = 4096;  // float sums are folded into doubles this often

template <class V, class T>
inline V load(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
inline void store(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}
inline F16 splat(float a) { return F16{} + a; }

inline float sum(F8 v) {
  typedef float F4 __attribute__((vector_size(16)));
  const F4 q =
      __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const F4 p = q + __builtin_shufflevector(q, q, 2, 3, 0, 1);
  return p[0] + p[1];
}
inline F8 fold(F16 v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline float sum(F16 v) { return sum(fold(v)); }
inline double sum(D8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
// Sixteen bytes as floats; compilers spell the generic conversion lane by lane.
inline F16 widen(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return (F16)_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  F16 v;
  for (int half = 0; half < 2; ++half) {
    const __m256 part = _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * half))));
    __builtin_memcpy(reinterpret_cast<char*>(&v) + 32 * half, &part, 32);
  }
  return v;
#else
  return __builtin_convertvector(load<U16>(p), F16);
#endif
}

template <class V>
inline V row_lanes(const float* p) {
  return load<V>(p);
}
template <class V>
inline V row_lanes(const std::uint8_t* p) {
  return widen(p);
}

// Sixteen vectors of sixteen as a matrix, transposed by four perfect shuffles.
template <class V>
inline void transpose(V* v) {
  V u[16];
  for (int round = 0; round < 4; ++round) {
    for (int k = 0; k < 8; ++k) {
      u[2 * k] = __builtin_shufflevector(v[k], v[k + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                         6, 22, 7, 23);
      u[2 * k + 1] = __builtin_shufflevector(v[k], v[k + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
    for (int k = 0; k < 16; ++k) v[k] = u[k];
  }
}

inline F16 choose(I16 mask, F16 yes, F16 no) { return mask ? yes : no; }

// e^x for x <= 0, to a few units in the last place (Cephes' polynomial).
inline F16 exp_nonpositive(F16 x) {
  x = choose(x < -87.0f, splat(-87.0f), x);
  const F16 shifted = x * 1.44269504088896341f - 0.5f;
  const I16 k = __builtin_convertvector(shifted, I16);  // truncates: rounds x / ln 2, as x <= 0
  const F16 n = __builtin_convertvector(k, F16);
  const F16 r = x - n * 0.693359375f + n * 2.12194440e-4f;
  F16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const I16 bits = (k + 127) << 23;
  F16 power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return p * power;
}
// log(1 + u) for u in [0, 1]: 2 atanh(u / (2 + u)).
inline F16 log1p_unit(F16 u) {
  const F16 s = u / (u + 2.0f), z = s * s;
  F16 p = splat(2.0f / 13);
  p = p * z + 2.0f / 11;
  p = p * z + 2.0f / 9;
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  p = p * z + 2.0f;
  return p * s;
}

}  // namespace
}  // namespace silva
