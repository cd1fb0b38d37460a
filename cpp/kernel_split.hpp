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
  // Most columns that are worth looking at together: what they add up is then read from the cache.
  static std::size_t together(const KernelNode& node) {
    constexpr std::size_t kColumns = 8, kCache = 1 << 18;  // floats
    const bool is_large = node.count() * node.rows().stride > kCache;
    return is_large && node.rows().coordinate_width > kBlock ? kColumns : 1;
  }

  // Of some columns, the best split of each.
  void split(const KernelNode& node, const std::int32_t* feature, std::size_t columns,
             KernelSplit* best) {
    if (column_.size() < columns) column_.resize(columns);
    for (std::size_t c = 0; c < columns; ++c) column_[c].sort(node, feature[c]);
    const std::size_t width = node.rows().coordinate_width;
    const std::size_t block = columns > 1 ? kBlock : width;
    for (std::size_t begin = 0; begin < width; begin += block)
      for (std::size_t c = 0; c < columns; ++c)
        column_[c].add(node, begin, std::min(block, width - begin));
    for (std::size_t c = 0; c < columns; ++c) {
      best[c] = column_[c].best(node);
      best[c].feature = feature[c];
    }
  }

 private:
  static constexpr std::size_t kBlock = 64;  // coordinates that the loops below take at a time

  // Groups of a column added up from one of its ends.
  struct Scan {
    const std::uint32_t* order = nullptr;
    std::vector<std::uint32_t> end;
    std::vector<double> coordinates, targets;  // squared lengths of the sums

    void add(const KernelNode& node, std::size_t begin, std::size_t width,
             std::vector<double>& norm) {
      if (!end.empty())
        simd().sweeps.norms(node.centred() + begin, node.rows().stride, width, order, end.data(),
                            end.size(), norm.data());
    }
  };

  class Column {
   public:
    void sort(const KernelNode& node, std::int32_t feature) {
      members_.sort(node, feature);
      const std::size_t groups = members_.groups();
      const std::size_t before = members_.fullest, after = groups - 1 - before;
      scan_[0].end.assign(members_.end.begin(), members_.end.begin() + offset(before));
      scan_[0].order = members_.order.data();
      const std::uint32_t first = members_.end[before], last = members_.end[groups - 1];
      scan_[1].end.resize(after);
      for (std::size_t s = 0; s < after; ++s)
        scan_[1].end[s] = last - members_.begin(groups - 1 - s);
      if (after > 0) std::reverse(members_.order.begin() + first, members_.order.end());
      scan_[1].order = members_.order.data() + first;
      for (Scan& scan : scan_) {
        scan.coordinates.assign(scan.end.size(), 0.0);
        scan.targets.assign(scan.end.size(), 0.0);
      }
    }

    void add(const KernelNode& node, std::size_t begin, std::size_t width) {
      for (Scan& scan : scan_) scan.add(node, begin, width, scan.coordinates);
    }

    KernelSplit best(const KernelNode& node) {
      const KernelRows& rows = node.rows();
      KernelSplit best;
      if (members_.groups() < 2) return best;
      gain_.assign(members_.groups() - 1, -1.0);  // of a cut after each group
      for (int right = 0; right < 2; ++right) {
        if (!node.labelled().empty())
          scan_[right].add(node, rows.coordinate_width, rows.target_width, scan_[right].targets);
        weigh(node, scan_[right], right == 1);
      }
      for (std::size_t g = 0; g < gain_.size(); ++g)
        if (gain_[g] >= 0 && gains_more(gain_[g], best.gain)) {
          best.gain = gain_[g];
          best.bin = members_.bin[g];
        }
      return best;
    }

   private:
    static std::ptrdiff_t offset(std::size_t n) { return static_cast<std::ptrdiff_t>(n); }

    void weigh(const KernelNode& node, const Scan& scan, bool from_right) {
      const std::size_t groups = members_.groups();
      double mass = 0, labelled = 0;
      std::size_t labelled_rows = 0;
      for (std::size_t s = 0; s < scan.end.size(); ++s) {
        const std::size_t group = from_right ? groups - 1 - s : s;
        mass += members_.mass[group];
        labelled += members_.labelled[group];
        labelled_rows += members_.labelled_rows[group];
        if (node.may_count(scan.end[s], labelled_rows))
          gain_[from_right ? group - 1 : s] =
              node.gain(mass, labelled, scan.coordinates[s], scan.targets[s]);
      }
    }

    BinnedMembers members_;
    Scan scan_[2];  // from the left and from the right
    std::vector<double> gain_;
  };

  std::vector<Column> column_;
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
