// Linear leaves: ridge regression on the rows of each leaf.
//
//   min over S, s0   sum_i weight_i |y_i - S x_i - s0|^2 + ridge |S|^2      (scaled units)
//
// Each leaf keeps its summary statistics (sums of x x', x y'); between two fits only the rows that
// moved are added and taken away, which is most of the work saved once the tree settles. Each leaf
// also reports the span of its targets, to which predictions are clipped: a line says nothing
// outside of the rows it was drawn through.
#pragma once

#include "leaves.hpp"

namespace silva {

// Solves (A + diag) Z = B in place by Cholesky; A is n x n symmetric positive definite, B n x k.
inline void solve_cholesky(std::vector<double>& a, std::vector<double>& b, std::size_t n,
                           std::size_t k) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i * n + j];
      for (std::size_t l = 0; l < j; ++l) sum -= a[i * n + l] * a[j * n + l];
      a[i * n + j] = i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / a[j * n + j];
    }
  for (std::size_t o = 0; o < k; ++o) {
    for (std::size_t i = 0; i < n; ++i) {
      double sum = b[i * k + o];
      for (std::size_t l = 0; l < i; ++l) sum -= a[i * n + l] * b[l * k + o];
      b[i * k + o] = sum / a[i * n + i];
    }
    for (std::size_t i = n; i-- > 0;) {
      double sum = b[i * k + o];
      for (std::size_t l = i + 1; l < n; ++l) sum -= a[l * n + i] * b[l * k + o];
      b[i * k + o] = sum / a[i * n + i];
    }
  }
}

template <class Rows>
class LinearLeaves final : public LeafModel {
 public:
  LinearLeaves(Targets targets, std::shared_ptr<const Rows> rows, std::size_t leaves, double ridge)
      : LinearLeaves(std::move(targets), *rows, leaves, ridge) {
    kept_ = std::move(rows);
  }
  LinearLeaves(Targets targets, const Rows& rows, std::size_t leaves, double ridge)
      : targets_(std::move(targets)),
        view_{&rows, data_of(rows)},
        width_(rows.d + 1),
        ridge_(ridge),
        row_size_(round_up(width_, 16)),
        gram_(leaves),
        cross_(leaves),
        slope_(leaves * targets_.outputs * row_size_, 0.0f),
        bound_(2 * leaves * targets_.outputs),
        where_(targets_.weight.size(), -1) {
    order_.resize(targets_.weight.size());
    for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<std::uint32_t>(i);
    const std::size_t k = targets_.outputs;
    overall_.resize(k);
    for (std::size_t o = 0; o < k; ++o) {
      double sum = 0, total = 0;
      for (std::size_t i = 0; i < targets_.weight.size(); ++i) {
        sum += static_cast<double>(targets_.weight[i]) *
               static_cast<double>(targets_.value[i * k + o]);
        total += static_cast<double>(targets_.weight[i]);
      }
      overall_[o] = static_cast<float>(sum / total);
    }
    for (std::size_t l = 0; l < leaves; ++l) answer_for_all(l);
  }

  void reorder(const std::vector<std::uint32_t>& order) override {
    order_ = order;
    targets_.reorder(order);
  }

  void fit(const std::vector<std::size_t>& start, Team& team) override {
    const std::size_t leaves = start.size() - 1;
    // Rows that left, listed by the leaf they left.
    std::vector<std::vector<std::uint32_t>> leavers(leaves);
    for (std::size_t l = 0; l < leaves; ++l)
      for (std::size_t p = start[l]; p < start[l + 1]; ++p) {
        const std::int32_t before = where_[order_[p]];
        if (before >= 0 && before != static_cast<std::int32_t>(l))
          leavers[static_cast<std::size_t>(before)].push_back(order_[p]);
      }
    team.run(leaves, [&](std::size_t l, int) {
      update_statistics(l, start[l], start[l + 1], leavers[l]);
      if (start[l] < start[l + 1])
        solve(l, start[l], start[l + 1]);
      else
        answer_for_all(l);
    });
    for (std::size_t l = 0; l < leaves; ++l)
      for (std::size_t p = start[l]; p < start[l + 1]; ++p)
        where_[order_[p]] = static_cast<std::int32_t>(l);
  }

  void losses(const std::uint32_t* position, std::size_t count, const std::int32_t* leaf,
              float* out) const override {
    const std::size_t k = targets_.outputs;
    Aligned<float> x(row_size_, 0.0f);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t p = position[i];
      row(order_[p], x.data());
      const auto l = static_cast<std::size_t>(leaf[i]);
      float total = 0;
      for (std::size_t o = 0; o < k; ++o) {
        const float answer = simd().float_rows.dot(x.data(), slope(l, o), row_size_);
        const float error = targets_.value[p * k + o] - answer;
        total += error * error;
      }
      out[i] = targets_.weight[p] * total;
    }
  }
  double penalty() const override {
    double total = 0;
    for (std::size_t l = 0; l < gram_.size(); ++l)
      for (std::size_t o = 0; o < targets_.outputs; ++o)
        for (std::size_t i = 0; i + 1 < width_; ++i)
          total += static_cast<double>(slope(l, o)[i]) * static_cast<double>(slope(l, o)[i]);
    return ridge_ * total;
  }
  std::size_t outputs() const override { return targets_.outputs; }
  std::vector<double> values() const override {
    std::vector<double> result;
    for (std::size_t l = 0; l < gram_.size(); ++l)
      for (std::size_t o = 0; o < targets_.outputs; ++o)
        result.push_back(static_cast<double>(slope(l, o)[width_ - 1]));
    return result;
  }
  std::vector<double> slopes() const override {
    std::vector<double> result;
    for (std::size_t l = 0; l < gram_.size(); ++l)
      for (std::size_t o = 0; o < targets_.outputs; ++o)
        result.insert(result.end(), slope(l, o), slope(l, o) + width_ - 1);
    return result;
  }
  std::vector<double> bounds() const override { return {bound_.begin(), bound_.end()}; }

 private:
  static const typename Rows::Value* data_of(const Rows& rows) {
    if constexpr (Rows::kSparse)
      return nullptr;
    else
      return rows.data.data();
  }
  float* slope(std::size_t l, std::size_t o) {
    return slope_.data() + (l * targets_.outputs + o) * row_size_;
  }
  const float* slope(std::size_t l, std::size_t o) const {
    return slope_.data() + (l * targets_.outputs + o) * row_size_;
  }
  float* lower(std::size_t l) { return bound_.data() + l * targets_.outputs; }
  float* upper(std::size_t l) { return bound_.data() + (gram_.size() + l) * targets_.outputs; }
  const float* lower(std::size_t l) const { return bound_.data() + l * targets_.outputs; }
  const float* upper(std::size_t l) const {
    return bound_.data() + (gram_.size() + l) * targets_.outputs;
  }
  void answer_for_all(std::size_t l) {
    for (std::size_t o = 0; o < targets_.outputs; ++o) {
      std::fill(slope(l, o), slope(l, o) + row_size_, 0.0f);
      slope(l, o)[width_ - 1] = lower(l)[o] = upper(l)[o] = overall_[o];
    }
  }
  void row(std::size_t original, float* x) const {
    expand(view_, original, x);
    x[width_ - 1] = 1;
  }

  void accumulate(std::size_t l, std::size_t original, double sign, float* x) {
    row(original, x);
    const double weight = sign * static_cast<double>(targets_.original_weight(original));
    const float* y = targets_.original(original);
    for (std::size_t i = 0; i < width_; ++i) {
      const double v = weight * static_cast<double>(x[i]);
      if (v == 0) continue;
      double* line = gram_[l].data() + i * width_;
      for (std::size_t j = 0; j <= i; ++j) line[j] += v * static_cast<double>(x[j]);
      for (std::size_t o = 0; o < targets_.outputs; ++o)
        cross_[l][i * targets_.outputs + o] += v * static_cast<double>(y[o]);
    }
  }
  void update_statistics(std::size_t l, std::size_t begin, std::size_t end,
                         const std::vector<std::uint32_t>& leavers) {
    std::size_t joiners = 0;
    for (std::size_t p = begin; p < end; ++p)
      joiners += where_[order_[p]] != static_cast<std::int32_t>(l);
    Aligned<float> x(row_size_, 0.0f);
    if (gram_[l].empty() || joiners + leavers.size() >= end - begin) {  // cheaper from scratch
      gram_[l].assign(width_ * width_, 0.0);
      cross_[l].assign(width_ * targets_.outputs, 0.0);
      for (std::size_t p = begin; p < end; ++p) accumulate(l, order_[p], 1, x.data());
      return;
    }
    for (std::uint32_t i : leavers) accumulate(l, i, -1, x.data());
    for (std::size_t p = begin; p < end; ++p)
      if (where_[order_[p]] != static_cast<std::int32_t>(l)) accumulate(l, order_[p], 1, x.data());
  }
  void solve(std::size_t l, std::size_t begin, std::size_t end) {
    const std::size_t k = targets_.outputs;
    std::vector<double> a = gram_[l], b = cross_[l];
    const double total = a[width_ * width_ - 1];
    for (std::size_t i = 0; i + 1 < width_; ++i) a[i * width_ + i] += ridge_ + 1e-9 * total;
    solve_cholesky(a, b, width_, k);
    for (std::size_t o = 0; o < k; ++o) {
      for (std::size_t i = 0; i < width_; ++i) slope(l, o)[i] = static_cast<float>(b[i * k + o]);
      float low = targets_.value[begin * k + o], high = low;
      for (std::size_t p = begin; p < end; ++p) {
        low = std::min(low, targets_.value[p * k + o]);
        high = std::max(high, targets_.value[p * k + o]);
      }
      lower(l)[o] = low;
      upper(l)[o] = high;
    }
  }

  Targets targets_;
  std::shared_ptr<const Rows> kept_;  // rows of the leaves' own, where they have them
  View<Rows> view_;
  std::size_t width_;  // columns and the constant
  double ridge_;
  std::size_t row_size_;
  std::vector<std::vector<double>> gram_, cross_;
  Aligned<float> slope_;
  std::vector<float> bound_, overall_;
  std::vector<std::int32_t> where_;  // leaf of each original row at the last fit
  std::vector<std::uint32_t> order_;
};

}  // namespace silva
