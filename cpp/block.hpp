// The columns a node problem works on, for its own points only.
#pragma once

#include "rows.hpp"

namespace silva {

// Columns as dense vectors over the points, padded to a multiple of 16. They stay as they are
// stored (bytes are a quarter of the memory to stream); `unit` takes them to scaled units.
template <class T>
class DenseBlock {
 public:
  static constexpr bool kDense = true;

  void reset(std::size_t points) {
    points_ = points;
    stride_ = round_up(points, 16);
    feature.clear();
    unit_.clear();
  }
  std::vector<std::int32_t> feature;
  std::size_t stride() const { return stride_; }

  void add(const View<DenseRows<T>>& view, const std::uint32_t* slot,
           const std::vector<std::int32_t>& features, Team& team) {
    const std::size_t from = feature.size();
    feature.insert(feature.end(), features.begin(), features.end());
    for (std::int32_t j : features) unit_.push_back(view.rows->unit[static_cast<std::size_t>(j)]);
    if (values_.size() < feature.size() * stride_) values_.resize(feature.size() * stride_);
    const std::size_t row_stride = view.rows->stride;
    for_pieces(team, points_, 4096, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; i += 16) {
        const std::size_t size = std::min<std::size_t>(16, end - i);
        const T* row[16];
        for (std::size_t k = 0; k < size; ++k) {
          row[k] = view.data + slot[i + k] * row_stride;
          // Rows lie apart, and the processor does not guess where: ask for the next ones.
          const T* later = view.data + slot[std::min(i + k + 16, end - 1)] * row_stride;
          for (std::size_t j = 0; j < row_stride; j += 64 / sizeof(T))
            __builtin_prefetch(later + j);
        }
        loops().pick(row, size, row_stride, features.data(), features.size(),
                     values_.data() + from * stride_ + i, stride_);
      }
    });
    for (std::size_t a = from; a < feature.size(); ++a)
      std::fill(values_.begin() + static_cast<std::ptrdiff_t>(a * stride_ + points_),
                values_.begin() + static_cast<std::ptrdiff_t>((a + 1) * stride_), T(0));
  }

  double dot(std::size_t a, const float* v) const {
    return unit(a) * loops().dot(column(a), v, stride_);
  }
  // y += z x_a over the points [begin, end).
  void add_scaled(std::size_t a, double z, float* y, std::size_t begin, std::size_t end) const {
    loops().add_scaled(static_cast<float>(z * unit(a)), column(a) + begin, y + begin, end - begin);
  }
  void descend(const ColumnDescent& model) const {
    loops().descend(values_.data(), unit_.data(), stride_, model);
  }
  void moments(std::size_t a, const float* h, double* first, double* second) const {
    loops().moments(column(a), h, stride_, first, second);
    *first *= unit(a);
    *second *= unit(a) * unit(a);
  }
  // Lower triangle of sum_i h[i] x_a[i] x_b[i], row-major.
  void gram(const float* h, Aligned<float>& scratch, std::vector<double>& out) const {
    const std::size_t size = feature.size();
    scratch.resize(2 * size * 512);
    out.resize(size * size);
    loops().gram(values_.data(), stride_, size, h, stride_, scratch.data(), out.data());
    for (std::size_t a = 0; a < size; ++a)
      for (std::size_t b = 0; b <= a; ++b) out[a * size + b] *= unit(a) * unit(b);
  }

 private:
  static const ColumnLoops<T>& loops() { return simd().columns<T>(); }
  const T* column(std::size_t a) const { return values_.data() + a * stride_; }
  double unit(std::size_t a) const { return static_cast<double>(unit_[a]); }

  std::size_t points_ = 0, stride_ = 0;
  Aligned<T> values_;
  std::vector<float> unit_;
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
  void add_scaled(std::size_t a, double z, float* y) const {
    for (std::size_t e = begin_[a]; e < begin_[a + 1]; ++e)
      y[point_[e]] += static_cast<float>(z) * value_[e];
  }
  void descend(const ColumnDescent& model) const {
    std::fill(model.q, model.q + stride(), 0.0f);
    descend_columns(*this, model);
  }
  void add(double z, std::size_t b, const float* h, float* q) const {
    for (std::size_t e = begin_[b]; e < begin_[b + 1]; ++e)
      q[point_[e]] += static_cast<float>(z) * h[point_[e]] * value_[e];
  }
  double add_then_dot(double z, std::size_t b, std::size_t a, const float* h, float* q) const {
    add(z, b, h, q);
    return dot(a, q);
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
  using type = DenseBlock<typename Rows::Value>;
};
template <>
struct BlockOf<SparseRows> {
  using type = SparseBlock;
};

}  // namespace silva
