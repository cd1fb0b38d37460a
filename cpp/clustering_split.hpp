// The split of a predictive clustering tree (Levatic, Ceci, Kocev, Dzeroski 2017), by trying all.
//
//   max over feature and threshold of
//   sum_k a_k (Var_k - Var_k after the split) + sum_j b_j (Var_j - Var_j after the split)
//
// over targets k, whose variances are those of the labelled rows, and features j, whose variances
// are those of all rows; "after" is the mean of the two sides, by mass. Prices a and b carry the
// paper's weight w and its division by the variances of the root. Class indicators as targets make
// the first sum Gini's impurity.
//
// A side of mass m out of M whose sums are S lowers a variance by (S - m mean)^2 / (m (M - m)):
// running sums over the sorted rows are all it takes, n D^2 for a node of n rows and D features.
// Rows in the fullest bin of a feature are never visited: one scan comes from the left and one from
// the right, and they meet there. In images and other data that are mostly zeros that saves most of
// the work.
//
// Given     rows with weights, targets of the labelled ones; the rows of a node; features to try.
// Returned  the feature, the gain, and which of the node's rows go right.
#pragma once

#include <memory>

#include "block.hpp"

namespace silva {

struct ClusteringLabels {
  std::vector<std::int32_t> place;  // of each row among the targets, -1 where it is unlabelled
  std::vector<double> target;       // labelled rows by outputs
  std::vector<double> price;        // of the variance of each output
};

struct ClusteringLimits {
  std::size_t min_rows, min_labelled;  // of a side
  std::size_t max_bins;                // of a feature at a node
};

struct ClusteringSplit {
  double gain = -1;
  std::int32_t feature = -1;
  float bound = 0;  // stored values from here on go right
};

// Ties are common, and rounding must not decide them: the first one wins.
inline bool is_better(double gain, double best) { return gain > best + 1e-6 * std::fabs(best); }

// ---- running sums of all features ---------------------------------------------------------------

// In the units of the storage; price and mean are in the same.
template <class T>
class DenseSums {
 public:
  DenseSums(const DenseRows<T>& rows, const std::vector<double>& price)
      : rows_(rows), price_(price), sum_(rows.d, 0.0) {}

  void begin(const std::vector<double>* mean) {
    mean_ = mean;
    std::fill(sum_.begin(), sum_.end(), 0.0);
  }
  void add(const std::uint32_t* slot, const float* weight, std::size_t count) {
    if constexpr (sizeof(T) == 1)
      simd().combine_u8(rows_.data.data(), rows_.stride, slot, weight, count, 0, rows_.d,
                        sum_.data());
    else
      simd().combine_f32(rows_.data.data(), rows_.stride, slot, weight, count, 0, rows_.d,
                         sum_.data());
  }
  const std::vector<double>& sum() const { return sum_; }

  // sum_j price[j] (sum[j] - mass mean[j])^2, in lanes that the compiler turns into vectors.
  double distance(double mass) const {
    constexpr std::size_t kLanes = 8;
    double lanes[kLanes] = {}, total = 0;
    const double *sum = sum_.data(), *mean = mean_->data(), *price = price_.data();
    const std::size_t whole = sum_.size() / kLanes * kLanes;
    for (std::size_t j = 0; j < whole; j += kLanes)
      for (std::size_t l = 0; l < kLanes; ++l) {
        const double gap = sum[j + l] - mass * mean[j + l];
        lanes[l] += price[j + l] * gap * gap;
      }
    for (std::size_t j = whole; j < sum_.size(); ++j) {
      const double gap = sum[j] - mass * mean[j];
      total += price[j] * gap * gap;
    }
    for (double lane : lanes) total += lane;
    return total;
  }

 private:
  const DenseRows<T>& rows_;
  const std::vector<double>& price_;
  std::vector<double> sum_;
  const std::vector<double>* mean_ = nullptr;
};

// Only what is stored is touched: the square is kept up to date entry by entry.
class SparseSums {
 public:
  SparseSums(const SparseRows& rows, const std::vector<double>& price)
      : rows_(rows), price_(price), sum_(rows.d, 0.0) {}

  void begin(const std::vector<double>* mean) {
    if (mean != mean_) {
      mean_ = mean;
      mean_square_ = 0;
      for (std::size_t j = 0; mean && j < mean->size(); ++j)
        mean_square_ += price_[j] * (*mean)[j] * (*mean)[j];
    }
    for (std::size_t j : touched_) sum_[j] = 0;
    touched_.clear();
    square_ = cross_ = 0;
  }
  void add(const std::uint32_t* slot, const float* weight, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      for (std::int64_t e = rows_.begin[slot[i]]; e < rows_.begin[slot[i] + 1]; ++e) {
        const auto j = static_cast<std::size_t>(rows_.index[e]);
        const double v = static_cast<double>(weight[i]) * static_cast<double>(rows_.value[e]);
        if (mean_) cross_ += price_[j] * v * (*mean_)[j];
        square_ += price_[j] * v * (2 * sum_[j] + v);
        sum_[j] += v;
        touched_.push_back(j);
      }
  }
  const std::vector<double>& sum() const { return sum_; }
  double distance(double mass) const {
    return std::max(0.0, square_ - 2 * mass * cross_ + mass * mass * mean_square_);
  }

 private:
  const SparseRows& rows_;
  const std::vector<double>& price_;
  std::vector<double> sum_;
  const std::vector<double>* mean_ = nullptr;
  double mean_square_ = 0, square_ = 0, cross_ = 0;
  std::vector<std::size_t> touched_;
};

// ---- rows in the order of a feature -------------------------------------------------------------

// The rows of a node sorted by one feature and cut into bins. Bin `hole` is not visited; of a
// sparse column it stands for the zeros and lists no rows.
struct SortedRows {
  std::vector<std::uint32_t> slot;
  std::vector<float> value, weight;
  std::vector<std::size_t> begin;  // of each bin, and the end
  std::size_t hole = 0;

  std::size_t bins() const { return begin.size() - 1; }
  float bound(std::size_t bin) const {  // smallest value of a bin
    return begin[bin] < begin[bin + 1] ? value[begin[bin]] : 0.0f;
  }
  void resize(std::size_t count) {
    slot.resize(count);
    value.resize(count);
    weight.resize(count);
    begin.clear();
  }
  void put(std::size_t at, std::uint32_t row, float v, float w) {
    slot[at] = row;
    value[at] = v;
    weight[at] = w;
  }
  // Cuts [from, to): a bin for each value or, of more than `most` values, bins that hold an equal
  // share of the mass at least. A weight of two counts as two rows.
  void cut(std::size_t from, std::size_t to, std::size_t most) {
    const auto is_new = [&](std::size_t i) { return i == from || value[i] != value[i - 1]; };
    std::size_t values = 0;
    double total = 0, mass = 0, next = 0;
    for (std::size_t i = from; i < to; ++i) {
      values += is_new(i);
      total += static_cast<double>(weight[i]);
    }
    const double share = values > most ? total / static_cast<double>(most) : 0;
    for (std::size_t i = from; i < to; ++i) {
      if (is_new(i) && mass >= next) {
        begin.push_back(i);
        next = mass + share;
      }
      mass += static_cast<double>(weight[i]);
    }
  }
};

template <class T>
class DenseSorter {
 public:
  DenseSorter(const DenseRows<T>& rows, const std::vector<std::uint32_t>& slot,
              const std::vector<std::int32_t>& features, Team&)
      : rows_(rows), slot_(slot), features_(features) {}

  float value(std::size_t i, std::int32_t feature) const {
    return static_cast<float>(rows_.row(slot_[i])[feature]);
  }
  void sort(std::size_t place, const std::vector<float>& weight, std::size_t most,
            SortedRows& out) const {
    const T* column = rows_.data.data() + features_[place];
    out.resize(slot_.size());
    if constexpr (sizeof(T) == 1) {
      std::size_t end[257] = {};
      for (std::uint32_t row : slot_) ++end[column[row * rows_.stride] + 1];
      for (std::size_t code = 0; code < 256; ++code) end[code + 1] += end[code];
      for (std::uint32_t row : slot_) {
        const T code = column[row * rows_.stride];
        out.put(end[code]++, row, static_cast<float>(code), weight[row]);
      }
    } else {
      std::vector<std::pair<float, std::uint32_t>> pairs;
      pairs.reserve(slot_.size());
      for (std::uint32_t row : slot_) pairs.emplace_back(column[row * rows_.stride], row);
      std::sort(pairs.begin(), pairs.end());
      for (std::size_t i = 0; i < pairs.size(); ++i)
        out.put(i, pairs[i].second, pairs[i].first, weight[pairs[i].second]);
    }
    out.cut(0, slot_.size(), most);
    out.begin.push_back(slot_.size());
    const auto size = [&](std::size_t bin) { return out.begin[bin + 1] - out.begin[bin]; };
    out.hole = 0;
    for (std::size_t bin = 1; bin < out.bins(); ++bin)
      if (size(bin) > size(out.hole)) out.hole = bin;
  }

 private:
  const DenseRows<T>& rows_;
  const std::vector<std::uint32_t>& slot_;
  const std::vector<std::int32_t>& features_;
};

class SparseSorter {
 public:
  SparseSorter(const SparseRows& rows, const std::vector<std::uint32_t>& slot,
               const std::vector<std::int32_t>& features, Team& team)
      : rows_(rows), slot_(slot) {
    block_.reset(slot.size());
    block_.add(View<SparseRows>{&rows, nullptr}, slot.data(), features, team);
  }

  float value(std::size_t i, std::int32_t feature) const {
    const auto first = rows_.index.begin() + rows_.begin[slot_[i]];
    const auto last = rows_.index.begin() + rows_.begin[slot_[i] + 1];
    const auto found = std::lower_bound(first, last, feature);
    if (found == last || *found != feature) return 0.0f;
    return rows_.value[static_cast<std::size_t>(found - rows_.index.begin())];
  }
  void sort(std::size_t place, const std::vector<float>& weight, std::size_t most,
            SortedRows& out) const {
    std::vector<std::pair<float, std::uint32_t>> pairs;
    block_.entries(place, [&](std::uint32_t i, float v) {
      if (v != 0) pairs.emplace_back(v, slot_[i]);
    });
    std::sort(pairs.begin(), pairs.end());
    out.resize(pairs.size());
    for (std::size_t i = 0; i < pairs.size(); ++i)
      out.put(i, pairs[i].second, pairs[i].first, weight[pairs[i].second]);
    const auto positive = static_cast<std::size_t>(
        std::lower_bound(out.value.begin(), out.value.end(), 0.0f) - out.value.begin());
    out.cut(0, positive, most);
    out.hole = out.begin.size();
    if (pairs.size() < slot_.size()) out.begin.push_back(positive);
    out.cut(positive, pairs.size(), most);
    out.begin.push_back(pairs.size());
    out.hole = std::min(out.hole, out.bins() - 1);
  }

 private:
  const SparseRows& rows_;
  const std::vector<std::uint32_t>& slot_;
  SparseBlock block_;
};

template <class Rows>
struct ClusteringParts {
  using Sums = DenseSums<typename Rows::Value>;
  using Sorter = DenseSorter<typename Rows::Value>;
};
template <>
struct ClusteringParts<SparseRows> {
  using Sums = SparseSums;
  using Sorter = SparseSorter;
};

// ---- the search ---------------------------------------------------------------------------------

class ClusteringSearch {
 public:
  virtual ~ClusteringSearch() = default;
  // Fills `right`, an entry for each row of the node, unless there is no split.
  virtual ClusteringSplit split(const std::vector<std::uint32_t>& slot,
                                const std::vector<std::int32_t>& features,
                                std::vector<std::uint8_t>& right) = 0;
};

template <class Rows>
class Clustering final : public ClusteringSearch {
 public:
  // price: of the variance of each feature in scaled units.
  Clustering(std::shared_ptr<const Rows> rows, std::vector<float> weight, ClusteringLabels labels,
             std::vector<double> price, const ClusteringLimits& limits, int threads)
      : rows_(std::move(rows)),
        weight_(std::move(weight)),
        labels_(std::move(labels)),
        price_(std::move(price)),
        limits_(limits),
        team_(threads) {
    if constexpr (!Rows::kSparse)
      for (std::size_t j = 0; j < price_.size(); ++j)
        price_[j] *= static_cast<double>(rows_->unit[j]) * static_cast<double>(rows_->unit[j]);
    clusters_ = std::any_of(price_.begin(), price_.end(), [](double p) { return p > 0; });
    for (int k = 0; k < team_.size(); ++k) workers_.emplace_back(*rows_, price_);
  }

  ClusteringSplit split(const std::vector<std::uint32_t>& slot,
                        const std::vector<std::int32_t>& features,
                        std::vector<std::uint8_t>& right) override {
    const Node node = describe(slot);
    const Sorter sorter(*rows_, slot, features, team_);
    std::vector<ClusteringSplit> best(features.size());
    team_.run(features.size(), [&](std::size_t place, int k) {
      Worker& worker = workers_[static_cast<std::size_t>(k)];
      sorter.sort(place, weight_, limits_.max_bins, worker.sorted);
      best[place] = scan(node, worker);
      best[place].feature = features[place];
    });
    for (Worker& worker : workers_) worker.sums.begin(nullptr);  // forget the means of this node
    ClusteringSplit winner;
    for (const auto& candidate : best)
      if (candidate.gain >= 0 && is_better(candidate.gain, winner.gain)) winner = candidate;
    if (winner.gain < 0) return {};
    right.resize(slot.size());
    for (std::size_t i = 0; i < slot.size(); ++i)
      right[i] = sorter.value(i, winner.feature) >= winner.bound;
    return winner;
  }

 private:
  using Sums = typename ClusteringParts<Rows>::Sums;
  using Sorter = typename ClusteringParts<Rows>::Sorter;

  // Rows and what they add up to: a node, or a side of it while it grows.
  struct Side {
    std::size_t rows = 0, labelled = 0;
    double mass = 0, labelled_mass = 0;
    std::vector<double> target;
  };
  struct Node {
    Side all;
    std::vector<double> mean, target_mean;
  };
  struct Worker {
    Worker(const Rows& rows, const std::vector<double>& price) : sums(rows, price) {}
    SortedRows sorted;
    Sums sums;
    std::vector<double> gain;  // of a cut before each bin
  };

  void add(const std::uint32_t* slot, std::size_t count, Side& side) const {
    const std::size_t outputs = labels_.price.size();
    for (std::size_t i = 0; i < count; ++i) {
      const double mass = static_cast<double>(weight_[slot[i]]);
      side.mass += mass;
      const std::int32_t place = labels_.place[slot[i]];
      if (place < 0) continue;
      ++side.labelled;
      side.labelled_mass += mass;
      const double* target = labels_.target.data() + static_cast<std::size_t>(place) * outputs;
      for (std::size_t k = 0; k < outputs; ++k) side.target[k] += mass * target[k];
    }
    side.rows += count;
  }

  Node describe(const std::vector<std::uint32_t>& slot) {
    Node node;
    node.all.target.assign(labels_.price.size(), 0.0);
    add(slot.data(), slot.size(), node.all);
    node.target_mean = node.all.target;
    for (double& mean : node.target_mean) mean /= std::max(node.all.labelled_mass, 1e-300);
    if (!clusters_) return node;
    std::vector<float> weight;
    for (std::uint32_t row : slot) weight.push_back(weight_[row]);
    Sums& sums = workers_[0].sums;
    sums.begin(nullptr);
    sums.add(slot.data(), weight.data(), slot.size());
    node.mean = sums.sum();
    for (double& mean : node.mean) mean /= node.all.mass;
    return node;
  }

  // Gain of cutting one side off; -1 where that is not allowed.
  double gain(const Node& node, const Side& side, const Sums& sums) const {
    if (side.rows < limits_.min_rows || node.all.rows - side.rows < limits_.min_rows) return -1;
    if (side.labelled < limits_.min_labelled ||
        node.all.labelled - side.labelled < limits_.min_labelled)
      return -1;
    double total = 0;
    const double other = node.all.labelled_mass - side.labelled_mass;
    if (side.labelled > 0 && side.labelled < node.all.labelled) {
      for (std::size_t k = 0; k < side.target.size(); ++k) {
        const double gap = side.target[k] - side.labelled_mass * node.target_mean[k];
        total += labels_.price[k] * gap * gap;
      }
      total /= side.labelled_mass * other;
    }
    if (clusters_) total += sums.distance(side.mass) / (side.mass * (node.all.mass - side.mass));
    return total;
  }

  ClusteringSplit scan(const Node& node, Worker& worker) const {
    const SortedRows& sorted = worker.sorted;
    worker.gain.assign(sorted.bins(), -1.0);
    Side side;
    const auto begin_side = [&] {
      side = Side{};
      side.target.assign(labels_.price.size(), 0.0);
      if (clusters_) worker.sums.begin(&node.mean);
    };
    const auto add_bin = [&](std::size_t bin) {
      const std::size_t first = sorted.begin[bin], count = sorted.begin[bin + 1] - first;
      add(sorted.slot.data() + first, count, side);
      if (clusters_)
        worker.sums.add(sorted.slot.data() + first, sorted.weight.data() + first, count);
    };
    begin_side();
    for (std::size_t bin = 0; bin < sorted.hole; ++bin) {
      add_bin(bin);
      worker.gain[bin + 1] = gain(node, side, worker.sums);
    }
    begin_side();
    for (std::size_t bin = sorted.bins() - 1; bin > sorted.hole; --bin) {
      add_bin(bin);
      worker.gain[bin] = gain(node, side, worker.sums);
    }
    ClusteringSplit best;
    for (std::size_t bin = 1; bin < sorted.bins(); ++bin)
      if (worker.gain[bin] >= 0 && is_better(worker.gain[bin], best.gain)) {
        best.gain = worker.gain[bin];
        best.bound = sorted.bound(bin);
      }
    return best;
  }

  std::shared_ptr<const Rows> rows_;
  std::vector<float> weight_;
  ClusteringLabels labels_;
  std::vector<double> price_;
  ClusteringLimits limits_;
  bool clusters_ = false;
  Team team_;
  std::vector<Worker> workers_;
};

}  // namespace silva
