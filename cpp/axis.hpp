// The axis-aligned node problem, solved exactly.
//
//   min over feature j, threshold, direction   sum_i c_i [point i sent to its worse side] + price,
//
// against sending every point to one side, which costs no price (LapTAO paper, section 3.1, with
// one feature a node). Given  rows, preference a_i = +c_i (better right) or -c_i (better left).
// Returned  the best plane: one coefficient of +1 or -1, or none.
#pragma once

#include <bit>
#include <utility>

#include "block.hpp"

namespace silva {

struct AxisSplit {
  double kept = -1;  // sum of the preferences sent right; larger is better
  std::int32_t feature = -1;
  float coefficient = 0, bias = 0;
};

// What the points of a node prefer: the sum of their preferences, and a difference too small to
// tell two splits apart. Ties are common, and rounding must not decide them: the first one wins.
struct Preferences {
  double total = 0;
  double tie = 0;

  static Preferences of(const float* preference, std::size_t count) {
    Preferences result;
    for (std::size_t i = 0; i < count; ++i) {
      result.total += static_cast<double>(preference[i]);
      result.tie += 1e-6 * std::fabs(static_cast<double>(preference[i]));
    }
    return result;
  }
};

// Scans the values of one column in ascending order: `step(value, preference)` may be called with
// equal values in a row. Right is value >= threshold, or the reverse direction.
class AxisScan {
 public:
  AxisScan(std::int32_t feature, const Preferences& all) : total_(all.total), tie_(all.tie) {
    best_.feature = feature;
  }

  void step(float value, double preference) {
    if (seen_ && value != last_) {
      float middle = last_ + 0.5f * (value - last_);
      if (!(middle > last_)) middle = value;
      offer(total_ - left_, 1.0f, -middle);
      offer(left_, -1.0f, middle);
    }
    left_ += preference;
    last_ = value;
    seen_ = true;
  }
  const AxisSplit& best() const { return best_; }

 private:
  void offer(double kept, float coefficient, float bias) {
    if (kept <= best_.kept + tie_) return;
    best_.kept = kept;
    best_.coefficient = coefficient;
    best_.bias = bias;
  }
  AxisSplit best_;
  double total_, tie_, left_ = 0;
  float last_ = 0;
  bool seen_ = false;
};

// A value of a column and what its point prefers.
struct AxisPoint {
  std::uint32_t key;  // the bits of the value, in an order that unsigned numbers compare by
  float preference;

  static std::uint32_t key_of(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  float value() const { return std::bit_cast<float>(key & 0x80000000u ? key & 0x7fffffffu : ~key); }
};

// Sorts points by value, byte by byte from the lowest: several times as fast as comparing them.
inline void sort_points(std::vector<AxisPoint>& points, std::vector<AxisPoint>& spare) {
  constexpr std::size_t kFew = 64;
  if (points.size() < kFew) {
    std::stable_sort(points.begin(), points.end(),
                     [](const AxisPoint& a, const AxisPoint& b) { return a.key < b.key; });
    return;
  }
  std::uint32_t count[4][256] = {};
  for (const AxisPoint& point : points)
    for (int byte = 0; byte < 4; ++byte) ++count[byte][point.key >> (8 * byte) & 0xff];
  spare.resize(points.size());
  for (int byte = 0; byte < 4; ++byte) {
    auto& place = count[byte];
    if (place[points[0].key >> (8 * byte) & 0xff] == points.size()) continue;  // all the same
    std::uint32_t next = 0;
    for (std::uint32_t& begin : place) next += std::exchange(begin, next);
    for (const AxisPoint& point : points) spare[place[point.key >> (8 * byte) & 0xff]++] = point;
    points.swap(spare);
  }
}

template <class T>
AxisSplit best_axis_split(const View<DenseRows<T>>& view, const std::uint32_t* slot,
                          const float* preference, std::size_t count, const Preferences& all,
                          Team& team) {
  const auto& rows = *view.rows;
  std::vector<AxisSplit> best(rows.d);
  team.run(rows.d, [&](std::size_t j, int) {
    AxisScan scan(static_cast<std::int32_t>(j), all);
    const T* column = view.data + j;
    if constexpr (sizeof(T) == 1) {
      double sum[256] = {};
      bool present[256] = {};
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint8_t code = column[slot[i] * rows.stride];
        sum[code] += static_cast<double>(preference[i]);
        present[code] = true;
      }
      for (int code = 0; code < 256; ++code)
        if (present[code]) scan.step(rows.unit[j] * static_cast<float>(code), sum[code]);
    } else {
      std::vector<AxisPoint> points(count), spare;
      for (std::size_t i = 0; i < count; ++i)
        points[i] = {AxisPoint::key_of(column[slot[i] * rows.stride]), preference[i]};
      sort_points(points, spare);
      for (const AxisPoint& point : points)
        scan.step(point.value(), static_cast<double>(point.preference));
    }
    best[j] = scan.best();
  });
  AxisSplit winner;
  for (const auto& split : best)
    if (split.kept > winner.kept + all.tie) winner = split;
  return winner;
}

inline AxisSplit best_axis_split(const View<SparseRows>& view, const std::uint32_t* slot,
                                 const float* preference, std::size_t count, const Preferences& all,
                                 Team& team) {
  const auto& rows = *view.rows;
  std::vector<std::int32_t> features;
  for (std::size_t i = 0; i < count; ++i)
    features.insert(features.end(), rows.index.begin() + rows.begin[slot[i]],
                    rows.index.begin() + rows.begin[slot[i] + 1]);
  std::sort(features.begin(), features.end());
  features.erase(std::unique(features.begin(), features.end()), features.end());
  SparseBlock block;
  block.reset(count);
  block.add(view, slot, features, team);
  AxisSplit winner;
  std::vector<std::pair<float, float>> points;
  for (std::size_t a = 0; a < features.size(); ++a) {
    points.clear();
    double stored = 0;
    block.entries(a, [&](std::uint32_t i, float value) {
      points.emplace_back(value, preference[i]);
      stored += static_cast<double>(preference[i]);
    });
    const bool zeros = points.size() < count;
    std::sort(points.begin(), points.end());
    AxisScan scan(features[a], all);
    bool passed = false;
    for (const auto& [value, weight] : points) {
      if (zeros && !passed && value >= 0) {
        scan.step(0.0f, all.total - stored);
        passed = true;
      }
      scan.step(value, static_cast<double>(weight));
    }
    if (zeros && !passed) scan.step(0.0f, all.total - stored);
    if (scan.best().kept > winner.kept + all.tie) winner = scan.best();
  }
  return winner;
}

}  // namespace silva
