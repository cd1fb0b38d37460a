// Tree alternating optimisation (LapTAO paper, figure 6; boosted TAO paper, algorithm 2): the state
// of one fit.
//
//   min over the tree   sum_i loss(y_i, T(x_i)) + alpha * sum over nodes of penalty(node)
//
// With all other nodes fixed, the best decision of node i is a weighted two-class problem over the
// points that reach it: send each to the child whose subtree treats it better, weight |difference
// of the two losses|. Nodes of one level do not meet and are solved side by side. The caller runs
// the loop, levels from the deepest to the root.
//
// What makes it fast: points are kept sorted by leaf, so a node is a range; each point's leaf is
// remembered, so only the other child's subtree is walked; narrow rows are copied into that order
// once an iteration, so the ranges stream through the cache.
#pragma once

#include <stdexcept>

#include "axis.hpp"
#include "leaves.hpp"
#include "logistic.hpp"

namespace silva {

// left and right children, -1 at a leaf; depth first, a left child follows its parent.
struct Structure {
  std::vector<std::int32_t> left, right;

  std::size_t size() const { return left.size(); }
  bool is_leaf(std::size_t node) const { return left[node] < 0; }
};

// Hyperplanes, one feature a node, or at each node whichever of the two has the lower objective.
enum class SplitKind { kOblique, kAxis, kMixed };

struct TaoOptions {
  SplitKind split = SplitKind::kOblique;
  double alpha = 1;
  LogisticOptions logistic;
  bool monotone = false;  // keep a node's update only if the objective does not rise
};

class SessionBase {
 public:
  virtual ~SessionBase() = default;
  virtual void route() = 0;
  virtual void assign(const std::int32_t* leaf_node) = 0;
  virtual double fit_leaves() = 0;
  virtual void update_level(int level, bool from_current) = 0;
  virtual int levels() const = 0;
  virtual double penalty() const = 0;
  virtual std::size_t nonzeros() const = 0;
  virtual const std::vector<Plane>& planes() const = 0;
  virtual void set_planes(std::vector<Plane> planes) = 0;
  virtual const LeafModel& leaves() const = 0;
};

template <class Rows>
class Session final : public SessionBase {
 public:
  Session(std::shared_ptr<const Rows> rows, Structure structure, std::vector<Plane> planes,
          std::unique_ptr<LeafModel> leaves, const TaoOptions& options, int threads)
      : rows_(std::move(rows)),
        structure_(std::move(structure)),
        leaves_(std::move(leaves)),
        options_(options),
        team_(threads),
        work_(static_cast<std::size_t>(team_.size())) {
    read_structure();
    const std::size_t n = rows_->n;
    order_.resize(n);
    own_.assign(n, 0);
    own_loss_.resize(n);
    for (std::size_t p = 0; p < n; ++p) order_[p] = static_cast<std::uint32_t>(p);
    if constexpr (!Rows::kSparse) {
      weights_.assign(structure_.size() * rows_->stride, 0.0f);
      bias_.assign(structure_.size(), 0.0f);
      child_.resize(2 * structure_.size());
      for (std::size_t i = 0; i < structure_.size(); ++i) {
        const bool leaf = structure_.is_leaf(i);
        child_[2 * i] = leaf ? static_cast<std::int32_t>(i) : structure_.left[i];
        child_[2 * i + 1] = leaf ? static_cast<std::int32_t>(i) : structure_.right[i];
      }
      // Narrow rows in a large set: follow the order, or each visit jumps through memory.
      copies_ = rows_->stride * sizeof(typename Rows::Value) <= 1024 && n > 4096;
      if (copies_) identity_ = order_;
    }
    set_planes(std::move(planes));
  }

  int levels() const override { return static_cast<int>(level_.size()); }
  const std::vector<Plane>& planes() const override { return planes_; }
  const LeafModel& leaves() const override { return *leaves_; }

  void set_planes(std::vector<Plane> planes) override {
    planes_.resize(structure_.size());
    stir();
    for (std::size_t i = 0; i < structure_.size(); ++i)
      if (!structure_.is_leaf(i)) set_plane(i, std::move(planes[i]));
  }

  double penalty() const override {
    double total = leaves_->penalty();
    for (std::size_t i = 0; i < planes_.size(); ++i)
      if (!structure_.is_leaf(i)) total += node_penalty(planes_[i]);
    return total;
  }
  std::size_t nonzeros() const override {
    std::size_t total = 0;
    for (std::size_t i = 0; i < planes_.size(); ++i)
      if (!structure_.is_leaf(i)) total += planes_[i].index.size();
    return total;
  }

  // Every point to the leaf that the current planes send it to.
  void route() override {
    for_pieces(team_, rows_->n, kPiece, [&](std::size_t begin, std::size_t end, int worker) {
      auto& work = work_[static_cast<std::size_t>(worker)];
      work.other.resize(std::max(work.other.size(), end - begin));
      walk(begin, end, 0, work.other.data(), work);
      for (std::size_t p = begin; p < end; ++p) own_[p] = work.other[p - begin];
    });
    stir();
    sort_by_leaf();
  }

  // Every point (by original row) to a given leaf node.
  void assign(const std::int32_t* leaf_node) override {
    for (std::size_t p = 0; p < rows_->n; ++p) {
      const std::int32_t leaf = leaf_rank_.at(static_cast<std::size_t>(leaf_node[order_[p]]));
      if (leaf < 0) throw std::invalid_argument("assign: a row was given to a decision node");
      own_[p] = leaf;
    }
    stir();
    sort_by_leaf();
  }

  // Best answers for the current partition; returns the loss of the tree.
  double fit_leaves() override {
    sort_by_leaf();
    leaves_->fit(leaf_start_, team_);
    for_pieces(team_, rows_->n, kPiece, [&](std::size_t begin, std::size_t end, int) {
      leaves_->losses(begin, end, own_.data() + begin, own_loss_.data() + begin);
    });
    double total = 0;
    for (float loss : own_loss_) total += static_cast<double>(loss);
    return total;
  }

  // Solves all node problems of a level. `from_current` starts from the planes at hand; a first,
  // random tree is better forgotten. A level that its last visit left as it was, in a tree that has
  // not changed since, has nothing to solve.
  void update_level(int level, bool from_current) override {
    auto nodes = level_.at(static_cast<std::size_t>(level));
    auto& calm = calm_[static_cast<std::size_t>(level)];
    if (calm && from_current) return;
    copy_rows();
    for (auto& work : work_) work.changed = false;
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](std::int32_t a, std::int32_t b) { return points(a) > points(b); });
    // A node with more than its share of the points uses the whole team; the others divide it up.
    std::size_t large = 0, left = 0;
    for (std::int32_t node : nodes) left += points(node);
    const auto threads = static_cast<std::size_t>(team_.size());
    while (threads > 1 && large < nodes.size() && 10 * threads * points(nodes[large]) > 12 * left)
      left -= points(nodes[large++]);
    for (std::size_t k = 0; k < large; ++k)
      update_node(static_cast<std::size_t>(nodes[k]), from_current, work_[0], team_);
    team_.run(nodes.size() - large, [&](std::size_t k, int worker) {
      Team alone(1);
      update_node(static_cast<std::size_t>(nodes[large + k]), from_current,
                  work_[static_cast<std::size_t>(worker)], alone);
    });
    const bool changed =
        std::any_of(work_.begin(), work_.end(), [](const Work& work) { return work.changed; });
    if (changed) stir();
    calm = from_current && !changed;
  }

 private:
  static constexpr std::size_t kPiece = 2048;

  struct Work {
    LogisticSolver<Rows> solver;
    std::vector<std::int32_t> other, reached;
    std::vector<float> other_loss, weight, side;
    std::vector<std::uint32_t> slot;
    std::vector<char> right;
    bool changed = false;       // whether a node visit has moved a plane or a point
    std::vector<float> spread;  // one plane written out: for sparse rows,
    Aligned<float> dense;       // or for dense rows in storage units
  };

  void read_structure() {
    const std::size_t n = structure_.size();
    leaf_rank_.assign(n, -1);
    first_leaf_.assign(n + 1, 0);
    last_leaf_.assign(n, 0);
    std::vector<int> depth(n, 0);
    std::int32_t leaves = 0;
    for (std::size_t i = 0; i < n; ++i) {
      first_leaf_[i] = leaves;
      if (structure_.is_leaf(i)) {
        leaf_rank_[i] = leaves++;
        continue;
      }
      const auto left = static_cast<std::size_t>(structure_.left[i]);
      const auto right = static_cast<std::size_t>(structure_.right[i]);
      depth[left] = depth[right] = depth[i] + 1;
      if (level_.size() <= static_cast<std::size_t>(depth[i]))
        level_.resize(static_cast<std::size_t>(depth[i]) + 1);
      level_[static_cast<std::size_t>(depth[i])].push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t i = n; i-- > 0;)
      last_leaf_[i] = structure_.is_leaf(i)
                          ? first_leaf_[i] + 1
                          : last_leaf_[static_cast<std::size_t>(structure_.right[i])];
    leaf_start_.assign(static_cast<std::size_t>(leaves) + 1, 0);
  }

  std::size_t begin_of(std::size_t node) const {
    return leaf_start_[static_cast<std::size_t>(first_leaf_[node])];
  }
  std::size_t end_of(std::size_t node) const {
    return leaf_start_[static_cast<std::size_t>(last_leaf_[node])];
  }
  std::size_t points(std::int32_t node) const {
    return end_of(static_cast<std::size_t>(node)) - begin_of(static_cast<std::size_t>(node));
  }
  double node_penalty(const Plane& plane) const {
    // One feature: its coefficient is 1 or -1, or whatever a given tree wrote.
    if (options_.split == SplitKind::kAxis) return plane.index.empty() ? 0.0 : options_.alpha;
    return options_.alpha * plane.l1();
  }
  View<Rows> view() const {
    if constexpr (Rows::kSparse)
      return {rows_.get(), nullptr};
    else
      return {rows_.get(), copied_ ? local_.data() : rows_->data.data()};
  }
  // Position -> storage in the view.
  const std::uint32_t* slots() const { return copied_ ? identity_.data() : order_.data(); }

  void set_plane(std::size_t node, Plane plane) {
    if constexpr (!Rows::kSparse) {
      write_dense(plane, weights_.data() + node * rows_->stride);
      bias_[node] = plane.bias;
    }
    planes_[node] = std::move(plane);
  }
  void write_dense(const Plane& plane, float* row) const {
    std::fill(row, row + rows_->stride, 0.0f);
    for (std::size_t k = 0; k < plane.index.size(); ++k) {
      const auto j = static_cast<std::size_t>(plane.index[k]);
      row[j] = plane.value[k] * rows_->unit[j];
    }
  }

  // Planes or points have moved.
  void stir() {
    sorted_ = false;
    calm_.assign(level_.size(), 0);
  }

  // Counting sort of the points by leaf; within a leaf in the order of the original rows, so that
  // a state is the same however it was reached.
  void sort_by_leaf() {
    if (sorted_) return;
    sorted_ = true;
    const std::size_t n = rows_->n;
    std::fill(leaf_start_.begin(), leaf_start_.end(), 0);
    for (std::int32_t leaf : own_) ++leaf_start_[static_cast<std::size_t>(leaf) + 1];
    for (std::size_t l = 1; l < leaf_start_.size(); ++l) leaf_start_[l] += leaf_start_[l - 1];
    leaf_of_.resize(n);  // kept between passes: new memory costs more than the sort
    next_order_.resize(n);
    for (std::size_t p = 0; p < n; ++p) leaf_of_[order_[p]] = own_[p];
    std::vector<std::size_t> next(leaf_start_.begin(), leaf_start_.end() - 1);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t place = next[static_cast<std::size_t>(leaf_of_[i])]++;
      next_order_[place] = static_cast<std::uint32_t>(i);
      own_[place] = leaf_of_[i];
    }
    const bool same = next_order_ == order_ && placed_;
    order_.swap(next_order_);
    if (same) return;
    placed_ = true;
    copied_ = false;
    leaves_->reorder(order_);
  }

  // Done before the first visit that needs it: the last order of a fit is never read.
  void copy_rows() {
    if (!copies_ || copied_) return;
    if constexpr (!Rows::kSparse) {
      const std::size_t n = rows_->n, stride = rows_->stride;
      const std::size_t bytes = stride * sizeof(typename Rows::Value);
      local_.resize(n * stride);
      for_pieces(team_, n, kPiece, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t p = begin; p < end; ++p) {
          const auto* ahead =
              reinterpret_cast<const char*>(rows_->row(order_[std::min(p + 16, n - 1)]));
          for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(ahead + b);
          std::memcpy(local_.data() + p * stride, rows_->row(order_[p]), bytes);
        }
      });
      copied_ = true;
    }
  }

  // Leaf rank of the positions [begin, end) walking down from `node`.
  void walk(std::size_t begin, std::size_t end, std::int32_t node, std::int32_t* leaf,
            Work& work) const {
    if constexpr (Rows::kSparse) {
      std::vector<std::uint32_t> list(end - begin);
      for (std::size_t i = 0; i < list.size(); ++i) list[i] = static_cast<std::uint32_t>(i);
      work.spread.resize(rows_->d, 0.0f);
      walk_sparse(begin, list, node, leaf, work.spread);
    } else {
      descend({child_.data(), weights_.data(), bias_.data(), rows_->stride, levels()},
              slots() + begin, end - begin, node, leaf);
      for (std::size_t i = 0; i < end - begin; ++i)
        leaf[i] = leaf_rank_[static_cast<std::size_t>(leaf[i])];
    }
  }

  void descend(const DenseTree<float>& tree, const std::uint32_t* slot, std::size_t count,
               std::int32_t node, std::int32_t* reached) const {
    if constexpr (sizeof(typename Rows::Value) == 1)
      simd().route_u8(tree, view().data, rows_->stride, slot, count, nullptr, node, reached);
    else
      simd().route_f32(tree, view().data, rows_->stride, slot, count, nullptr, node, reached);
  }

  float sparse_score(std::size_t slot, const std::vector<float>& spread, float bias) const {
    float score = bias;
    for (std::int64_t e = rows_->begin[slot]; e < rows_->begin[slot + 1]; ++e)
      score += spread[static_cast<std::size_t>(rows_->index[e])] * rows_->value[e];
    return score;
  }
  void walk_sparse(std::size_t begin, const std::vector<std::uint32_t>& list, std::int32_t node,
                   std::int32_t* leaf, std::vector<float>& spread) const {
    if (list.empty()) return;
    const auto at = static_cast<std::size_t>(node);
    if (structure_.is_leaf(at)) {
      for (std::uint32_t i : list) leaf[i] = leaf_rank_[at];
      return;
    }
    const Plane& plane = planes_[at];
    write_out(plane, spread);
    std::vector<std::uint32_t> left, right;
    for (std::uint32_t i : list)
      (sparse_score(slots()[begin + i], spread, plane.bias) >= 0 ? right : left).push_back(i);
    wipe(plane, spread);
    walk_sparse(begin, left, structure_.left[at], leaf, spread);
    walk_sparse(begin, right, structure_.right[at], leaf, spread);
  }
  static void write_out(const Plane& plane, std::vector<float>& spread) {
    for (std::size_t k = 0; k < plane.index.size(); ++k)
      spread[static_cast<std::size_t>(plane.index[k])] = plane.value[k];
  }
  static void wipe(const Plane& plane, std::vector<float>& spread) {
    for (std::int32_t j : plane.index) spread[static_cast<std::size_t>(j)] = 0;
  }

  // Whether a plane sends the points in some slots to the right.
  void sides(const Plane& plane, const std::uint32_t* slot, std::size_t count, Work& work,
             char* right) const {
    if (plane.index.empty()) {
      std::fill(right, right + count, plane.bias >= 0);
    } else if constexpr (Rows::kSparse) {
      work.spread.resize(rows_->d, 0.0f);
      write_out(plane, work.spread);
      for (std::size_t i = 0; i < count; ++i)
        right[i] = sparse_score(slot[i], work.spread, plane.bias) >= 0;
      wipe(plane, work.spread);
    } else {
      static constexpr std::int32_t kChild[] = {1, 2, 1, 1, 2, 2};  // a decision and two leaves
      work.dense.resize(rows_->stride);
      write_dense(plane, work.dense.data());
      work.reached.resize(count);
      descend({kChild, work.dense.data(), &plane.bias, rows_->stride, 1}, slot, count, 0,
              work.reached.data());
      for (std::size_t i = 0; i < count; ++i) right[i] = work.reached[i] == 2;
    }
  }

  void update_node(std::size_t node, bool from_current, Work& work, Team& team) {
    const std::size_t begin = begin_of(node), end = end_of(node), count = end - begin;
    if (count == 0) return;
    const std::size_t middle = begin_of(static_cast<std::size_t>(structure_.right[node]));
    work.other.resize(count);
    work.other_loss.resize(count);
    for_pieces(team, count, kPiece, [&](std::size_t from, std::size_t to, int worker) {
      // Walks of one node are spread over the team, each with a workspace of its own.
      auto& mine = &team == &team_ ? work_[static_cast<std::size_t>(worker)] : work;
      const std::size_t cut = std::clamp(middle, begin + from, begin + to);
      walk(begin + from, cut, structure_.right[node], work.other.data() + from, mine);
      walk(cut, begin + to, structure_.left[node], work.other.data() + (cut - begin), mine);
      leaves_->losses(begin + from, begin + to, work.other.data() + from,
                      work.other_loss.data() + from);
    });

    // The points that care, their better side and how much it matters.
    work.slot.clear();
    work.weight.clear();
    work.side.clear();
    double prefers_right = 0, prefers_left = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const float own = own_loss_[begin + i], other = work.other_loss[i];
      if (own == other) continue;
      const bool is_left = begin + i < middle;
      const bool right_better = is_left ? other < own : own < other;
      const float weight = std::fabs(own - other);
      (right_better ? prefers_right : prefers_left) += static_cast<double>(weight);
      work.slot.push_back(slots()[begin + i]);
      work.weight.push_back(weight);
      work.side.push_back(right_better ? 1.0f : 0.0f);
    }
    if (work.slot.empty()) {  // nobody cares; a tree of single features must still become one
      if (options_.split == SplitKind::kAxis && planes_[node].index.size() > 1)
        accept(node, Plane{}, begin, end, middle, work, team);
      return;
    }

    Plane plane;  // empty: every point to one side
    if (prefers_left == 0 || prefers_right == 0) {
      plane.bias = prefers_right > 0 ? 1.0f : -1.0f;
    } else {
      if (options_.split != SplitKind::kAxis)
        plane = solve_oblique(from_current ? planes_[node] : Plane{}, work, team);
      if (options_.split != SplitKind::kOblique)
        plane = better_on_axis(std::move(plane), work, team);
    }
    accept(node, std::move(plane), begin, end, middle, work, team);
  }

  // A hyperplane of few columns needs no more than so many points: of a larger crowd every k-th is
  // asked, and counts k times. Points are sorted, so the sample is spread evenly and hardly changes
  // from visit to visit.
  Plane solve_oblique(const Plane& start, Work& work, Team& team) const {
    const std::size_t most = std::max<std::size_t>(std::size_t{1} << 15, 128 * rows_->d);
    const std::size_t points = work.slot.size();
    if (points <= most)
      return work.solver.solve(view(), work.slot.data(), points, work.weight.data(),
                               work.side.data(), start, options_.logistic, team);
    const double stride = static_cast<double>(points) / static_cast<double>(most);
    std::vector<std::uint32_t> slot(most);
    std::vector<float> weight(most), side(most);
    for (std::size_t k = 0; k < most; ++k) {
      const auto i = static_cast<std::size_t>(stride * static_cast<double>(k));
      slot[k] = work.slot[i];
      weight[k] = static_cast<float>(stride) * work.weight[i];
      side[k] = work.side[i];
    }
    return work.solver.solve(view(), slot.data(), most, weight.data(), side.data(), start,
                             options_.logistic, team);
  }

  // The lowest objective among `plane` (of a mixed tree), the best single feature, and no split.
  Plane better_on_axis(Plane plane, Work& work, Team& team) const {
    for (std::size_t i = 0; i < work.weight.size(); ++i)
      if (work.side[i] == 0) work.weight[i] = -work.weight[i];
    const Preferences all = Preferences::of(work.weight.data(), work.weight.size());
    Plane best;
    best.bias = all.total > 0 ? 1.0f : -1.0f;
    double kept = std::max(0.0, all.total);
    if (options_.split == SplitKind::kMixed) {
      const double kept_here = sent_right(plane, work) - options_.alpha * plane.l1();
      if (kept_here > kept) {
        best = std::move(plane);
        kept = kept_here;
      }
    }
    const AxisSplit split =
        best_axis_split(view(), work.slot.data(), work.weight.data(), work.slot.size(), all, team);
    if (split.feature < 0 || split.kept - options_.alpha <= kept + all.tie) return best;
    best.index = {split.feature};
    best.value = {split.coefficient};
    best.bias = split.bias;
    return best;
  }
  // Sum of the preferences (work.weight) that a plane sends right.
  double sent_right(const Plane& plane, Work& work) const {
    work.right.resize(work.slot.size());
    sides(plane, work.slot.data(), work.slot.size(), work, work.right.data());
    double total = 0;
    for (std::size_t i = 0; i < work.slot.size(); ++i)
      if (work.right[i]) total += static_cast<double>(work.weight[i]);
    return total;
  }

  void accept(std::size_t node, Plane plane, std::size_t begin, std::size_t end, std::size_t middle,
              Work& work, Team& team) {
    const std::size_t count = end - begin;
    Plane before = planes_[node];
    set_plane(node, std::move(plane));
    work.right.resize(count);
    for_pieces(team, count, kPiece, [&](std::size_t from, std::size_t to, int worker) {
      auto& mine = &team == &team_ ? work_[static_cast<std::size_t>(worker)] : work;
      sides(planes_[node], slots() + begin + from, to - from, mine, work.right.data() + from);
    });
    if (options_.monotone) {
      double change = node_penalty(planes_[node]) - node_penalty(before);
      for (std::size_t i = 0; i < count; ++i)
        if ((work.right[i] != 0) != (begin + i >= middle))
          change +=
              static_cast<double>(work.other_loss[i]) - static_cast<double>(own_loss_[begin + i]);
      if (change > 0) {
        set_plane(node, std::move(before));
        return;
      }
    }
    work.changed |= !(planes_[node] == before);
    for (std::size_t i = 0; i < count; ++i)
      if ((work.right[i] != 0) != (begin + i >= middle)) {
        work.changed = true;
        own_[begin + i] = work.other[i];
        own_loss_[begin + i] = work.other_loss[i];
      }
  }

  std::shared_ptr<const Rows> rows_;
  Structure structure_;
  std::unique_ptr<LeafModel> leaves_;
  TaoOptions options_;
  Team team_;
  std::vector<Work> work_;

  std::vector<Plane> planes_;
  Aligned<float> weights_;  // dense planes in storage units
  std::vector<float> bias_;
  std::vector<std::int32_t> child_;
  std::vector<std::vector<std::int32_t>> level_;
  std::vector<char> calm_;  // level -> whether it has nothing left to solve
  std::vector<std::int32_t> leaf_rank_, first_leaf_, last_leaf_;

  std::vector<std::uint32_t> order_;  // position -> original row
  std::vector<std::int32_t> own_;     // position -> leaf
  std::vector<float> own_loss_;
  std::vector<std::int32_t> leaf_of_;      // original row -> leaf
  std::vector<std::uint32_t> next_order_;  // scratch of the sort
  std::vector<std::size_t> leaf_start_;    // leaf -> first position
  Aligned<typename Rows::Value> local_;    // the rows in the order of positions
  std::vector<std::uint32_t> identity_;
  bool copies_ = false, copied_ = false, placed_ = false, sorted_ = false;
};

}  // namespace silva
