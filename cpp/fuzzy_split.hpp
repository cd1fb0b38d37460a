// The split of a node of a fuzzy kernel tree: a threshold sends a share of each row left.
//
// A row seen at x that reached a node whose interval in this column is [a, b) sends
//   (F(t - x) - F(a - x)) / (F(b - x) - F(a - x))
// of its mass there left of t, F the kernel's distribution function.
#pragma once

#include "kernel_split.hpp"

namespace silva {

// Splits that only rounding makes look useful: a fuzzy row can be cut again and again.
constexpr double kLeastFuzzyGain = 1e-10;

// Rows of a bin count as seen at its centre: their sums are convolved with the kernel. Thresholds
// are tried midway between the centres of bins that have rows in the node.
class ConvolvedSearch {
 public:
  KernelSplit split(const KernelNode& node, std::int32_t feature, const Box& box,
                    const KernelShape& shape) {
    KernelSplit best;
    members_.sort(node, feature);
    if (members_.groups() < 2) return best;
    add_up(node);
    cut(node, feature, box, shape);
    const KernelRows& rows = node.rows();
    const auto norms = [&](std::size_t begin, std::size_t width, std::vector<double>& norm) {
      norm.assign(threshold_.size(), 0.0);
      simd().sweeps.banded(sums_.data() + begin, rows.stride, width, first_.data(), last_.data(),
                           share_.data(), threshold_.size(), norm.data());
    };
    norms(0, rows.coordinate_width, coordinates_);
    norms(rows.coordinate_width, node.labelled().empty() ? 0 : rows.target_width, targets_);
    for (std::size_t s = 0; s < threshold_.size(); ++s) {
      const double gain = node.gain(mass_[s], labelled_[s], coordinates_[s], targets_[s]);
      if (gain > kLeastFuzzyGain && gains_more(gain, best.gain)) {
        best.gain = gain;
        best.threshold = threshold_[s];
      }
    }
    best.feature = feature;
    return best;
  }

 private:
  // A row of sums for each group. Centred rows add up to nothing: the fullest group is what the
  // others lack.
  void add_up(const KernelNode& node) {
    const KernelRows& rows = node.rows();
    const std::size_t groups = members_.groups(), fullest = members_.fullest, stride = rows.stride;
    sums_.resize(groups * stride);
    const std::uint32_t skipped = members_.end[fullest] - members_.begin(fullest);
    const auto part = [&](std::size_t from, std::size_t to, std::uint32_t offset) {
      if (from == to) return;
      end_.clear();
      for (std::size_t g = from; g < to; ++g) end_.push_back(members_.end[g] - offset);
      simd().sweeps.segments(node.centred(), stride, stride, members_.order.data() + offset,
                             end_.data(), to - from, sums_.data() + from * stride);
    };
    part(0, fullest, 0);
    part(fullest + 1, groups, members_.begin(fullest) + skipped);
    float* rest = sums_.data() + fullest * stride;
    std::fill_n(rest, stride, 0.0f);
    for (std::size_t g = 0; g < groups; ++g)
      if (g != fullest)
        for (std::size_t j = 0; j < stride; ++j) rest[j] -= sums_[g * stride + j];
  }

  // Thresholds, and for each the groups [first, last) that it cuts with their shares on the left.
  void cut(const KernelNode& node, std::int32_t feature, const Box& box, const KernelShape& shape) {
    const auto j = static_cast<std::size_t>(feature);
    const auto& centres = node.rows().centre[j];
    const double h = node.rows().bandwidth[j], low = box.low[j], high = box.high[j];
    const std::size_t groups = members_.groups();
    centre_.resize(groups);
    below_low_.resize(groups);
    below_high_.resize(groups);
    for (std::size_t g = 0; g < groups; ++g) {
      centre_[g] = centres[static_cast<std::size_t>(members_.bin[g])];
      below_low_[g] = shape.below(low, centre_[g], h);
      below_high_[g] = shape.below(high, centre_[g], h);
    }
    threshold_.clear();
    first_.clear();
    last_.clear();
    share_.clear();
    mass_.clear();
    labelled_.clear();
    std::size_t first = 0;
    double whole = 0, whole_labelled = 0;
    for (std::size_t g = 0; g + 1 < groups; ++g) {
      const double threshold = centre_[g] / 2 + centre_[g + 1] / 2;
      if (!(threshold > low && threshold < high)) continue;
      for (; first < groups && centre_[first] + shape.reach() * h <= threshold; ++first) {
        whole += members_.mass[first];
        whole_labelled += members_.labelled[first];
      }
      double mass = whole, labelled = whole_labelled;
      std::size_t last = first;
      for (; last < groups && centre_[last] - shape.reach() * h < threshold; ++last) {
        const double share = left_share(below_low_[last], below_high_[last],
                                        shape.below(threshold, centre_[last], h), 1);
        share_.push_back(static_cast<float>(share));
        mass += share * members_.mass[last];
        labelled += share * members_.labelled[last];
      }
      threshold_.push_back(threshold);
      first_.push_back(static_cast<std::uint32_t>(first));
      last_.push_back(static_cast<std::uint32_t>(last));
      mass_.push_back(mass);
      labelled_.push_back(labelled);
    }
  }

  BinnedMembers members_;
  Aligned<float> sums_;
  std::vector<std::uint32_t> end_, first_, last_;
  std::vector<float> share_;
  std::vector<double> centre_, below_low_, below_high_, threshold_, mass_, labelled_;
  std::vector<double> coordinates_, targets_;
};

// Between two edges of the rows' kernels all sums are linear in the threshold: a slope changes at
// an edge. Thresholds are tried at the edges; where there are more than max_candidates, at a
// quarter of that many from either end, where outliers are, and at an even choice of the others.
class ExactSearch {
 public:
  KernelSplit split(const KernelNode& node, std::int32_t feature, const Box& box,
                    const KernelShape& shape) {
    const KernelRows& rows = node.rows();
    const auto j = static_cast<std::size_t>(feature);
    const double h = rows.bandwidth[j], low = box.low[j], high = box.high[j];
    const std::size_t width = rows.stride + 2;  // sums, mass, labelled mass
    KernelSplit best;
    best.feature = feature;
    sum_.assign(width, 0.0);
    slope_.assign(width, 0.0);
    event_.clear();
    for (std::size_t i = 0; i < node.count(); ++i) {
      const double x = rows.column(feature)[node.row(i)];
      const double inside = shape.below(high, x, h) - shape.below(low, x, h);
      if (!(inside > 0)) {  // all of it was sent here from the other side of an end
        if (x < high) add(node, i, 1, sum_);
        continue;
      }
      for (std::size_t k = 0; k <= shape.pieces(); ++k) {
        const double at = x + h * shape.edge(k), rise = shape.rise(k) / (h * inside);
        if (at <= low)
          add(node, i, rise, slope_);
        else if (at < high)
          event_.push_back({at, rise, static_cast<std::uint32_t>(i)});
      }
    }
    std::sort(event_.begin(), event_.end(), [](const Event& a, const Event& b) {
      return a.at < b.at || (a.at == b.at && a.place < b.place);
    });
    const std::size_t outer = node.limits().max_candidates / 4, events = event_.size();
    const std::size_t step = 1 + events / std::max<std::size_t>(2 * outer, 1);
    const auto is_outer = [&](std::size_t e) { return e < outer || e + outer >= events; };
    std::size_t next = 0;
    double last = std::isinf(low) ? (event_.empty() ? 0 : event_.front().at) : low;
    for (std::size_t e = 0; e < event_.size();) {
      const double at = event_[e].at;
      if (at > last)
        for (std::size_t k = 0; k < width; ++k) sum_[k] += (at - last) * slope_[k];
      last = at;
      if (e >= next || is_outer(e)) {
        next = e + (events <= 4 * outer ? 1 : step);
        const double gain = evaluate(node);
        if (gain > kLeastFuzzyGain && gains_more(gain, best.gain)) {
          best.gain = gain;
          best.threshold = at;
        }
      }
      for (; e < event_.size() && event_[e].at == at; ++e)
        add(node, event_[e].place, event_[e].rise, slope_);
    }
    return best;
  }

 private:
  struct Event {
    double at, rise;
    std::uint32_t place;
  };

  static void add(const KernelNode& node, std::size_t i, double factor, std::vector<double>& to) {
    const std::size_t stride = node.rows().stride;
    const float* row = node.centred() + i * stride;
    for (std::size_t k = 0; k < stride; ++k) to[k] += factor * static_cast<double>(row[k]);
    to[stride] += factor * node.mass(i);
    if (node.rows().labelled[node.row(i)]) to[stride + 1] += factor * node.mass(i);
  }
  double evaluate(const KernelNode& node) const {
    const std::size_t width = node.rows().coordinate_width, stride = node.rows().stride;
    double coordinates = 0, targets = 0;
    for (std::size_t k = 0; k < width; ++k) coordinates += sum_[k] * sum_[k];
    for (std::size_t k = width; k < stride; ++k) targets += sum_[k] * sum_[k];
    return node.gain(sum_[stride], sum_[stride + 1], coordinates, targets);
  }

  std::vector<double> sum_, slope_;
  std::vector<Event> event_;
};

}  // namespace silva
