// The sum of a kernel over all pairs of points of a map, and its gradient.
//
//   sum over n, m of mass_n mass_m k(z_n - z_m),   k(z) = exp(-|z|^2)  or  1 / (1 + |z|^2)
//
// Given: z row-major (n x axes, at most three axes), the masses. Returned: the sum, and its
// derivatives over z in `gradient`. Differences are taken in float from the middle of the map.
#pragma once

#include <vector>

#include "block.hpp"
#include "parallel.hpp"
#include "simd.hpp"

namespace silva {

inline double pair_sum(const double* z, const double* mass, std::size_t n, int axes, bool cauchy,
                       double* gradient, Team& team) {
  const auto width = static_cast<std::size_t>(axes);
  const std::size_t stride = round_up(n, 16);
  Aligned<float> columns(stride * width, 0.0f), weight(stride, 0.0f);
  for (std::size_t a = 0; a < width; ++a) {
    double mean = 0;
    for (std::size_t i = 0; i < n; ++i) mean += z[i * width + a];
    mean /= static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i)
      columns[a * stride + i] = static_cast<float>(z[i * width + a] - mean);
  }
  for (std::size_t i = 0; i < n; ++i) weight[i] = static_cast<float>(mass[i]);
  std::vector<double> felt(n);
  for_pieces(team, n, 64, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      float at[3];
      double sums[4];
      for (std::size_t a = 0; a < width; ++a) at[a] = columns[a * stride + i];
      simd().repel(columns.data(), stride, axes, weight.data(), at, stride, cauchy, sums);
      felt[i] = mass[i] * sums[0];
      for (std::size_t a = 0; a < width; ++a) gradient[i * width + a] = 4 * mass[i] * sums[a + 1];
    }
  });
  double total = 0;
  for (double part : felt) total += part;
  return total;
}

}  // namespace silva
