// A node of a kernel tree while its split is sought, and what a split of it gains.
//
// The loss of a tree is (kernel tree paper, section 3.1)
//
//   1/n sum over leaves of  m ( w Var{y} + (1 - w) Var{z} ),
//
// m the mass of all rows of the leaf, y targets of its labelled rows, z coordinates of all of them,
// both scaled so that their variances at the root are one (class indicators: Var is Gini's
// impurity). A split that sends masses m_L and m_R, of which l_L and l_R are labelled, lowers it by
//
//   m/n ( w |sum_L (y - mean)|^2 / (l_L l_R) + (1 - w) |sum_L (z - mean)|^2 / (m_L m_R) ),
//
// where the first part is the decrease of the variance among the labelled rows, by labelled mass,
// counted for the whole mass of the node: gains are never negative, even where the sides differ in
// their labelled shares. It is 0 where a side has no labelled row: such a leaf is thought to be as
// impure as its parent.
#pragma once

#include <numeric>

#include "kernel_rows.hpp"
#include "kernel_shape.hpp"
#include "random.hpp"
#include "simd.hpp"

namespace silva {

struct GrowthLimits {
  double supervision, ccp_alpha, min_weight_leaf;
  std::size_t min_rows_leaf, min_labelled_leaf;  // counted; of crisp trees only
  bool stop_pure;                                // leave nodes alone whose labels agree
  std::size_t max_depth, max_leaf_nodes;         // 2^62 where there is no limit
  std::size_t max_features, max_tries;           // columns of a draw, and of all draws at a node
  bool random_thresholds, exact;
  std::size_t max_candidates;  // thresholds of a column that exact fuzzy growth looks at
};

// Rows at a node with the mass that each has there.
struct Members {
  std::vector<std::uint32_t> row;
  std::vector<double> mass;
};

struct KernelSplit {
  double gain = -1;
  std::int32_t feature = -1;
  double threshold = 0;
  int bin = -1;  // rows up to this bin go left, where the threshold is still to be found
};

// Ties are common, and rounding must not decide them: the first one wins.
inline bool gains_more(double gain, double best) { return gain > best + 1e-6 * std::fabs(best); }

class KernelNode {
 public:
  KernelNode(const KernelRows& rows, const GrowthLimits& limits, double root_mass)
      : rows_(rows), limits_(limits), root_mass_(root_mass), mean_(rows.stride) {}

  void describe(const Members& members) {
    row_ = members.row.data();
    mass_ = members.mass.data();
    count_ = members.row.size();
    total_ = labelled_total_ = 0;
    labelled_.clear();
    bool unit = true;
    single_mass_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i) {
      total_ += mass_[i];
      unit &= mass_[i] == 1;
      single_mass_[i] = static_cast<float>(mass_[i]);
      if (!rows_.labelled[row_[i]]) continue;
      labelled_total_ += mass_[i];
      labelled_.push_back(static_cast<std::uint32_t>(i));
    }
    unit_ = unit;
    centre();
  }

  std::size_t count() const { return count_; }
  std::uint32_t row(std::size_t i) const { return row_[i]; }
  double mass(std::size_t i) const { return mass_[i]; }
  double total() const { return total_; }
  double labelled_total() const { return labelled_total_; }
  bool unit() const { return unit_; }  // all masses are one
  const std::vector<std::uint32_t>& labelled() const { return labelled_; }
  const float* centred() const { return centred_.data(); }  // mass times distance to the mean
  const KernelRows& rows() const { return rows_; }
  const GrowthLimits& limits() const { return limits_; }

  // What the node adds to the loss: no split gains more.
  double loss() const {
    return (limits_.supervision * target_square_ / std::max(labelled_total_, 1e-300) * total_ +
            (1 - limits_.supervision) * coordinate_square_) /
           root_mass_;
  }
  // Whether all labelled rows have the same targets, so that no split changes an answer.
  bool labels_agree() const {
    const std::size_t width = rows_.coordinate_width, size = rows_.target_width;
    return std::all_of(labelled_.begin(), labelled_.end(), [&](std::uint32_t i) {
      const float* target = rows_.row(row_[i]) + width;
      return std::equal(target, target + size, rows_.row(row_[labelled_[0]]) + width);
    });
  }
  // Whether a side may have so many rows, of which so many are labelled.
  bool may_count(std::size_t rows, std::size_t labelled) const {
    return rows >= limits_.min_rows_leaf && count_ - rows >= limits_.min_rows_leaf &&
           labelled >= limits_.min_labelled_leaf &&
           labelled_.size() - labelled >= limits_.min_labelled_leaf;
  }
  bool may_cut(double mass) const {
    const double least = limits_.min_weight_leaf * (1 - 1e-9);
    return mass >= least && total_ - mass >= least;
  }
  // Of a side with these masses and squared lengths of its sums; -1 where it is not allowed.
  double gain(double mass, double labelled, double coordinates, double targets) const {
    if (!may_cut(mass) || mass <= 0 || mass >= total_) return -1;
    double gain = (1 - limits_.supervision) * coordinates / (mass * (total_ - mass));
    const double other = labelled_total_ - labelled, least = 1e-9 * labelled_total_;
    if (labelled > least && other > least)
      gain += limits_.supervision * targets / (labelled * other);
    return gain * total_ / root_mass_;
  }

 private:
  static constexpr std::size_t kFewRows = 32;

  void centre() {
    const std::size_t width = rows_.coordinate_width, stride = rows_.stride;
    std::fill(mean_.begin(), mean_.end(), 0.0);
    // Where a node has few rows, two columns often part them alike: sums in double precision make
    // the gains of both the same.
    if (count_ <= kFewRows)
      for (std::size_t i = 0; i < count_; ++i)
        for (std::size_t j = 0; j < width; ++j)
          mean_[j] += mass_[i] * static_cast<double>(rows_.row(row_[i])[j]);
    else if (width > 0)
      simd().combine_f32(rows_.source.data(), stride, row_, single_mass_.data(), count_, 0, width,
                         mean_.data());
    for (std::size_t j = 0; j < width; ++j) mean_[j] /= total_;
    for (std::uint32_t i : labelled_)
      for (std::size_t j = width; j < stride; ++j)
        mean_[j] += mass_[i] * static_cast<double>(rows_.row(row_[i])[j]);
    for (std::size_t j = width; j < stride; ++j) mean_[j] /= std::max(labelled_total_, 1e-300);

    // Two floats hold a mean: the rows of a small node are close together, far from the origin.
    single_mean_.assign(mean_.begin(), mean_.end());
    mean_rest_.resize(stride);
    for (std::size_t j = 0; j < stride; ++j)
      mean_rest_[j] = static_cast<float>(mean_[j] - static_cast<double>(single_mean_[j]));
    centred_.resize(count_ * stride);
    const bool all_known = labelled_.size() == count_;
    if (!all_known && stride > width)
      for (std::size_t i = 0; i < count_; ++i)
        std::fill_n(centred_.begin() + static_cast<std::ptrdiff_t>(i * stride + width),
                    stride - width, 0.0f);
    coordinate_square_ = target_square_ = 0;
    const auto part = [&](std::size_t begin, std::size_t size, const std::uint32_t* place,
                          std::size_t count, double* square) {
      simd().sweeps.centre(rows_.source.data() + begin, stride, size, row_, place, count,
                           single_mass_.data(), single_mean_.data() + begin,
                           mean_rest_.data() + begin, centred_.data() + begin, square);
    };
    part(0, width, nullptr, count_, &coordinate_square_);
    part(width, stride - width, labelled_.data(), labelled_.size(), &target_square_);
  }

  const KernelRows& rows_;
  const GrowthLimits& limits_;
  double root_mass_;
  const std::uint32_t* row_ = nullptr;
  const double* mass_ = nullptr;
  std::size_t count_ = 0;
  double total_ = 0, labelled_total_ = 0, coordinate_square_ = 0, target_square_ = 0;
  bool unit_ = true;
  std::vector<std::uint32_t> labelled_;  // places in the node
  std::vector<float> single_mass_, single_mean_, mean_rest_;
  std::vector<double> mean_;
  Aligned<float> centred_;
};

// ---- rows in the order of a column --------------------------------------------------------------

// The rows of a node grouped by the bins of one column, in ascending order.
struct BinnedMembers {
  std::vector<std::uint32_t> order;  // places in the node
  std::vector<std::uint32_t> end;    // of each group in `order`
  std::vector<int> bin;              // of each group
  std::vector<double> mass, labelled;
  std::vector<std::uint32_t> labelled_rows;  // zeros where no limit asks for them
  std::size_t fullest = 0;

  std::size_t groups() const { return bin.size(); }
  std::uint32_t begin(std::size_t group) const { return group == 0 ? 0 : end[group - 1]; }

  void sort(const KernelNode& node, std::int32_t feature) {
    const std::uint8_t* code = node.rows().codes(feature);
    const std::size_t bins = node.rows().centre[static_cast<std::size_t>(feature)].size();
    const std::size_t n = node.count();
    order.resize(n);
    code_.resize(n);
    for (std::size_t i = 0; i < n; ++i) code_[i] = code[node.row(i)];
    end.clear();
    bin.clear();
    if (n <= kFew && n < bins)
      sort_few(n);
    else
      sort_many(n, bins);
    weigh(node);
    fullest = 0;
    for (std::size_t g = 1; g < groups(); ++g)
      if (end[g] - begin(g) > end[fullest] - begin(fullest)) fullest = g;
  }

 private:
  static constexpr std::size_t kFew = 24;

  void sort_few(std::size_t n) {  // by insertion
    std::uint32_t key[kFew];
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t mine =
          static_cast<std::uint32_t>(code_[i]) << 8 | static_cast<std::uint32_t>(i);
      std::size_t at = i;
      for (; at > 0 && key[at - 1] > mine; --at) key[at] = key[at - 1];
      key[at] = mine;
    }
    for (std::size_t i = 0; i < n; ++i) {
      order[i] = key[i] & 255;
      const int code = static_cast<int>(key[i] >> 8);
      if (bin.empty() || bin.back() != code) {
        bin.push_back(code);
        end.push_back(0);
      }
      end.back() = static_cast<std::uint32_t>(i + 1);
    }
  }
  void sort_many(std::size_t n, std::size_t bins) {  // by counting
    std::uint32_t place[256];
    std::fill_n(place, bins, 0u);
    for (std::size_t i = 0; i < n; ++i) ++place[code_[i]];
    std::uint32_t before = 0;
    for (std::size_t b = 0; b < bins; ++b) {
      const std::uint32_t here = place[b];
      place[b] = before;
      before += here;
      if (here == 0) continue;
      bin.push_back(static_cast<int>(b));
      end.push_back(before);
    }
    if (groups() > 1)
      for (std::size_t i = 0; i < n; ++i) order[place[code_[i]]++] = static_cast<std::uint32_t>(i);
  }
  void weigh(const KernelNode& node) {
    mass.resize(groups());
    labelled.assign(groups(), 0.0);
    labelled_rows.assign(groups(), 0u);
    if (groups() < 2) return;
    for (std::size_t g = 0; g < groups(); ++g) group_[bin[g]] = static_cast<std::uint32_t>(g);
    if (node.unit()) {
      for (std::size_t g = 0; g < groups(); ++g) mass[g] = static_cast<double>(end[g] - begin(g));
    } else {
      std::fill(mass.begin(), mass.end(), 0.0);
      for (std::size_t i = 0; i < node.count(); ++i) mass[group_[code_[i]]] += node.mass(i);
    }
    if (node.labelled().size() == node.count())
      labelled = mass;
    else
      for (std::uint32_t i : node.labelled()) labelled[group_[code_[i]]] += node.mass(i);
    if (node.limits().min_labelled_leaf > 0)
      for (std::uint32_t i : node.labelled()) ++labelled_rows[group_[code_[i]]];
  }

  std::vector<std::uint8_t> code_;
  std::uint32_t group_[256];
};

}  // namespace silva
