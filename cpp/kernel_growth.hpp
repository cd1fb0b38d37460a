// Growing a kernel tree: split what gains most, stop where the loss does not fall by ccp_alpha.
//
// Given     prepared rows, the weights of this tree's rows, limits, a seed.
// Returned  nodes depth first with the gain of each split, in units of the loss at the root.
//
// Draws at a node depend on the seed and on the way to the node alone, so that a tree grown with a
// larger ccp_alpha is the same tree, cut.
#pragma once

#include <limits>

#include "fuzzy_split.hpp"

namespace silva {

struct GrownNodes {
  std::vector<std::int32_t> left, right, feature;
  std::vector<double> threshold, weight, gain;
};

class Grower {
 public:
  Grower(const KernelRows& rows, const KernelShape& shape, const GrowthLimits& limits, Team& team)
      : rows_(rows),
        shape_(shape),
        limits_(limits),
        team_(team),
        workers_(static_cast<std::size_t>(team.size())) {}

  // weight: of each row; rows without weight take no part, nor do unlabelled ones where only labels
  // count.
  GrownNodes grow(const std::vector<double>& weight, std::uint64_t seed) {
    weight_ = &weight;
    Open root;
    for (std::size_t i = 0; i < rows_.n; ++i) {
      if (!(weight[i] > 0) || (limits_.supervision == 1 && !rows_.labelled[i])) continue;
      root.members.row.push_back(static_cast<std::uint32_t>(i));
      root.members.mass.push_back(weight[i]);
    }
    if (rows_.fuzzy) {
      root.box.low.assign(rows_.columns, -std::numeric_limits<double>::infinity());
      root.box.high.assign(rows_.columns, std::numeric_limits<double>::infinity());
    }
    root.stream = seed;
    double mass = 0;
    for (double m : root.members.mass) mass += m;
    KernelNode node(rows_, limits_, mass);
    node_ = &node;
    nodes_.clear();
    std::vector<Open> open;
    consider(std::move(root), -1, false, open);
    std::size_t leaves = 1;
    while (!open.empty() && leaves < limits_.max_leaf_nodes) {
      if (limits_.max_leaf_nodes < kNoLimit)
        std::swap(*std::max_element(open.begin(), open.end(),
                                    [](const Open& a, const Open& b) {
                                      return a.split.gain < b.split.gain ||
                                             (a.split.gain == b.split.gain && a.id > b.id);
                                    }),
                  open.back());
      Open parent = std::move(open.back());
      open.pop_back();
      leaves += divide(parent, open);
    }
    return number();
  }

 private:
  struct Open {
    Members members;
    Box box;
    KernelSplit split;
    std::size_t depth = 0;
    std::uint64_t stream = 0;
    std::int32_t id = -1;
  };
  struct Worker {
    CrispSearch crisp;
    ConvolvedSearch convolved;
    ExactSearch exact;
    RandomThreshold random;
  };
  struct Node {
    std::int32_t left = -1, right = -1;
    KernelSplit split;
    double weight = 0;
  };

  // Makes it a node, and an open one if a split of it gains enough.
  void consider(Open&& open, std::int32_t parent, bool right, std::vector<Open>& queue) {
    open.id = static_cast<std::int32_t>(nodes_.size());
    if (parent >= 0) {
      Node& above = nodes_[static_cast<std::size_t>(parent)];
      (right ? above.right : above.left) = open.id;
    }
    Node made;
    for (double m : open.members.mass) made.weight += m;
    nodes_.push_back(made);
    if (open.depth >= limits_.max_depth || open.members.row.size() < 2 ||
        made.weight < 2 * limits_.min_weight_leaf * (1 - 1e-9))
      return;
    open.split = search(open);
    if (open.split.gain >= limits_.ccp_alpha && open.split.feature >= 0)
      queue.push_back(std::move(open));
  }

  KernelSplit search(const Open& open) {
    node_->describe(open.members);
    // Rounding of what is left at the root's scale.
    constexpr double kPure = 1e-12;
    const double loss = node_->loss();
    if (loss <= kPure || loss * (1 + 1e-5) < limits_.ccp_alpha) return {};
    if (node_->count() < 2 * limits_.min_rows_leaf ||
        node_->labelled().size() < 2 * limits_.min_labelled_leaf)
      return {};
    if (limits_.stop_pure && limits_.supervision > 0 && node_->labels_agree()) return {};
    columns_ = rows_.varying;
    const std::size_t step = std::min(limits_.max_features, columns_.size());
    const std::size_t tries = std::min(limits_.max_tries, columns_.size());
    Random random(open.stream, 2);
    found_.resize(step);
    for (std::size_t begin = 0; begin < tries; begin += step) {
      const std::size_t count = std::min(step, columns_.size() - begin);
      if (step < columns_.size())
        for (std::size_t k = begin; k < begin + count; ++k)
          std::swap(columns_[k], columns_[k + random.below(columns_.size() - k)]);
      const bool crisp = !rows_.fuzzy && !limits_.random_thresholds;
      const std::size_t size = crisp ? CrispSearch::together(*node_) : 1;
      const auto task = [&](std::size_t t, int number) {
        Worker& worker = workers_[static_cast<std::size_t>(number)];
        const std::size_t k = t * size;
        if (crisp)
          worker.crisp.split(*node_, columns_.data() + begin + k, std::min(size, count - k),
                             found_.data() + k);
        else
          found_[k] = look(open, columns_[begin + k], worker);
      };
      const std::size_t tasks = (count + size - 1) / size;
      if (node_->count() * count * rows_.stride > kWorthwhile)
        team_.run(tasks, task);
      else
        for (std::size_t t = 0; t < tasks; ++t) task(t, 0);
      KernelSplit best;
      for (std::size_t k = 0; k < count; ++k)
        if (found_[k].gain >= 0 && gains_more(found_[k].gain, best.gain)) best = found_[k];
      if (best.gain >= 0) return placed(best);
    }
    return {};
  }

  KernelSplit look(const Open& open, std::int32_t feature, Worker& worker) const {
    const auto j = static_cast<std::size_t>(feature);
    if (limits_.random_thresholds) {
      Random random(open.stream, 3 + j);
      return worker.random.split(*node_, feature, open.box, shape_, random);
    }
    if (rows_.bandwidth[j] == 0) {
      KernelSplit found;
      worker.crisp.split(*node_, &feature, 1, &found);
      return found;
    }
    if (limits_.exact) return worker.exact.split(*node_, feature, open.box, shape_);
    return worker.convolved.split(*node_, feature, open.box, shape_);
  }

  // Midway between the values on either side, in the precision in which rows are routed.
  KernelSplit placed(KernelSplit split) const {
    if (split.bin < 0) return split;
    const double* value = rows_.column(split.feature);
    const std::uint8_t* code = rows_.codes(split.feature);
    double low = -std::numeric_limits<double>::infinity(), high = -low;
    for (std::size_t i = 0; i < node_->count(); ++i) {
      const std::uint32_t row = node_->row(i);
      if (code[row] <= split.bin)
        low = std::max(low, value[row]);
      else
        high = std::min(high, value[row]);
    }
    double middle = low / 2 + high / 2;
    if (rows_.single) middle = static_cast<double>(static_cast<float>(middle));
    split.threshold = middle > low && middle <= high ? middle : high;
    return split;
  }

  // Sends the rows to two new nodes; 0 if one of them would have none.
  std::size_t divide(Open& parent, std::vector<Open>& queue) {
    const KernelSplit split = parent.split;
    const auto j = static_cast<std::size_t>(split.feature);
    const double *value = rows_.column(split.feature), h = rows_.bandwidth[j];
    const std::size_t n = parent.members.row.size();
    std::size_t count[2] = {0, 0};
    share_.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t row = parent.members.row[i];
      const double x = value[row];
      share_[i] = x < split.threshold ? 1 : 0;
      if (h > 0)
        share_[i] = left_share(
            shape_.below(parent.box.low[j], x, h), shape_.below(parent.box.high[j], x, h),
            shape_.below(split.threshold, x, h), parent.members.mass[i] / (*weight_)[row]);
      count[0] += share_[i] > 0;
      count[1] += share_[i] < 1;
    }
    Open side[2];
    for (int s = 0; s < 2; ++s) {
      Members& members = side[s].members;
      members.row.reserve(count[s]);
      members.mass.reserve(count[s]);
      for (std::size_t i = 0; i < n; ++i) {
        const double left = share_[i] * parent.members.mass[i];
        const double part = s == 0 ? left : parent.members.mass[i] - left;
        if (!(part > 0)) continue;
        members.row.push_back(parent.members.row[i]);
        members.mass.push_back(part);
      }
    }
    if (side[0].members.row.empty() || side[1].members.row.empty()) return 0;
    nodes_[static_cast<std::size_t>(parent.id)].split = split;
    parent.members = Members{};
    for (int s = 1; s >= 0; --s) {  // the left one is to be taken up first
      side[s].depth = parent.depth + 1;
      side[s].stream = Random(parent.stream, static_cast<std::uint64_t>(s)).next();
      side[s].box = parent.box;
      if (rows_.fuzzy) (s == 0 ? side[s].box.high : side[s].box.low)[j] = split.threshold;
      consider(std::move(side[s]), parent.id, s == 1, queue);
    }
    return 1;
  }

  GrownNodes number() const {
    GrownNodes out;
    std::vector<std::pair<std::int32_t, std::int32_t>> stack{{0, -1}};  // node, whose right child
    while (!stack.empty()) {
      const auto [id, parent] = stack.back();
      stack.pop_back();
      const Node& node = nodes_[static_cast<std::size_t>(id)];
      const auto at = static_cast<std::int32_t>(out.left.size());
      if (parent >= 0) out.right[static_cast<std::size_t>(parent)] = at;
      out.left.push_back(node.left < 0 ? -1 : at + 1);
      out.right.push_back(-1);
      out.feature.push_back(node.left < 0 ? -1 : node.split.feature);
      out.threshold.push_back(node.left < 0 ? 0 : node.split.threshold);
      out.gain.push_back(node.left < 0 ? 0 : node.split.gain);
      out.weight.push_back(node.weight);
      if (node.left < 0) continue;
      stack.emplace_back(node.right, at);
      stack.emplace_back(node.left, -1);
    }
    return out;
  }

  static constexpr std::size_t kNoLimit = std::size_t{1} << 62;  // as Python says it
  static constexpr std::size_t kWorthwhile = 1 << 18;  // additions, for waking other threads

  const KernelRows& rows_;
  const KernelShape& shape_;
  const GrowthLimits& limits_;
  Team& team_;
  std::vector<Worker> workers_;
  const std::vector<double>* weight_ = nullptr;
  KernelNode* node_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> columns_;  // these three are scratch
  std::vector<KernelSplit> found_;
  std::vector<double> share_;
};

}  // namespace silva
