// The columns a node problem works on, for its own points only.
#pragma once

#include "rows.hpp"

namespace silva {

// Columns as dense vectors over the points, padded to a multiple of 16.
class DenseBlock {
 public:
  static constexpr bool kDense = true;

  void reset(std::size_t points) {
    points_ = points;
    stride_ = round_up(points, 16);
    feature.clear();
  }
  std::vector<std::int32_t> feature;
  std::size_t stride() const { return stride_; }
  const float* column(std::size_t a) const { return values_.data() + a * stride_; }

  template <class T>
  void add(const View<DenseRows<T>>& view, const std::uint32_t* slot,
           const std::vector<std::int32_t>& features, Team& team) {
    const std::size_t from = feature.size();
    feature.insert(feature.end(), features.begin(), features.end());
    if (values_.size() < feature.size() * stride_) values_.resize(feature.size() * stride_);
    const std::size_t row_stride = view.rows->stride;
    for_pieces(team, points_, 4096, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; i += 16) {
        const std::size_t size = std::min<std::size_t>(16, end - i);
        const T* row[16];
        for (std::size_t k = 0; k < size; ++k) row[k] = view.data + slot[i + k] * row_stride;
        for (std::size_t a = from; a < feature.size(); ++a) {
          const std::size_t j = static_cast<std::size_t>(feature[a]);
          const float unit = view.rows->unit[j];
          float* out = values_.data() + a * stride_ + i;
          for (std::size_t k = 0; k < size; ++k) out[k] = unit * static_cast<float>(row[k][j]);
        }
      }
    });
    for (std::size_t a = from; a < feature.size(); ++a)
      std::fill(values_.begin() + static_cast<std::ptrdiff_t>(a * stride_ + points_),
                values_.begin() + static_cast<std::ptrdiff_t>((a + 1) * stride_), 0.0f);
  }

  double dot(std::size_t a, const float* v) const { return simd().dot(column(a), v, stride_); }
  void add_scaled(std::size_t a, float z, float* y) const {
    simd().add_scaled(z, column(a), y, stride_);
  }
  void add_weighted(std::size_t a, float z, const float* h, float* y) const {
    simd().add_weighted(z, h, column(a), y, stride_);
  }
  void moments(std::size_t a, const float* h, double* first, double* second) const {
    simd().moments(column(a), h, stride_, first, second);
  }

 private:
  std::size_t points_ = 0, stride_ = 0;
  Aligned<float> values_;
};

// Columns as lists of (point, value).
class SparseBlock {
 public:
  static constexpr bool kDense = false;

  void reset(std::size_t points) {
    points_ = points;
    for (std::int32_t j : feature) place_[static_cast<std::size_t>(j)] = -1;
    feature.clear();
    begin_.assign(1, 0);
    point_.clear();
    value_.clear();
  }
  std::vector<std::int32_t> feature;
  std::size_t stride() const { return round_up(points_, 16); }

  void add(const View<SparseRows>& view, const std::uint32_t* slot,
           const std::vector<std::int32_t>& features, Team&) {
    const auto& rows = *view.rows;
    place_.resize(rows.d, -1);
    const std::size_t from = feature.size();
    for (std::int32_t j : features) {
      place_[static_cast<std::size_t>(j)] = static_cast<std::int32_t>(feature.size());
      feature.push_back(j);
    }
    std::vector<std::size_t> count(features.size(), 0);
    const auto visit = [&](auto&& use) {
      for (std::size_t i = 0; i < points_; ++i)
        for (std::int64_t e = rows.begin[slot[i]]; e < rows.begin[slot[i] + 1]; ++e) {
          const std::int32_t a = place_[static_cast<std::size_t>(rows.index[e])];
          if (a >= static_cast<std::int32_t>(from)) use(static_cast<std::size_t>(a) - from, i, e);
        }
    };
    visit([&](std::size_t a, std::size_t, std::int64_t) { ++count[a]; });
    for (std::size_t a = 0; a < features.size(); ++a) begin_.push_back(begin_.back() + count[a]);
    point_.resize(begin_.back());
    value_.resize(begin_.back());
    std::vector<std::size_t> next(begin_.begin() + static_cast<std::ptrdiff_t>(from),
                                  begin_.end() - 1);
    visit([&](std::size_t a, std::size_t i, std::int64_t e) {
      point_[next[a]] = static_cast<std::uint32_t>(i);
      value_[next[a]++] = rows.value[e];
    });
  }

  double dot(std::size_t a, const float* v) const {
    double total = 0;
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e)
      total += static_cast<double>(value_[e]) * static_cast<double>(v[point_[e]]);
    return total;
  }
  void add_scaled(std::size_t a, float z, float* y) const {
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e) y[point_[e]] += z * value_[e];
  }
  void add_weighted(std::size_t a, float z, const float* h, float* y) const {
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e)
      y[point_[e]] += z * h[point_[e]] * value_[e];
  }
  void moments(std::size_t a, const float* h, double* first, double* second) const {
    double one = 0, two = 0;
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e) {
      const double v = static_cast<double>(value_[e]);
      one += static_cast<double>(h[point_[e]]) * v;
      two += static_cast<double>(h[point_[e]]) * v * v;
    }
    *first = one;
    *second = two;
  }
  template <class Use>
  void entries(std::size_t a, Use&& use) const {
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e) use(point_[e], value_[e]);
  }

 private:
  std::size_t points_ = 0;
  std::vector<std::int32_t> place_;  // feature -> column of the block, or -1
  std::vector<std::size_t> begin_{0};
  std::vector<std::uint32_t> point_;
  std::vector<float> value_;
};

template <class Rows>
struct BlockOf {
  using type = DenseBlock;
};
template <>
struct BlockOf<SparseRows> {
  using type = SparseBlock;
};

}  // namespace silva
