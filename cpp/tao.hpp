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
// remembered, so only the other child's subtree is walked, only until the loss there is settled,
// and of a large crowd only for a sample; narrow rows are copied into that order once an iteration,
// so the ranges stream through the cache.
#pragma once

#include <stdexcept>
#include <utility>

#include "axis.hpp"
#include "decisions.hpp"
#include "logistic.hpp"

namespace silva {

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
        decisions_(*rows_, std::move(structure)),
        leaves_(std::move(leaves)),
        options_(options),
        team_(threads),
        work_(static_cast<std::size_t>(team_.size())) {
    read_structure();
    const std::size_t n = rows_->n;
    position_.resize(n);
    own_.assign(n, 0);
    own_loss_.resize(n);
    std::iota(position_.begin(), position_.end(), 0u);
    order_ = position_;
    // Narrow rows in a large set: follow the order, or each visit jumps through memory.
    if constexpr (!Rows::kSparse)
      copies_ = rows_->stride * sizeof(typename Rows::Value) <= 1024 && n > 4096;
    set_planes(std::move(planes));
  }

  int levels() const override { return static_cast<int>(level_.size()); }
  const std::vector<Plane>& planes() const override { return decisions_.planes(); }
  const LeafModel& leaves() const override { return *leaves_; }

  void set_planes(std::vector<Plane> planes) override {
    stir();
    for (std::size_t i = 0; i < structure().size(); ++i)
      if (!structure().is_leaf(i)) decisions_.set(i, std::move(planes[i]));
  }

  double penalty() const override {
    double total = leaves_->penalty();
    for (std::size_t i = 0; i < structure().size(); ++i)
      if (!structure().is_leaf(i)) total += node_penalty(planes()[i]);
    return total;
  }
  std::size_t nonzeros() const override {
    std::size_t total = 0;
    for (std::size_t i = 0; i < structure().size(); ++i)
      if (!structure().is_leaf(i)) total += planes()[i].index.size();
    return total;
  }

  // Every point to the leaf that the current planes send it to.
  void route() override {
    for_pieces(team_, rows_->n, kPiece, [&](std::size_t begin, std::size_t end, int worker) {
      decisions_.walk(view(), slots() + begin, end - begin, 0, nullptr, own_.data() + begin,
                      work_[static_cast<std::size_t>(worker)].scratch);
      to_leaves(own_.data() + begin, end - begin);
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
    decisions_.settle(leaves_->table());
    // Where points came or went, the answer may have changed.
    const std::size_t last_fit = std::exchange(fitted_, ++now_);
    for (std::size_t node : leaf_node_)
      if (touched_[node] > last_fit) touched_[node] = now_;
    for_pieces(team_, rows_->n, kPiece, [&](std::size_t begin, std::size_t end, int) {
      leaves_->losses(position_.data() + begin, end - begin, own_.data() + begin,
                      own_loss_.data() + begin);
    });
    double total = 0;
    for (float loss : own_loss_) total += static_cast<double>(loss);
    return total;
  }

  // Solves all node problems of a level. `from_current` starts from the planes at hand; a first,
  // random tree is better forgotten.
  void update_level(int level, bool from_current) override {
    std::vector<std::int32_t> nodes;
    for (std::int32_t node : level_.at(static_cast<std::size_t>(level)))
      if (points(node) > 0 && !(from_current && is_calm(node))) nodes.push_back(node);
    if (nodes.empty()) return;
    ++now_;
    copy_rows();
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
    for (std::int32_t node : nodes) visited_[static_cast<std::size_t>(node)] = from_current * now_;
  }

 private:
  static constexpr std::size_t kPiece = 2048;

  struct Work {
    LogisticSolver<Rows> solver;
    typename Decisions<Rows>::Scratch scratch;
    // The points asked which child they prefer, or the points that change sides: positions, slots,
    // kinds, leaves in the other child and losses there.
    std::vector<std::uint32_t> position, slot;
    std::vector<std::uint8_t> kind;
    std::vector<std::int32_t> leaf;
    std::vector<float> loss;
    // The points that care.
    std::vector<std::uint32_t> caring;
    std::vector<float> weight, side;
    std::vector<char> right;
  };

  void read_structure() {
    const Structure& tree = structure();
    const std::size_t n = tree.size();
    leaf_rank_.assign(n, -1);
    visited_.assign(n, 0);
    touched_.assign(n, 0);
    first_leaf_.assign(n + 1, 0);
    last_leaf_.assign(n, 0);
    std::vector<int> depth(n, 0);
    std::int32_t leaves = 0;
    for (std::size_t i = 0; i < n; ++i) {
      first_leaf_[i] = leaves;
      if (tree.is_leaf(i)) {
        leaf_rank_[i] = leaves++;
        leaf_node_.push_back(i);
        continue;
      }
      const auto left = static_cast<std::size_t>(tree.left[i]);
      const auto right = static_cast<std::size_t>(tree.right[i]);
      depth[left] = depth[right] = depth[i] + 1;
      if (level_.size() <= static_cast<std::size_t>(depth[i]))
        level_.resize(static_cast<std::size_t>(depth[i]) + 1);
      level_[static_cast<std::size_t>(depth[i])].push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t i = n; i-- > 0;)
      last_leaf_[i] = tree.is_leaf(i) ? first_leaf_[i] + 1
                                      : last_leaf_[static_cast<std::size_t>(tree.right[i])];
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
  const std::uint32_t* slots() const { return copied_ ? position_.data() : order_.data(); }
  const Structure& structure() const { return decisions_.structure(); }
  // Nodes -> leaves; where a walk ended early, the first of the leaves below, which are all alike.
  void to_leaves(std::int32_t* node, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i)
      node[i] = first_leaf_[static_cast<std::size_t>(node[i])];
  }

  // Planes or points have moved everywhere.
  void stir() {
    sorted_ = false;
    touched_.assign(structure().size(), ++now_);
  }
  // Whether a node's last visit left it as it was and nothing below it has changed since: the visit
  // would end as the last one did. Nodes of a subtree are numbered one after the other.
  bool is_calm(std::int32_t node) const {
    const auto first = static_cast<std::size_t>(node);
    const std::size_t end = leaf_node_[static_cast<std::size_t>(last_leaf_[first]) - 1] + 1;
    return *std::max_element(touched_.begin() + node,
                             touched_.begin() + static_cast<std::ptrdiff_t>(end)) < visited_[first];
  }

  void touch(std::size_t node) {
    touched_[node] = now_;
    moved_.store(true, std::memory_order_relaxed);
  }

  // Counting sort of the points by leaf; within a leaf in the order of the original rows, so that
  // a state is the same however it was reached.
  void sort_by_leaf() {
    if (sorted_ && !moved_.exchange(false)) return;
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

  // Loss of positions (ascending, work.position) in the child of `node` that they are not in; fills
  // work.leaf and work.loss. With `early`, walks end where the loss is settled, not at a leaf.
  void visit_other_child(std::size_t node, const std::uint32_t* position, std::size_t count,
                         bool early, Work& work, Team& team) {
    const auto right = static_cast<std::size_t>(structure().right[node]);
    const std::uint32_t* cut =
        std::lower_bound(position, position + count, static_cast<std::uint32_t>(begin_of(right)));
    const auto middle = static_cast<std::size_t>(cut - position);
    const std::uint8_t* kind = early ? leaves_->table().kind : nullptr;
    const bool in_order = count > 0 && position[count - 1] - position[0] == count - 1;
    const std::uint32_t* slot = slots() + (count > 0 ? position[0] : 0);
    if (kind && in_order) kind += position[0];
    if (!in_order) {
      work.slot.resize(count);
      for (std::size_t i = 0; i < count; ++i) work.slot[i] = slots()[position[i]];
      slot = work.slot.data();
      if (kind) {
        work.kind.resize(count);
        for (std::size_t i = 0; i < count; ++i) work.kind[i] = kind[position[i]];
        kind = work.kind.data();
      }
    }
    work.leaf.resize(count);
    work.loss.resize(count);
    for_pieces(team, count, kPiece, [&](std::size_t from, std::size_t to, int worker) {
      // Walks of one node are spread over the team, each with a scratch of its own.
      auto& scratch = (&team == &team_ ? work_[static_cast<std::size_t>(worker)] : work).scratch;
      const auto walk = [&](std::size_t i, std::size_t end, std::int32_t root) {
        decisions_.walk(view(), slot + i, end - i, root, kind ? kind + i : nullptr,
                        work.leaf.data() + i, scratch);
      };
      const std::size_t turn = std::clamp(middle, from, to);
      walk(from, turn, structure().right[node]);
      walk(turn, to, structure().left[node]);
      to_leaves(work.leaf.data() + from, to - from);
      leaves_->losses(position + from, to - from, work.leaf.data() + from, work.loss.data() + from);
    });
  }

  // Finds the points that care, their better side and how much it matters. A hyperplane of few
  // columns needs no more than so many of them: a larger crowd is asked in rounds, every k-th point
  // each, until enough care, and these stand for the others.
  void ask(std::size_t node, Work& work, Team& team) {
    const std::size_t begin = begin_of(node), end = end_of(node), count = end - begin;
    const std::size_t middle = begin_of(static_cast<std::size_t>(structure().right[node]));
    const std::size_t enough = std::max<std::size_t>(std::size_t{1} << 13, 128 * rows_->d);
    const bool everyone = options_.split == SplitKind::kAxis;
    const std::size_t rounds = everyone ? 1 : std::max<std::size_t>(1, count / (4 * enough));
    std::size_t asked = 0, caring = 0;
    for (std::size_t round = 0; round < rounds && caring < enough; ++round) {
      const std::uint32_t* position = position_.data() + begin;
      std::size_t size = count;
      if (rounds > 1) {
        work.position.clear();
        for (std::size_t p = begin + round; p < end; p += rounds)
          work.position.push_back(static_cast<std::uint32_t>(p));
        position = work.position.data();
        size = work.position.size();
      }
      visit_other_child(node, position, size, true, work, team);
      asked += size;
      work.caring.resize(caring + size);
      work.weight.resize(caring + size);
      work.side.resize(caring + size);
      for (std::size_t i = 0; i < size; ++i) {  // no branch: who cares is hard to foresee
        const std::size_t p = position[i];
        const float own = own_loss_[p], other = work.loss[i];
        work.caring[caring] = slots()[p];
        work.weight[caring] = std::fabs(own - other);
        work.side[caring] = (p < middle) == (other < own) ? 1.0f : 0.0f;
        caring += own != other;
      }
    }
    const std::size_t step = everyone ? 1 : std::max<std::size_t>(1, caring / enough);
    const double others = static_cast<double>(count) / static_cast<double>(asked);
    const auto factor = static_cast<float>(others * static_cast<double>(step));
    std::size_t kept = 0;
    for (std::size_t i = 0; i < caring; i += step, ++kept) {
      work.caring[kept] = work.caring[i];
      work.weight[kept] = factor * work.weight[i];
      work.side[kept] = work.side[i];
    }
    work.caring.resize(kept);
    work.weight.resize(kept);
    work.side.resize(kept);
  }

  void update_node(std::size_t node, bool from_current, Work& work, Team& team) {
    if (begin_of(node) == end_of(node)) return;
    ask(node, work, team);
    if (work.caring.empty()) {  // a tree of single features must still become one
      if (options_.split == SplitKind::kAxis && planes()[node].index.size() > 1)
        accept(node, Plane{}, work, team);
      return;
    }
    Plane plane;  // empty: every point to one side
    const auto [lowest, highest] = std::minmax_element(work.side.begin(), work.side.end());
    if (*lowest == *highest) {
      plane.bias = *highest > 0 ? 1.0f : -1.0f;
    } else {
      if (options_.split != SplitKind::kAxis)
        plane = work.solver.solve(view(), work.caring.data(), work.caring.size(),
                                  work.weight.data(), work.side.data(),
                                  from_current ? planes()[node] : Plane{}, options_.logistic, team);
      if (options_.split != SplitKind::kOblique)
        plane = better_on_axis(std::move(plane), work, team);
    }
    accept(node, std::move(plane), work, team);
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
    const AxisSplit split = best_axis_split(view(), work.caring.data(), work.weight.data(),
                                            work.caring.size(), all, team);
    if (split.feature < 0 || split.kept - options_.alpha <= kept + all.tie) return best;
    best.index = {split.feature};
    best.value = {split.coefficient};
    best.bias = split.bias;
    return best;
  }
  // Sum of the preferences (work.weight) that a plane sends right.
  double sent_right(const Plane& plane, Work& work) const {
    work.right.resize(work.caring.size());
    decisions_.sides(plane, view(), work.caring.data(), work.caring.size(), work.right.data(),
                     work.scratch);
    double total = 0;
    for (std::size_t i = 0; i < work.caring.size(); ++i)
      if (work.right[i]) total += static_cast<double>(work.weight[i]);
    return total;
  }

  // Takes the plane and moves the points that it sends to the other child, unless the objective
  // must not rise and would.
  void accept(std::size_t node, Plane plane, Work& work, Team& team) {
    const std::size_t begin = begin_of(node), count = end_of(node) - begin;
    const std::size_t middle = begin_of(static_cast<std::size_t>(structure().right[node]));
    work.right.resize(count);
    for_pieces(team, count, kPiece, [&](std::size_t from, std::size_t to, int worker) {
      auto& scratch = (&team == &team_ ? work_[static_cast<std::size_t>(worker)] : work).scratch;
      decisions_.sides(plane, view(), slots() + begin + from, to - from, work.right.data() + from,
                       scratch);
    });
    work.position.resize(count);
    std::size_t moving = 0;
    for (std::size_t p = begin; p < begin + count; ++p) {
      work.position[moving] = static_cast<std::uint32_t>(p);
      moving += (work.right[p - begin] != 0) != (p >= middle);
    }
    work.position.resize(moving);
    visit_other_child(node, work.position.data(), work.position.size(), false, work, team);
    if (options_.monotone) {
      double change = node_penalty(plane) - node_penalty(planes()[node]);
      for (std::size_t i = 0; i < work.position.size(); ++i)
        change +=
            static_cast<double>(work.loss[i]) - static_cast<double>(own_loss_[work.position[i]]);
      if (change > 0) return;
    }
    for (std::size_t i = 0; i < work.position.size(); ++i) {
      const std::size_t p = work.position[i];
      touch(leaf_node_[static_cast<std::size_t>(own_[p])]);
      touch(leaf_node_[static_cast<std::size_t>(work.leaf[i])]);
      own_[p] = work.leaf[i];
      own_loss_[p] = work.loss[i];
    }
    if (plane == planes()[node]) return;
    touch(node);
    decisions_.set(node, std::move(plane));
  }

  std::shared_ptr<const Rows> rows_;
  Decisions<Rows> decisions_;
  std::unique_ptr<LeafModel> leaves_;
  TaoOptions options_;
  Team team_;
  std::vector<Work> work_;

  std::vector<std::vector<std::int32_t>> level_;
  std::vector<std::int32_t> leaf_rank_, first_leaf_, last_leaf_;
  std::vector<std::size_t> leaf_node_;
  // When a plane changed or points came or went; when a node was last visited; when leaves were
  // last fitted. Time passes from level to level.
  std::vector<std::size_t> touched_, visited_;
  std::size_t now_ = 0, fitted_ = 0;

  std::vector<std::uint32_t> position_;  // 0, 1, 2, ...
  std::vector<std::uint32_t> order_;     // position -> original row
  std::vector<std::int32_t> own_;        // position -> leaf
  std::vector<float> own_loss_;
  std::vector<std::int32_t> leaf_of_;      // original row -> leaf
  std::vector<std::uint32_t> next_order_;  // scratch of the sort
  std::vector<std::size_t> leaf_start_;    // leaf -> first position
  Aligned<typename Rows::Value> local_;    // the rows in the order of positions
  bool copies_ = false, copied_ = false, placed_ = false, sorted_ = false;
  std::atomic<bool> moved_{false};
};

}  // namespace silva
