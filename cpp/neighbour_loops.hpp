// The inner loops of the neighbour search, part of each instruction set's table; see simd.hpp.
//
// Four queries share every load of a group of points; a running sum belongs to one query and one
// point, so neither the grouping nor the number of threads can change a distance.
#pragma once

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "simd.hpp"

namespace silva {
namespace {

constexpr std::size_t kDropEvery = 16;  // coordinates between two looks whether a group is hopeless

// Whole registers: wider vectors than the processor has are kept in memory by GCC.
#if defined(__AVX512F__)
#define SILVA_REGISTER 64
#elif defined(__AVX2__)
#define SILVA_REGISTER 32
#else
#define SILVA_REGISTER 16
#endif
template <class Real>
struct Register;
template <>
struct Register<float> {
  typedef float V __attribute__((vector_size(SILVA_REGISTER)));
  typedef std::int32_t I __attribute__((vector_size(SILVA_REGISTER)));
  static constexpr std::int32_t kMagnitude = 0x7fffffff;
};
template <>
struct Register<double> {
  typedef double V __attribute__((vector_size(SILVA_REGISTER)));
  typedef std::int64_t I __attribute__((vector_size(SILVA_REGISTER)));
  static constexpr std::int64_t kMagnitude = 0x7fffffffffffffff;
};
#undef SILVA_REGISTER
template <class Real>
constexpr std::size_t kLanes = sizeof(typename Register<Real>::V) / sizeof(Real);

template <class Real>
inline typename Register<Real>::V load_register(const Real* p) {
  typename Register<Real>::V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// One bit a lane: is it at most the limit?
template <class Real>
inline std::uint32_t lanes_within(typename Register<Real>::V v, Real limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Real) == 4)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(limit), _CMP_LE_OQ);
  else
    return _mm512_cmp_pd_mask((__m512d)v, _mm512_set1_pd(limit), _CMP_LE_OQ);
#else
  const auto is = v <= typename Register<Real>::V{} + limit;
#if defined(__AVX2__)
  if constexpr (sizeof(Real) == 4)
    return static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)is));
  else
    return static_cast<std::uint32_t>(_mm256_movemask_pd((__m256d)is));
#elif defined(__x86_64__)
  if constexpr (sizeof(Real) == 4)
    return static_cast<std::uint32_t>(_mm_movemask_ps((__m128)is));
  else
    return static_cast<std::uint32_t>(_mm_movemask_pd((__m128d)is));
#else
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < kLanes<Real>; ++i) bits |= static_cast<std::uint32_t>(is[i] & 1) << i;
  return bits;
#endif
#endif
}

template <class Real, bool kAbsolute>
inline void add_difference(typename Register<Real>::V& sum, typename Register<Real>::V difference) {
  using R = Register<Real>;
  if constexpr (kAbsolute)
    sum += (typename R::V)((typename R::I)difference & R::kMagnitude);
  else
    sum += difference * difference;
}

// Adds coordinates [from, to) of registers [first, first + count) of a group to the running sums.
template <class Real, bool kAbsolute, std::size_t count, class Sums>
inline void add_coordinates(const Real* group, const Real* const* query, std::size_t from,
                            std::size_t to, std::size_t first, Sums& sum) {
  using V = typename Register<Real>::V;
  V part[4][count];
  for (std::size_t q = 0; q < 4; ++q)
    for (std::size_t t = 0; t < count; ++t) part[q][t] = sum[q][first + t];
  for (std::size_t j = 16 * from; j < 16 * to; j += 16) {
    V x[count];
    for (std::size_t t = 0; t < count; ++t)
      x[t] = load_register(group + j + (first + t) * kLanes<Real>);
    for (std::size_t q = 0; q < 4; ++q)
      for (std::size_t t = 0; t < count; ++t)
        add_difference<Real, kAbsolute>(part[q][t], x[t] - query[q][j]);
  }
  for (std::size_t q = 0; q < 4; ++q)
    for (std::size_t t = 0; t < count; ++t) sum[q][first + t] = part[q][t];
}

template <class Real, bool kAbsolute>
std::size_t point_distances(const Real* points, std::size_t groups, std::size_t dims,
                            const Real* const* query, const Real* limit, Real* distance,
                            std::uint32_t* within) {
  constexpr std::size_t kCount = 16 / kLanes<Real>;       // registers of a group
  constexpr std::size_t kPart = kCount < 2 ? kCount : 2;  // of them with sums in registers at once
  std::size_t looked = 0;
  for (std::size_t g = 0; g < groups; ++g, points += 16 * dims) {
    typename Register<Real>::V sum[4][kCount] = {};
    std::uint32_t bits[4];
    std::size_t j = 0;
    do {
      const std::size_t stop = j + kDropEvery < dims ? j + kDropEvery : dims;
      for (std::size_t t = 0; t < kCount; t += kPart)
        add_coordinates<Real, kAbsolute, kPart>(points, query, j, stop, t, sum);
      j = stop;
      for (std::size_t q = 0; q < 4; ++q) {
        bits[q] = 0;
        for (std::size_t t = 0; t < kCount; ++t)
          bits[q] |= lanes_within<Real>(sum[q][t], limit[q]) << (t * kLanes<Real>);
      }
    } while (j < dims && (bits[0] | bits[1] | bits[2] | bits[3]));
    looked += j;
    for (std::size_t q = 0; q < 4; ++q) {
      within[q * groups + g] = bits[q];
      if (bits[q]) __builtin_memcpy(distance + (q * groups + g) * 16, sum[q], sizeof(sum[q]));
    }
  }
  return looked;
}

template <class Real, bool kAbsolute>
void box_distances(const Real* queries, std::size_t dims, const Real* low, const Real* high,
                   Real* distance) {
  using V = typename Register<Real>::V;
  for (std::size_t lane = 0; lane < 16; lane += kLanes<Real>) {
    const V zero = {};
    V sum = {};
    for (std::size_t j = 0; j < dims; ++j) {
      const V x = load_register(queries + 16 * j + lane), below = low[j] - x, above = x - high[j];
      const V outside = below > above ? below : above;
      add_difference<Real, kAbsolute>(sum, outside > zero ? outside : zero);
    }
    __builtin_memcpy(distance + lane, &sum, sizeof(sum));
  }
}

template <class Real, bool kAbsolute>
constexpr NeighbourLoops<Real> kNeighbourLoops = {point_distances<Real, kAbsolute>,
                                                  box_distances<Real, kAbsolute>};

}  // namespace
}  // namespace silva
