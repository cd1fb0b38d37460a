// The nearest neighbours of every point among the others, exactly, by a scan that skips.
//
// Given points in leaves: a leaf is a few groups of 16 points that lie close together, each group
// stored coordinate by coordinate, with a box around the first coordinates of the leaf. For each
// query leaf the others are visited from the nearest centre outwards, and
//   a leaf is skipped by the queries whose distance to its box is above their worst kept distance,
//   a group is dropped as soon as its running distances, which only grow, are all above it.
// Returned are the `kept` nearest by (distance, id), whatever the order of the visits.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "simd.hpp"

namespace silva {

// `boxed` coordinates, the first ones, have boxes and centres. Padding points have a negative id
// and lie at infinity, or far away.
template <class Real>
struct PointLeaves {
  std::size_t leaves, dims, boxed;
  const Real* points;          // groups x dims x 16
  const std::int32_t* id;      // groups x 16
  const std::int32_t* begin;   // leaves + 1, in groups
  const Real* low;             // leaves x boxed
  const Real* high;            // leaves x boxed
  const Real* centre;          // leaves x boxed
  const std::uint8_t* wanted;  // groups x 16: is this point a query?
};

template <class Real>
class NeighbourSearch {
 public:
  NeighbourSearch(const PointLeaves<Real>& data, bool absolute, std::size_t kept)
      : data_(data),
        loops_(simd().template neighbours<Real>(absolute)),
        absolute_(absolute),
        kept_(kept) {}

  // Fills row id of `neighbour` (points x kept, sorted) and `distance` for the queries of a leaf.
  void search(std::size_t leaf, std::int32_t* neighbour, Real* distance) {
    const auto first = static_cast<std::size_t>(data_.begin[leaf]),
               last = static_cast<std::size_t>(data_.begin[leaf + 1]);
    query_.clear();
    for (std::size_t p = first * 16; p < last * 16; ++p)
      if (data_.wanted[p]) query_.push_back(p);
    if (query_.empty()) return;
    best_.resize(query_.size());
    for (auto& heap : best_) heap.clear();
    limit_.assign(query_.size(), std::numeric_limits<Real>::infinity());
    visit_order(leaf);
    for (const std::size_t other : order_) {
      const Real worst = *std::max_element(limit_.begin(), limit_.end());
      if (leaf_gap(leaf, other) * kCautious > worst) continue;
      select_active(first, last, other);
      for (std::size_t a = 0; a < active_.size(); a += 4) scan(a, other);
    }
    for (std::size_t q = 0; q < query_.size(); ++q) {
      std::sort_heap(best_[q].begin(), best_[q].end());
      const std::size_t row = static_cast<std::size_t>(data_.id[query_[q]]) * kept_;
      for (std::size_t k = 0; k < best_[q].size(); ++k) {
        distance[row + k] = best_[q][k].first;
        neighbour[row + k] = best_[q][k].second;
      }
    }
  }

  // Coordinates looked at so far; each is one of 16 points for four queries.
  std::size_t looked() const { return looked_; }

 private:
  // Bounds are rounded too; a box must not hide a point that is just within reach.
  static constexpr Real kCautious = Real(1) - Real(1e-5);

  Real part(Real difference) const {
    return absolute_ ? std::abs(difference) : difference * difference;
  }
  void visit_order(std::size_t leaf) {
    const std::size_t m = data_.boxed;
    const Real* from = data_.centre + leaf * m;
    away_.resize(data_.leaves);
    for (std::size_t l = 0; l < data_.leaves; ++l) {
      const Real* to = data_.centre + l * m;
      Real sum = 0;
      for (std::size_t j = 0; j < m; ++j) sum += part(from[j] - to[j]);
      away_[l] = l == leaf ? Real(-1) : sum;
    }
    order_.resize(data_.leaves);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return away_[a] != away_[b] ? away_[a] < away_[b] : a < b;
    });
  }
  Real leaf_gap(std::size_t a, std::size_t b) const {
    const std::size_t m = data_.boxed;
    Real sum = 0;
    for (std::size_t j = 0; j < m; ++j) {
      const Real gap = std::max(data_.low[b * m + j] - data_.high[a * m + j],
                                data_.low[a * m + j] - data_.high[b * m + j]);
      sum += part(std::max(gap, Real(0)));
    }
    return sum;
  }
  void select_active(std::size_t first, std::size_t last, std::size_t other) {
    const std::size_t m = data_.boxed;
    active_.clear();
    std::size_t q = 0;
    for (std::size_t g = first; g < last; ++g) {
      if (q == query_.size() || query_[q] >= 16 * (g + 1)) continue;
      looked_ += m;
      Real gap[16];
      loops_.box_distances(data_.points + g * 16 * data_.dims, m, data_.low + other * m,
                           data_.high + other * m, gap);
      for (; q < query_.size() && query_[q] < 16 * (g + 1); ++q)
        if (gap[query_[q] - 16 * g] * kCautious <= limit_[q]) active_.push_back(q);
    }
  }
  // Queries active_[a] to active_[a + 3] against the points of a leaf; past the end none is near.
  void scan(std::size_t a, std::size_t other) {
    const auto first = static_cast<std::size_t>(data_.begin[other]),
               groups = static_cast<std::size_t>(data_.begin[other + 1]) - first;
    const Real* queries[4];
    Real limits[4];
    for (std::size_t k = 0; k < 4; ++k) {
      const bool real = a + k < active_.size();
      const std::size_t q = active_[real ? a + k : a], p = query_[q];
      queries[k] = data_.points + p / 16 * 16 * data_.dims + p % 16;
      limits[k] = real ? limit_[q] : Real(-1);
    }
    distance_.resize(4 * groups * 16);
    within_.resize(4 * groups);
    looked_ += loops_.point_distances(data_.points + first * 16 * data_.dims, groups, data_.dims,
                                      queries, limits, distance_.data(), within_.data());
    for (std::size_t k = 0; k < 4 && a + k < active_.size(); ++k) {
      const std::size_t q = active_[a + k];
      for (std::size_t g = 0; g < groups; ++g)
        for (std::uint32_t bits = within_[k * groups + g]; bits; bits &= bits - 1) {
          const auto lane = static_cast<std::size_t>(__builtin_ctz(bits));
          keep(q, distance_[(k * groups + g) * 16 + lane], (first + g) * 16 + lane);
        }
    }
  }
  void keep(std::size_t q, Real distance, std::size_t position) {
    if (position == query_[q] || data_.id[position] < 0) return;
    auto& heap = best_[q];
    const std::pair<Real, std::int32_t> candidate{distance, data_.id[position]};
    if (heap.size() == kept_) {
      if (!(candidate < heap.front())) return;
      std::pop_heap(heap.begin(), heap.end());
      heap.back() = candidate;
    } else {
      heap.push_back(candidate);
    }
    std::push_heap(heap.begin(), heap.end());
    if (heap.size() == kept_) limit_[q] = heap.front().first;
  }

  const PointLeaves<Real>& data_;
  const NeighbourLoops<Real>& loops_;
  const bool absolute_;
  const std::size_t kept_;
  std::size_t looked_ = 0;
  std::vector<std::size_t> query_, active_, order_;
  std::vector<std::vector<std::pair<Real, std::int32_t>>> best_;
  std::vector<Real> limit_, away_, distance_;
  std::vector<std::uint32_t> within_;
};

// Sums of squared or absolute differences, in double, of each row and its candidates.
template <class Real>
void pair_distances(const Real* x, std::size_t features, const std::int32_t* row, std::size_t rows,
                    const std::int32_t* candidate, std::size_t candidates, bool absolute,
                    double* distance, Team& team) {
  const auto sum_of = [&](const Real* a, const Real* b, auto part) {
    constexpr std::size_t kLanes = 8;
    double lane[kLanes] = {};
    std::size_t j = 0;
    for (; j + kLanes <= features; j += kLanes)
      for (std::size_t l = 0; l < kLanes; ++l)
        lane[l] += part(static_cast<double>(a[j + l]) - static_cast<double>(b[j + l]));
    double sum =
        ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    for (; j < features; ++j) sum += part(static_cast<double>(a[j]) - static_cast<double>(b[j]));
    return sum;
  };
  for_pieces(team, rows, 256, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i)
      for (std::size_t k = i * candidates; k < (i + 1) * candidates; ++k) {
        const Real* a = x + static_cast<std::size_t>(row[i]) * features;
        const Real* b = x + static_cast<std::size_t>(candidate[k]) * features;
        distance[k] = absolute ? sum_of(a, b, [](double v) { return std::abs(v); })
                               : sum_of(a, b, [](double v) { return v * v; });
      }
  });
}

}  // namespace silva
