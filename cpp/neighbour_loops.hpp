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

template <class Real>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float V __attribute__((vector_size(64)));
  typedef std::int32_t I __attribute__((vector_size(64)));
  static constexpr std::int32_t kMagnitude = 0x7fffffff;
};
template <>
struct Lanes<double> {
  typedef double V __attribute__((vector_size(128)));
  typedef std::int64_t I __attribute__((vector_size(128)));
  static constexpr std::int64_t kMagnitude = 0x7fffffffffffffff;
};

template <class Real>
inline typename Lanes<Real>::V load_lanes(const Real* p) {
  typename Lanes<Real>::V v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// One bit a lane: is it at most the limit?
template <class Real>
inline std::uint32_t lanes_within(typename Lanes<Real>::V v, Real limit) {
#if defined(__AVX512F__)
  if constexpr (sizeof(Real) == 4)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_set1_ps(limit), _CMP_LE_OQ);
#elif defined(__AVX2__)
  if constexpr (sizeof(Real) == 4) {
    __m256 half[2];
    __builtin_memcpy(half, &v, sizeof(v));
    const __m256 bound = _mm256_set1_ps(limit);
    return static_cast<std::uint32_t>(
        _mm256_movemask_ps(_mm256_cmp_ps(half[0], bound, _CMP_LE_OQ)) |
        _mm256_movemask_ps(_mm256_cmp_ps(half[1], bound, _CMP_LE_OQ)) << 8);
  }
#endif
  std::uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<std::uint32_t>(v[i] <= limit) << i;
  return bits;
}

template <class Real, bool kAbsolute>
inline void add_difference(typename Lanes<Real>::V& sum, typename Lanes<Real>::V difference) {
  using L = Lanes<Real>;
  if constexpr (kAbsolute)
    sum += (typename L::V)((typename L::I)difference & L::kMagnitude);
  else
    sum += difference * difference;
}

template <class Real, bool kAbsolute>
std::size_t point_distances(const Real* points, std::size_t groups, std::size_t dims,
                            const Real* const* query, const Real* limit, Real* distance,
                            std::uint32_t* within) {
  using V = typename Lanes<Real>::V;
  std::size_t looked = 0;
  for (std::size_t g = 0; g < groups; ++g, points += 16 * dims) {
    V sum[4] = {};
    std::uint32_t bits[4];
    std::size_t j = 0;
    do {
      const std::size_t stop = j + kDropEvery < dims ? j + kDropEvery : dims;
      for (; j < stop; ++j) {
        const V x = load_lanes(points + 16 * j);
        for (int q = 0; q < 4; ++q) add_difference<Real, kAbsolute>(sum[q], x - query[q][16 * j]);
      }
      for (int q = 0; q < 4; ++q) bits[q] = lanes_within<Real>(sum[q], limit[q]);
    } while (j < dims && (bits[0] | bits[1] | bits[2] | bits[3]));
    looked += j;
    for (std::size_t q = 0; q < 4; ++q) {
      within[q * groups + g] = bits[q];
      if (bits[q]) __builtin_memcpy(distance + (q * groups + g) * 16, &sum[q], sizeof(V));
    }
  }
  return looked;
}

template <class Real, bool kAbsolute>
void box_distances(const Real* queries, std::size_t dims, const Real* low, const Real* high,
                   Real* distance) {
  using V = typename Lanes<Real>::V;
  const V zero = {};
  V sum = {};
  for (std::size_t j = 0; j < dims; ++j) {
    const V x = load_lanes(queries + 16 * j), below = low[j] - x, above = x - high[j];
    const V outside = below > above ? below : above;
    add_difference<Real, kAbsolute>(sum, outside > zero ? outside : zero);
  }
  __builtin_memcpy(distance, &sum, sizeof(sum));
}

template <class Real, bool kAbsolute>
constexpr NeighbourLoops<Real> kNeighbourLoops = {point_distances<Real, kAbsolute>,
                                                  box_distances<Real, kAbsolute>};

}  // namespace
}  // namespace silva
