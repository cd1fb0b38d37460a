// First trees to optimise: hyperplanes drawn at random, thresholds at the median.
//
// A node is split while it has at least two rows and depth is left. The direction is Gaussian, or
// the difference of the mean rows of two groups: two random classes of the node or, for regression,
// the rows above and below the median of a random combination of the targets.
#pragma once

#include "random.hpp"
#include "tao.hpp"

namespace silva {

enum class Direction { kGaussian, kMeans, kAxis };

struct StartTargets {
  std::vector<std::int32_t> codes;  // classes (first target), or empty
  std::vector<float> values;        // regression targets (n, outputs), or empty
  std::size_t outputs = 0;
  std::vector<float> weight;  // of the rows, or empty: every row counts once

  double weight_of(std::size_t i) const {
    return weight.empty() ? 1.0 : static_cast<double>(weight[i]);
  }
};

struct Start {
  Structure structure;
  std::vector<Plane> planes;
};

template <class Rows>
class Starter {
 public:
  Starter(const Rows& rows, const StartTargets& targets, Direction direction, int max_depth,
          std::size_t min_rows, std::uint64_t seed)
      : rows_(rows),
        targets_(targets),
        direction_(direction),
        max_depth_(max_depth),
        min_rows_(std::max<std::size_t>(min_rows, 2)),
        seed_(seed),
        alone_(1) {}

  Start grow() {
    std::vector<std::uint32_t> all(rows_.n);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint32_t>(i);
    split(all, 0, 1);
    return std::move(start_);
  }

 private:
  // `path` numbers the node as in a complete tree: the random stream of a node is its place.
  std::int32_t split(std::vector<std::uint32_t>& rows, int depth, std::uint64_t path) {
    const auto node = static_cast<std::int32_t>(start_.structure.size());
    start_.structure.left.push_back(-1);
    start_.structure.right.push_back(-1);
    start_.planes.emplace_back();
    if (depth >= max_depth_ || rows.size() < min_rows_) return node;
    Random random(seed_, path);
    Plane plane = direction(rows, random);
    if (plane.index.empty()) return node;
    const std::vector<float> score = scores(plane, rows);
    float cut = median(score, rows);
    // Rows below the cut, so that both sides get some; the cut itself midway between two rows.
    float below = -std::numeric_limits<float>::infinity(), above = -below;
    for (float v : score)
      (v < cut ? below : above) = v < cut ? std::max(below, v) : std::min(above, v);
    if (!std::isfinite(below)) {  // ties at the median: cut above them
      below = cut;
      above = std::numeric_limits<float>::infinity();
      for (float v : score)
        if (v > cut) above = std::min(above, v);
      if (!std::isfinite(above)) return node;  // all rows alike in this direction
    }
    cut = below + 0.5f * (above - below);
    if (!(cut > below)) cut = above;
    plane.bias = -cut;
    std::vector<std::uint32_t> left, right;
    for (std::size_t i = 0; i < rows.size(); ++i)
      (score[i] >= cut ? right : left).push_back(rows[i]);
    std::vector<std::uint32_t>().swap(rows);
    start_.planes[static_cast<std::size_t>(node)] = std::move(plane);
    const std::int32_t left_node = split(left, depth + 1, 2 * path);
    const std::int32_t right_node = split(right, depth + 1, 2 * path + 1);
    start_.structure.left[static_cast<std::size_t>(node)] = left_node;
    start_.structure.right[static_cast<std::size_t>(node)] = right_node;
    return node;
  }

  // The value in the middle of the rows' weight; the upper one of two.
  float median(const std::vector<float>& value, const std::vector<std::uint32_t>& rows) const {
    if (targets_.weight.empty()) {
      std::vector<float> sorted = value;
      const auto half = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
      std::nth_element(sorted.begin(), half, sorted.end());
      return *half;
    }
    std::vector<std::pair<float, double>> sorted(rows.size());
    double total = 0, passed = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      sorted[i] = {value[i], targets_.weight_of(rows[i])};
      total += sorted[i].second;
    }
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [v, weight] : sorted)
      if ((passed += weight) > 0.5 * total) return v;
    return sorted.back().first;
  }

  View<Rows> view() const {
    if constexpr (Rows::kSparse)
      return {&rows_, nullptr};
    else
      return {&rows_, rows_.data.data()};
  }

  Plane direction(const std::vector<std::uint32_t>& rows, Random& random) {
    switch (direction_) {
      case Direction::kAxis: {
        Plane plane;
        plane.index = {static_cast<std::int32_t>(random.below(rows_.d))};
        plane.value = {1.0f};
        return plane;
      }
      case Direction::kGaussian:
        return gaussian(rows, random);
      case Direction::kMeans:
        break;
    }
    std::vector<float> sign = groups(rows, random);
    Plane plane = sign.empty() ? Plane{} : combination(rows, sign);
    return plane.index.empty() ? gaussian(rows, random) : plane;
  }

  // Normal weights on the columns that vary; sparse rows: on those of a few of the node's rows.
  Plane gaussian(const std::vector<std::uint32_t>& rows, Random& random) {
    Plane plane;
    if constexpr (Rows::kSparse) {
      for (int k = 0; k < 16; ++k) {
        const std::uint32_t i = rows[random.below(rows.size())];
        plane.index.insert(plane.index.end(), rows_.index.begin() + rows_.begin[i],
                           rows_.index.begin() + rows_.begin[i + 1]);
      }
      std::sort(plane.index.begin(), plane.index.end());
      plane.index.erase(std::unique(plane.index.begin(), plane.index.end()), plane.index.end());
    } else {
      for (std::size_t j = 0; j < rows_.d; ++j) {
        const auto first = rows_.row(rows.front())[j];
        if (std::any_of(rows.begin(), rows.end(),
                        [&](std::uint32_t i) { return rows_.row(i)[j] != first; }))
          plane.index.push_back(static_cast<std::int32_t>(j));
      }
    }
    for (std::size_t k = 0; k < plane.index.size(); ++k)
      plane.value.push_back(static_cast<float>(random.normal()));
    return plane;
  }

  // A weight for each row: 1/size in one group, -1/size in the other, 0 outside both.
  std::vector<float> groups(const std::vector<std::uint32_t>& rows, Random& random) const {
    std::vector<float> sign(rows.size(), 0.0f);
    std::vector<char> high(rows.size(), 0), low(rows.size(), 0);
    if (!targets_.codes.empty()) {
      std::vector<char> seen;
      for (std::uint32_t i : rows) {
        const auto code = static_cast<std::size_t>(targets_.codes[i]);
        if (code >= seen.size()) seen.resize(code + 1, 0);
        seen[code] = 1;
      }
      std::vector<std::int32_t> present;
      for (std::size_t code = 0; code < seen.size(); ++code)
        if (seen[code]) present.push_back(static_cast<std::int32_t>(code));
      if (present.size() < 2) return {};
      const std::size_t a = random.below(present.size());
      std::size_t b = random.below(present.size() - 1);
      if (b >= a) ++b;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        high[i] = targets_.codes[rows[i]] == present[a];
        low[i] = targets_.codes[rows[i]] == present[b];
      }
    } else {
      std::vector<double> mix(targets_.outputs);
      for (double& v : mix) v = random.normal();
      std::vector<float> value(rows.size(), 0.0f);
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t o = 0; o < targets_.outputs; ++o)
          value[i] += static_cast<float>(mix[o]) * targets_.values[rows[i] * targets_.outputs + o];
      const float middle = median(value, rows);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        high[i] = value[i] > middle;
        low[i] = value[i] < middle;
      }
    }
    double ups = 0, downs = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (high[i]) ups += targets_.weight_of(rows[i]);
      if (low[i]) downs += targets_.weight_of(rows[i]);
    }
    if (ups == 0 || downs == 0) return {};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double share = targets_.weight_of(rows[i]);
      sign[i] = static_cast<float>(high[i] ? share / ups : low[i] ? -share / downs : 0.0);
    }
    return sign;
  }

  Plane combination(const std::vector<std::uint32_t>& rows, const std::vector<float>& sign) {
    sum_.assign(rows_.d, 0.0);
    std::vector<std::uint32_t> used;
    std::vector<float> weight;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (sign[i] != 0) {
        used.push_back(rows[i]);
        weight.push_back(sign[i]);
      }
    combine(view(), used.data(), weight.data(), used.size(), alone_, sum_, touched_);
    Plane plane;
    for (std::int32_t j : touched_) {
      const auto v = static_cast<float>(sum_[static_cast<std::size_t>(j)]);
      if (v == 0) continue;
      plane.index.push_back(j);
      plane.value.push_back(v);
    }
    return plane;
  }

  std::vector<float> scores(const Plane& plane, const std::vector<std::uint32_t>& rows) {
    std::vector<float> score(rows.size());
    if constexpr (Rows::kSparse) {
      std::vector<float> spread(rows_.d, 0.0f);
      for (std::size_t k = 0; k < plane.index.size(); ++k)
        spread[static_cast<std::size_t>(plane.index[k])] = plane.value[k];
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::int64_t e = rows_.begin[rows[i]]; e < rows_.begin[rows[i] + 1]; ++e)
          score[i] += spread[static_cast<std::size_t>(rows_.index[e])] * rows_.value[e];
    } else {
      Aligned<float> w(rows_.stride, 0.0f);
      for (std::size_t k = 0; k < plane.index.size(); ++k) {
        const auto j = static_cast<std::size_t>(plane.index[k]);
        w[j] = plane.value[k] * rows_.unit[j];
      }
      const auto dot = simd().rows<typename Rows::Value>().dot;
      for (std::size_t i = 0; i < rows.size(); ++i)
        score[i] = dot(rows_.row(rows[i]), w.data(), rows_.stride);
    }
    return score;
  }

  const Rows& rows_;
  const StartTargets& targets_;
  Direction direction_;
  int max_depth_;
  std::size_t min_rows_;
  std::uint64_t seed_;
  Team alone_;
  Start start_;
  std::vector<double> sum_;
  std::vector<std::int32_t> touched_;
};

}  // namespace silva
