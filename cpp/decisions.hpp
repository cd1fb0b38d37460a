// The decision nodes of a tree in training: their planes, and where these send points.
#pragma once

#include "leaves.hpp"

namespace silva {

// left and right children, -1 at a leaf; depth first, a left child follows its parent.
struct Structure {
  std::vector<std::int32_t> left, right;

  std::size_t size() const { return left.size(); }
  bool is_leaf(std::size_t node) const { return left[node] < 0; }
};

template <class Rows>
class Decisions {
 public:
  // A plane written out, for one thread.
  struct Scratch {
    std::vector<float> spread;  // over sparse rows; zero between uses
    Aligned<float> dense;       // over dense rows, in storage units
  };

  Decisions(const Rows& rows, Structure structure)
      : rows_(rows), structure_(std::move(structure)), planes_(structure_.size()) {
    const std::size_t n = structure_.size();
    settled_.resize(n);
    std::vector<int> depth(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      if (structure_.is_leaf(i)) continue;
      for (std::int32_t child : {structure_.left[i], structure_.right[i]})
        depth[static_cast<std::size_t>(child)] = depth[i] + 1;
      levels_ = std::max(levels_, depth[i] + 1);
    }
    if constexpr (!Rows::kSparse) {
      weights_.assign(n * rows_.stride, 0.0f);
      bias_.assign(n, 0.0f);
      child_.resize(2 * n);
      for (std::size_t i = 0; i < n; ++i) {
        const bool leaf = structure_.is_leaf(i);
        child_[2 * i] = leaf ? static_cast<std::int32_t>(i) : structure_.left[i];
        child_[2 * i + 1] = leaf ? static_cast<std::int32_t>(i) : structure_.right[i];
      }
    }
  }

  const Structure& structure() const { return structure_; }
  const std::vector<Plane>& planes() const { return planes_; }

  void set(std::size_t node, Plane plane) {
    if constexpr (!Rows::kSparse) {
      write_dense(plane, weights_.data() + node * rows_.stride);
      bias_[node] = plane.bias;
    }
    planes_[node] = std::move(plane);
  }

  // Learns at which nodes walks may stop: where all leaves below charge the same.
  void settle(const LossTable& table) {
    if (!table.kind) return;
    const std::size_t kinds = table.kinds, n = structure_.size();
    constexpr float kOpen = std::numeric_limits<float>::infinity();
    charge_.resize(n * kinds);                             // of every leaf below a node, or kOpen
    const float* next = table.loss + (n + 1) / 2 * kinds;  // the leaves from the last to the first
    for (std::size_t i = n; i-- > 0;) {
      float* here = charge_.data() + i * kinds;
      settled_[i] = ~std::uint64_t{0};
      if (structure_.is_leaf(i)) {
        next -= kinds;
        std::copy_n(next, kinds, here);
        continue;
      }
      const float* left = charge_.data() + static_cast<std::size_t>(structure_.left[i]) * kinds;
      const float* right = charge_.data() + static_cast<std::size_t>(structure_.right[i]) * kinds;
      for (std::size_t k = 0; k < kinds; ++k) {
        here[k] = left[k] == right[k] ? left[k] : kOpen;
        if (here[k] == kOpen) settled_[i] &= ~(std::uint64_t{1} << k % 64);
      }
    }
  }

  // The leaf nodes that the points in some slots reach from `node`. Given the points' kinds, a walk
  // ends where the loss is settled.
  void walk(const View<Rows>& view, const std::uint32_t* slot, std::size_t count, std::int32_t node,
            const std::uint8_t* kind, std::int32_t* reached, Scratch& scratch) const {
    if constexpr (Rows::kSparse) {
      std::vector<std::uint32_t> list(count);
      for (std::size_t i = 0; i < count; ++i) list[i] = static_cast<std::uint32_t>(i);
      scratch.spread.resize(rows_.d, 0.0f);
      walk_sparse(slot, list, node, kind, reached, scratch.spread);
    } else {
      const DenseTree<float> tree{child_.data(), weights_.data(), bias_.data(),
                                  rows_.stride,  levels_,         settled_.data()};
      simd().rows<typename Rows::Value>().route(tree, view.data, rows_.stride, slot, count, node,
                                                kind, reached);
    }
  }

  // Whether a plane sends the points in some slots to the right.
  void sides(const Plane& plane, const View<Rows>& view, const std::uint32_t* slot,
             std::size_t count, char* right, Scratch& scratch) const {
    if (plane.index.empty()) {
      std::fill(right, right + count, plane.bias >= 0);
    } else if constexpr (Rows::kSparse) {
      scratch.spread.resize(rows_.d, 0.0f);
      write_out(plane, scratch.spread);
      for (std::size_t i = 0; i < count; ++i)
        right[i] = score(slot[i], scratch.spread, plane.bias) >= 0;
      wipe(plane, scratch.spread);
    } else {
      scratch.dense.resize(rows_.stride);
      write_dense(plane, scratch.dense.data());
      simd().rows<typename Rows::Value>().sides(view.data, rows_.stride, slot, count,
                                                scratch.dense.data(), plane.bias, right);
    }
  }

 private:
  void write_dense(const Plane& plane, float* row) const {
    std::fill(row, row + rows_.stride, 0.0f);
    for (std::size_t k = 0; k < plane.index.size(); ++k) {
      const auto j = static_cast<std::size_t>(plane.index[k]);
      row[j] = plane.value[k] * rows_.unit[j];
    }
  }

  // Sparse rows: a plane is written out once for all points that reach its node.
  void walk_sparse(const std::uint32_t* slot, const std::vector<std::uint32_t>& list,
                   std::int32_t node, const std::uint8_t* kind, std::int32_t* reached,
                   std::vector<float>& spread) const {
    if (list.empty()) return;
    for (std::uint32_t i : list) reached[i] = node;
    const auto at = static_cast<std::size_t>(node);
    if (structure_.is_leaf(at)) return;
    const Plane& plane = planes_[at];
    write_out(plane, spread);
    std::vector<std::uint32_t> left, right;
    for (std::uint32_t i : list) {
      if (kind && (settled_[at] >> kind[i] & 1)) continue;
      (score(slot[i], spread, plane.bias) >= 0 ? right : left).push_back(i);
    }
    wipe(plane, spread);
    walk_sparse(slot, left, structure_.left[at], kind, reached, spread);
    walk_sparse(slot, right, structure_.right[at], kind, reached, spread);
  }
  float score(std::size_t slot, const std::vector<float>& spread, float bias) const {
    float total = bias;
    for (std::int64_t e = rows_.begin[slot]; e < rows_.begin[slot + 1]; ++e)
      total += spread[static_cast<std::size_t>(rows_.index[e])] * rows_.value[e];
    return total;
  }
  static void write_out(const Plane& plane, std::vector<float>& spread) {
    for (std::size_t k = 0; k < plane.index.size(); ++k)
      spread[static_cast<std::size_t>(plane.index[k])] = plane.value[k];
  }
  static void wipe(const Plane& plane, std::vector<float>& spread) {
    for (std::int32_t j : plane.index) spread[static_cast<std::size_t>(j)] = 0;
  }

  const Rows& rows_;
  Structure structure_;
  int levels_ = 0;
  std::vector<Plane> planes_;
  Aligned<float> weights_;  // dense planes in storage units
  std::vector<float> bias_;
  std::vector<std::int32_t> child_;
  std::vector<std::uint64_t> settled_;  // node -> bits of the kinds whose loss is known there
  std::vector<float> charge_;
};

}  // namespace silva
