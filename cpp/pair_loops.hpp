// What all points do to one point of a map, part of each instruction set's table; see simd.hpp.
//
// Sums are folded into doubles in a fixed order, block by block, so they do not depend on the
// number of threads.
#pragma once

#include "lanes.hpp"
#include "simd.hpp"

namespace silva {
namespace {

constexpr std::size_t kPairBlock = 256;  // points between two folds

template <bool kCauchy, int kAxes>
inline void repel_along(const float* z, std::size_t stride, const float* mass, const float* at,
                        std::size_t n, double* sums) {
  for (int a = 0; a <= kAxes; ++a) sums[a] = 0;
  for (std::size_t begin = 0; begin < n; begin += kPairBlock) {
    const std::size_t end = begin + kPairBlock < n ? begin + kPairBlock : n;
    F16 total = {}, force[kAxes] = {};
    for (std::size_t j = begin; j < end; j += 16) {
      F16 gap[kAxes], square = {};
      for (int a = 0; a < kAxes; ++a) {
        gap[a] = splat(at[a]) - load<F16>(z + static_cast<std::size_t>(a) * stride + j);
        square += gap[a] * gap[a];
      }
      const F16 m = load<F16>(mass + j);
      F16 slope;  // less its sign
      if constexpr (kCauchy) {
        const F16 k = splat(1) / (splat(1) + square);
        total += m * k;
        slope = m * k * k;
      } else {
        slope = m * exp_nonpositive(-square);
        total += slope;
      }
      for (int a = 0; a < kAxes; ++a) force[a] += slope * gap[a];
    }
    sums[0] += static_cast<double>(sum(total));
    for (int a = 0; a < kAxes; ++a) sums[a + 1] -= static_cast<double>(sum(force[a]));
  }
}

void repel(const float* z, std::size_t stride, int axes, const float* mass, const float* at,
           std::size_t n, bool cauchy, double* sums) {
  switch (axes * 2 + cauchy) {
    case 2:
      return repel_along<false, 1>(z, stride, mass, at, n, sums);
    case 3:
      return repel_along<true, 1>(z, stride, mass, at, n, sums);
    case 4:
      return repel_along<false, 2>(z, stride, mass, at, n, sums);
    case 5:
      return repel_along<true, 2>(z, stride, mass, at, n, sums);
    case 6:
      return repel_along<false, 3>(z, stride, mass, at, n, sums);
    default:
      return repel_along<true, 3>(z, stride, mass, at, n, sums);
  }
}

}  // namespace
}  // namespace silva
