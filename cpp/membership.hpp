// Memberships: the part of a row, spread by its kernel, that lies in each leaf of a tree.
//
// mu_leaf(x) = prod_j (F(b_j - x_j) - F(a_j - x_j)) over the leaf's box [a, b) (kernel tree paper,
// section 3.2), found on the way down: at a decision the row's part divides. Parts that would be
// less than kSmallestShare stay with the other side, so that the parts of a row add up to one.
#pragma once

#include "kernel_shape.hpp"
#include "parallel.hpp"

namespace silva {

// Axis-aligned decisions: a row seen at x goes right when x[feature] >= threshold.
struct AxisTree {
  const std::int32_t* left;
  const std::int32_t* right;
  const std::int32_t* feature;
  const double* threshold;
  const std::int32_t* leaf_index;  // of each node
};

class MembershipWalk {
 public:
  MembershipWalk(const AxisTree& tree, const KernelShape& shape, const double* bandwidth,
                 std::size_t columns)
      : tree_(tree),
        shape_(shape),
        bandwidth_(bandwidth),
        low_(columns, 0.0),
        high_(columns, 1.0) {}

  // use(leaf, part) for the leaves that have a part of the row, from left to right.
  template <class Use>
  void visit(const double* x, const Use& use) {
    walk(0, 1.0, x, use);
  }

 private:
  template <class Use>
  void walk(std::size_t node, double part, const double* x, const Use& use) {
    if (tree_.left[node] < 0) {
      use(tree_.leaf_index[node], part);
      return;
    }
    const auto j = static_cast<std::size_t>(tree_.feature[node]);
    const double below = shape_.below(tree_.threshold[node], x[j], bandwidth_[j]);
    const double share = left_share(low_[j], high_[j], below, part);
    const double low = low_[j], high = high_[j];
    if (share > 0) {
      high_[j] = below;
      walk(static_cast<std::size_t>(tree_.left[node]), share * part, x, use);
      high_[j] = high;
    }
    if (share < 1) {
      low_[j] = below;
      walk(static_cast<std::size_t>(tree_.right[node]), part - share * part, x, use);
      low_[j] = low;
    }
  }

  const AxisTree& tree_;
  const KernelShape& shape_;
  const double* bandwidth_;
  std::vector<double> low_, high_;  // masses below the ends of the node's interval, for this row
};

struct Memberships {
  std::vector<std::int64_t> begin;
  std::vector<std::int32_t> leaf;
  std::vector<double> part;
};

constexpr std::size_t kRowsAtATime = 256;

inline Memberships memberships(const AxisTree& tree, const KernelShape& shape,
                               const double* bandwidth, const double* x, std::size_t n,
                               std::size_t columns, Team& team) {
  std::vector<Memberships> piece((n + kRowsAtATime - 1) / kRowsAtATime);
  for_pieces(team, n, kRowsAtATime, [&](std::size_t begin, std::size_t end, int) {
    Memberships& mine = piece[begin / kRowsAtATime];
    MembershipWalk walk(tree, shape, bandwidth, columns);
    for (std::size_t i = begin; i < end; ++i) {
      walk.visit(x + i * columns, [&](std::int32_t leaf, double part) {
        mine.leaf.push_back(leaf);
        mine.part.push_back(part);
      });
      mine.begin.push_back(static_cast<std::int64_t>(mine.leaf.size()));
    }
  });
  Memberships all;
  all.begin.push_back(0);
  for (Memberships& part : piece) {
    const auto offset = static_cast<std::int64_t>(all.leaf.size());
    for (std::int64_t end : part.begin) all.begin.push_back(offset + end);
    all.leaf.insert(all.leaf.end(), part.leaf.begin(), part.leaf.end());
    all.part.insert(all.part.end(), part.part.begin(), part.part.end());
    part = Memberships{};
  }
  return all;
}

// sum over leaves of membership times value, rows by outputs.
inline std::vector<double> blend(const AxisTree& tree, const KernelShape& shape,
                                 const double* bandwidth, const double* x, std::size_t n,
                                 std::size_t columns, const double* value, std::size_t outputs,
                                 Team& team) {
  std::vector<double> answer(n * outputs, 0.0);
  for_pieces(team, n, kRowsAtATime, [&](std::size_t begin, std::size_t end, int) {
    MembershipWalk walk(tree, shape, bandwidth, columns);
    for (std::size_t i = begin; i < end; ++i)
      walk.visit(x + i * columns, [&](std::int32_t leaf, double part) {
        const double* from = value + static_cast<std::size_t>(leaf) * outputs;
        for (std::size_t k = 0; k < outputs; ++k) answer[i * outputs + k] += part * from[k];
      });
  });
  return answer;
}

}  // namespace silva
