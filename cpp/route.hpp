// Routing in the user's units: where a fitted tree sends rows it may never have seen.
#pragma once

#include "tao.hpp"

namespace silva {

// A fitted tree: right when coefficients . x >= threshold; planes are CSR rows.
struct FittedTree {
  std::size_t nodes, features;
  const std::int32_t* left;
  const std::int32_t* right;
  const std::int32_t* plane_begin;
  const std::int32_t* index;
  const double* coefficient;
  const double* threshold;

  int depth() const {
    std::vector<int> depth(nodes, 0);
    int deepest = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
      if (left[i] < 0) continue;
      depth[static_cast<std::size_t>(left[i])] = depth[static_cast<std::size_t>(right[i])] =
          depth[i] + 1;
      deepest = std::max(deepest, depth[i] + 1);
    }
    return deepest;
  }
};

// Dense rows: planes are written out unless they are so sparse that picking is cheaper. A picked
// value costs about as much as thirty in a row.
template <class Real>
void route_dense(const FittedTree& tree, const Real* x, std::size_t n, std::int32_t* leaf,
                 Team& team) {
  const std::size_t d = tree.features;
  const std::size_t stored = static_cast<std::size_t>(tree.plane_begin[tree.nodes]);
  if (d > 64 && stored * 32 < tree.nodes / 2 * d) {
    for_pieces(team, n, 1024, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t i = begin; i < end; ++i) {
        const Real* row = x + i * d;
        std::size_t node = 0;
        while (tree.left[node] >= 0) {
          double score = -tree.threshold[node];
          for (std::int32_t e = tree.plane_begin[node]; e < tree.plane_begin[node + 1]; ++e)
            score += tree.coefficient[e] * static_cast<double>(row[tree.index[e]]);
          node = static_cast<std::size_t>(score >= 0 ? tree.right[node] : tree.left[node]);
        }
        leaf[i] = static_cast<std::int32_t>(node);
      }
    });
    return;
  }
  const std::size_t stride = round_up(std::max<std::size_t>(d, 1), 8);
  Aligned<Real> weights(tree.nodes * stride, Real(0));
  std::vector<Real> bias(tree.nodes);
  std::vector<std::int32_t> child(2 * tree.nodes);
  for (std::size_t i = 0; i < tree.nodes; ++i) {
    const bool is_leaf = tree.left[i] < 0;
    child[2 * i] = is_leaf ? static_cast<std::int32_t>(i) : tree.left[i];
    child[2 * i + 1] = is_leaf ? static_cast<std::int32_t>(i) : tree.right[i];
    bias[i] = static_cast<Real>(-tree.threshold[i]);
    for (std::int32_t e = tree.plane_begin[i]; e < tree.plane_begin[i + 1]; ++e)
      weights[i * stride + static_cast<std::size_t>(tree.index[e])] =
          static_cast<Real>(tree.coefficient[e]);
  }
  const DenseTree<Real> dense{child.data(), weights.data(), bias.data(), stride, tree.depth()};
  for_pieces(team, n, 4096, [&](std::size_t begin, std::size_t end, int) {
    const auto walk = [&](const Real* rows, std::size_t count, std::int32_t* out) {
      simd().rows<Real>().route(dense, rows, stride, nullptr, count, 0, nullptr, out);
    };
    if (stride == d) {
      walk(x + begin * d, end - begin, leaf + begin);
      return;
    }
    constexpr std::size_t kGroup = 512;  // rows padded to whole vectors, a few at a time
    Aligned<Real> padded(kGroup * stride, Real(0));
    for (std::size_t i = begin; i < end; i += kGroup) {
      const std::size_t size = std::min(kGroup, end - i);
      for (std::size_t k = 0; k < size; ++k)
        std::copy_n(x + (i + k) * d, d, padded.begin() + static_cast<std::ptrdiff_t>(k * stride));
      walk(padded.data(), size, leaf + i);
    }
  });
}

// Sparse rows: at each node the plane is written out once for all rows that reach it.
template <class Real, class Index>
class SparseRouter {
 public:
  SparseRouter(const FittedTree& tree, const Index* begin, const Index* index, const Real* value)
      : tree_(tree), begin_(begin), index_(index), value_(value) {}

  void route(std::size_t n, std::int32_t* leaf, Team& team) const {
    for_pieces(team, n, 16384, [&](std::size_t from, std::size_t to, int) {
      std::vector<std::size_t> rows(to - from);
      for (std::size_t k = 0; k < rows.size(); ++k) rows[k] = from + k;
      std::vector<double> spread(tree_.features, 0.0);
      walk(0, rows, leaf, spread);
    });
  }

 private:
  void walk(std::size_t node, const std::vector<std::size_t>& rows, std::int32_t* leaf,
            std::vector<double>& spread) const {
    if (rows.empty()) return;
    if (tree_.left[node] < 0) {
      for (std::size_t i : rows) leaf[i] = static_cast<std::int32_t>(node);
      return;
    }
    const auto plane = [&](auto&& use) {
      for (std::int32_t e = tree_.plane_begin[node]; e < tree_.plane_begin[node + 1]; ++e)
        use(static_cast<std::size_t>(tree_.index[e]), tree_.coefficient[e]);
    };
    plane([&](std::size_t j, double v) { spread[j] = v; });
    std::vector<std::size_t> left, right;
    for (std::size_t i : rows) {
      double score = -tree_.threshold[node];
      for (Index e = begin_[i]; e < begin_[i + 1]; ++e)
        score += spread[static_cast<std::size_t>(index_[e])] * static_cast<double>(value_[e]);
      (score >= 0 ? right : left).push_back(i);
    }
    plane([&](std::size_t j, double) { spread[j] = 0; });
    walk(static_cast<std::size_t>(tree_.left[node]), left, leaf, spread);
    walk(static_cast<std::size_t>(tree_.right[node]), right, leaf, spread);
  }

  const FittedTree& tree_;
  const Index* begin_;
  const Index* index_;
  const Real* value_;
};

}  // namespace silva
