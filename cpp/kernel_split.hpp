// The split of a node of a crisp kernel tree, and at a random threshold of any, one column at a
// time.
//
// Rows are sorted by their bins and added up; a gain needs one sum of coordinates, centred at the
// node, as single precision misstates it otherwise. Rows of the fullest bin are never visited: one
// scan comes from the left and one from the right, and they meet there.
#pragma once

#include "kernel_node.hpp"

namespace silva {

// Where a node lies: rows are cut at these ends. Empty in a crisp tree.
struct Box {
  std::vector<double> low, high;
};

class CrispSearch {
 public:
  KernelSplit split(const KernelNode& node, std::int32_t feature) {
    members_.sort(node, feature);
    const std::size_t groups = members_.groups();
    KernelSplit best;
    if (groups < 2) return best;
    gain_.assign(groups - 1, -1.0);  // of a cut after each group
    scan(node, members_.fullest, false);
    scan(node, groups - 1 - members_.fullest, true);
    for (std::size_t g = 0; g + 1 < groups; ++g)
      if (gain_[g] >= 0 && gains_more(gain_[g], best.gain)) {
        best.gain = gain_[g];
        best.bin = members_.bin[g];
      }
    best.feature = feature;
    return best;
  }

 private:
  // Adds groups up from one end of the column.
  void scan(const KernelNode& node, std::size_t count, bool from_right) {
    if (count == 0) return;
    const std::size_t groups = members_.groups();
    const auto group = [&](std::size_t s) { return from_right ? groups - 1 - s : s; };
    if (from_right) {
      std::reverse(members_.order.begin() + members_.end[members_.fullest], members_.order.end());
      end_.resize(count);
      for (std::size_t s = 0; s < count; ++s)
        end_[s] = members_.end[groups - 1] - members_.begin(group(s));
    } else {
      end_.assign(members_.end.begin(), members_.end.begin() + static_cast<std::ptrdiff_t>(count));
    }
    const KernelRows& rows = node.rows();
    const std::uint32_t* order =
        members_.order.data() + (from_right ? members_.end[members_.fullest] : 0);
    const auto norms = [&](std::size_t begin, std::size_t width, std::vector<double>& norm) {
      norm.assign(count, 0.0);
      simd().sweeps.norms(node.centred() + begin, rows.stride, width, order, end_.data(), count,
                          norm.data());
    };
    norms(0, rows.coordinate_width, coordinates_);
    norms(rows.coordinate_width, node.labelled().empty() ? 0 : rows.target_width, targets_);
    double mass = 0, labelled = 0;
    std::size_t labelled_rows = 0;
    for (std::size_t s = 0; s < count; ++s) {
      mass += members_.mass[group(s)];
      labelled += members_.labelled[group(s)];
      labelled_rows += members_.labelled_rows[group(s)];
      if (node.may_count(end_[s], labelled_rows))
        gain_[from_right ? group(s) - 1 : s] =
            node.gain(mass, labelled, coordinates_[s], targets_[s]);
    }
  }

  BinnedMembers members_;
  std::vector<std::uint32_t> end_;
  std::vector<double> gain_, coordinates_, targets_;
};

// One threshold, drawn between the smallest and the largest value of the node.
class RandomThreshold {
 public:
  KernelSplit split(const KernelNode& node, std::int32_t feature, const Box& box,
                    const KernelShape& shape, Random& random) {
    const KernelRows& rows = node.rows();
    const auto j = static_cast<std::size_t>(feature);
    const double *value = rows.column(feature), h = rows.bandwidth[j];
    value_.resize(node.count());
    double low = value[node.row(0)], high = low;
    for (std::size_t i = 0; i < node.count(); ++i) {
      value_[i] = value[node.row(i)];
      low = std::min(low, value_[i]);
      high = std::max(high, value_[i]);
    }
    if (h > 0) {
      low = std::max(low, box.low[j]);
      high = std::min(high, box.high[j]);
    }
    KernelSplit found;
    if (!(low < high)) return found;
    found.threshold = low + random.uniform() * (high - low);
    if (rows.single) found.threshold = static_cast<double>(static_cast<float>(found.threshold));
    if (!(found.threshold > low) || !(found.threshold <= high)) found.threshold = high;

    if (h > 0)
      found.gain = fuzzy_gain(node, feature, found.threshold, box, shape);
    else
      found.gain = crisp_gain(node, found.threshold);
    found.feature = feature;
    return found;
  }

 private:
  double crisp_gain(const KernelNode& node, double threshold) {
    const KernelRows& rows = node.rows();
    place_.resize(node.count() + 1);
    std::uint32_t count = 0;
    double mass = 0, labelled = 0;
    for (std::size_t i = 0; i < node.count(); ++i) {
      const bool left = value_[i] < threshold;
      place_[count] = static_cast<std::uint32_t>(i);
      count += left;
      mass += left ? node.mass(i) : 0.0;
    }
    std::size_t labelled_rows = 0;
    for (std::uint32_t i : node.labelled()) {
      const bool left = value_[i] < threshold;
      labelled += left ? node.mass(i) : 0.0;
      labelled_rows += left;
    }
    if (!node.may_cut(mass) || !node.may_count(count, labelled_rows)) return -1;
    const auto norm = [&](std::size_t begin, std::size_t width) {
      double square = 0;
      simd().sweeps.norms(node.centred() + begin, rows.stride, width, place_.data(), &count, 1,
                          &square);
      return square;
    };
    return node.gain(mass, labelled, norm(0, rows.coordinate_width),
                     norm(rows.coordinate_width, node.labelled().empty() ? 0 : rows.target_width));
  }

  double fuzzy_gain(const KernelNode& node, std::int32_t feature, double threshold, const Box& box,
                    const KernelShape& shape) {
    const KernelRows& rows = node.rows();
    const auto j = static_cast<std::size_t>(feature);
    const double h = rows.bandwidth[j];
    place_.clear();
    share_.clear();
    double mass = 0, labelled = 0;
    for (std::size_t i = 0; i < node.count(); ++i) {
      const double x = rows.column(feature)[node.row(i)];
      const double share = left_share(shape.below(box.low[j], x, h), shape.below(box.high[j], x, h),
                                      shape.below(threshold, x, h), 1);
      if (share == 0) continue;
      place_.push_back(static_cast<std::uint32_t>(i));
      share_.push_back(static_cast<float>(share));
      mass += share * node.mass(i);
      if (rows.labelled[node.row(i)]) labelled += share * node.mass(i);
    }
    sum_.assign(rows.stride, 0.0);
    simd().combine_f32(node.centred(), rows.stride, place_.data(), share_.data(), place_.size(), 0,
                       rows.stride, sum_.data());
    const auto square = [&](std::size_t begin, std::size_t end) {
      double total = 0;
      for (std::size_t k = begin; k < end; ++k) total += sum_[k] * sum_[k];
      return total;
    };
    return node.gain(mass, labelled, square(0, rows.coordinate_width),
                     square(rows.coordinate_width, rows.stride));
  }

  std::vector<std::uint32_t> place_;
  std::vector<float> share_;
  std::vector<double> value_, sum_;
};

}  // namespace silva
