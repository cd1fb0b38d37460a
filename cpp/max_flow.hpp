// Minimum cut between a source and a sink, by maximum flow with real capacities.
//
// Problem: nodes 0 .. n-1 with symmetric weights w_ij >= 0, a source tied to node i by source_i and
// a sink by sink_i; minimise over sets S of nodes
//
//   sum_{i not in S} source_i + sum_{i in S} sink_i + sum_{i in S, j not in S} w_ij.
//
// Given the weights by rows (symmetric, indices sorted, no diagonal) and the two ties of each node.
// Returned: the value of the maximum flow, and for each node the side on which all minimum cuts
// have it, if they agree.
//
// Method: Dinic (Soviet Math. Dokl. 11, 1970): blocking flows on the shortest residual paths. The
// graphs of leaves are dense and a few steps wide, so that phases are few and each reads an arc
// once. An augmentation takes the smallest residual of its path, which becomes zero exactly also in
// floating point; residuals up to `tolerance` count as zero.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace silva {

// What a node is by its minimum cuts.
constexpr std::int8_t kSourceSide = 0, kSinkSide = 1, kEitherSide = -1;

class MaxFlow {
 public:
  MaxFlow(std::vector<std::int64_t> begin, std::vector<std::int32_t> index,
          std::vector<double> weight, std::vector<double> source, std::vector<double> sink,
          double tolerance)
      : n_(source.size()),
        begin_(std::move(begin)),
        index_(std::move(index)),
        rest_(std::move(weight)),
        source_(std::move(source)),
        sink_(std::move(sink)),
        tolerance_(tolerance),
        reverse_(index_.size()),
        level_(n_),
        arc_(n_) {
    // Rows taken in order meet the entries of a sorted, symmetric column in order.
    std::vector<std::int64_t> next(begin_.begin(), begin_.end() - 1);
    for (std::size_t e = 0; e < index_.size(); ++e) reverse_[e] = next[index_[e]]++;
  }

  double run() {
    double flow = 0;
    for (std::size_t i = 0; i < n_; ++i) {  // straight through a node that both sides hold
      const double both = std::min(source_[i], sink_[i]);
      source_[i] -= both;
      sink_[i] -= both;
      flow += both;
    }
    while (find_levels()) {
      std::copy(begin_.begin(), begin_.end() - 1, arc_.begin());
      for (std::size_t i = 0; i < n_; ++i)
        if (level_[i] == 0) flow += push_from(static_cast<std::int32_t>(i));
    }
    return flow;
  }

  // After run(): what the source reaches over residual arcs, what reaches the sink, and the rest.
  std::vector<std::int8_t> sides() {
    std::vector<std::int8_t> side(n_, kEitherSide);
    for (std::size_t i = 0; i < n_; ++i)
      if (level_[i] >= 0) side[i] = kSourceSide;
    queue_.clear();
    const auto reach = [&](std::size_t i) {
      side[i] = kSinkSide;
      queue_.push_back(static_cast<std::int32_t>(i));
    };
    for (std::size_t i = 0; i < n_; ++i)
      if (open(sink_[i])) reach(i);
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::int32_t i = queue_[head];
      for (std::int64_t e = begin_[i]; e < begin_[i + 1]; ++e)
        if (side[index_[e]] != kSinkSide && open(rest_[reverse_[e]])) reach(index_[e]);
    }
    return side;
  }

 private:
  bool open(double residual) const { return residual > tolerance_; }

  // Arcs from the source's own nodes to each (-1: none lead there); false where no path is open.
  bool find_levels() {
    std::fill(level_.begin(), level_.end(), -1);
    queue_.clear();
    for (std::size_t i = 0; i < n_; ++i)
      if (open(source_[i])) {
        level_[i] = 0;
        queue_.push_back(static_cast<std::int32_t>(i));
      }
    std::int32_t last = -1;  // level of the first node that holds the sink: no need to go beyond
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const std::int32_t i = queue_[head];
      if (last < 0 && open(sink_[i])) last = level_[i];
      if (last >= 0) continue;
      for (std::int64_t e = begin_[i]; e < begin_[i + 1]; ++e)
        if (level_[index_[e]] < 0 && open(rest_[e])) {
          level_[index_[e]] = level_[i] + 1;
          queue_.push_back(index_[e]);
        }
    }
    return last >= 0;
  }

  // Pushes what the source still has at `root` along paths that go a level further each step.
  double push_from(std::int32_t root) {
    double pushed = 0;
    std::int32_t i = root;
    path_.clear();
    while (open(source_[root])) {
      if (open(sink_[i])) {
        pushed += augment(root, i);
        i = path_.empty() ? root : index_[path_.back()];
        continue;
      }
      std::int64_t& e = arc_[i];
      while (e < begin_[i + 1] && !(level_[index_[e]] == level_[i] + 1 && open(rest_[e]))) ++e;
      if (e < begin_[i + 1]) {
        path_.push_back(e);
        i = index_[e];
      } else if (path_.empty()) {
        break;
      } else {  // nothing leads on from here
        i = index_[reverse_[path_.back()]];
        path_.pop_back();
        ++arc_[i];
      }
    }
    return pushed;
  }

  // Pushes what the path can take and cuts it before its first full arc.
  double augment(std::int32_t root, std::int32_t end) {
    double amount = std::min(source_[root], sink_[end]);
    for (std::int64_t e : path_) amount = std::min(amount, rest_[e]);
    source_[root] -= amount;
    sink_[end] -= amount;
    std::size_t kept = path_.size();
    for (std::size_t k = path_.size(); k-- > 0;) {
      rest_[path_[k]] -= amount;
      rest_[reverse_[path_[k]]] += amount;
      if (!open(rest_[path_[k]])) kept = k;
    }
    path_.resize(kept);
    return amount;
  }

  std::size_t n_;
  std::vector<std::int64_t> begin_;
  std::vector<std::int32_t> index_;
  std::vector<double> rest_, source_, sink_;  // residual capacities
  double tolerance_;
  std::vector<std::int64_t> reverse_;  // the same arc the other way round
  std::vector<std::int32_t> level_, queue_;
  std::vector<std::int64_t> arc_, path_;  // next arc to try at each node; arcs from the root
};

}  // namespace silva
