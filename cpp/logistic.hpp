// The oblique node problem: weighted logistic regression with an L1 penalty.
//
//   min over w, b   sum_i c_i log(1 + exp(-s_i (w . x_i + b))) + l1 |w|_1 + l2/2 |w|_2^2,
//
// the convex stand-in for the weighted 0/1 problem of a decision node (boosted TAO paper, eq. 4;
// LapTAO paper, section 3.2). The bias carries no penalty.
//
// Given   the points' rows, weights c_i > 0, sides t_i in {0, 1} (s_i = 2 t_i - 1), a plane to
//         start from. Returned  the improved plane.
//
// Proximal Newton: a quadratic model of the logistic loss around the current plane, minimised by
// coordinate descent over a working set of columns, then a line search. Columns are centred by
// their curvature-weighted mean, which takes the bias out of the model exactly. Small working sets
// use the explicit Hessian, large ones residuals (as in liblinear's newGLMNET). A visit makes only
// a few Newton steps: the tree around the node moves, too.
#pragma once

#include "block.hpp"

namespace silva {

struct LogisticOptions {
  double l1 = 1;
  double l2 = 0;
  int newton_steps = 2;
  int sweeps = 5;        // coordinate sweeps over residuals, per Newton step
  double tolerance = 0;  // > 0: go on, at most newton_steps, until the largest violation of the
                         // optimality conditions is below tolerance * total weight
};

template <class Rows>
class LogisticSolver {
 public:
  Plane solve(const View<Rows>& view, const std::uint32_t* slot, std::size_t points,
              const float* weight, const float* side, const Plane& start,
              const LogisticOptions& options, Team& team) {
    points_ = points;
    block_.reset(points);
    w_.clear();
    const std::size_t padded = block_.stride();
    c_.assign(padded, 0);
    t_.assign(padded, 0);
    std::copy(weight, weight + points, c_.begin());
    std::copy(side, side + points, t_.begin());
    for (auto* v : {&f_, &r_, &h_, &trial_, &trial_r_, &trial_h_, &q_, &move_}) v->resize(padded);

    begin_at(view, slot, start, options, team);
    const bool to_the_end = options.tolerance > 0;
    for (int step = 0; step < options.newton_steps; ++step) {
      double violation = 0;
      if (step == 0 || to_the_end)
        violation = grow(view, slot, options, team);
      else
        gradient(options, team);
      violation = std::max(violation, violation_inside(options));
      if (violation <= (to_the_end ? options.tolerance * total_weight_ : kClose * options.l1))
        break;
      const double before = objective(options);
      if (!newton_step(options, team)) break;
      if (!to_the_end && before - objective(options) < kWorthwhile * before) break;
    }
    return plane();
  }

 private:
  // Small problems keep every column in the block; others grow a working set.
  static constexpr std::size_t kAllColumns = 24;
  static constexpr std::size_t kGramColumns = 24;
  static constexpr double kClose = 0.01;  // a violation of this share of l1 is not worth a step
  // A step that lowers the objective by less than this share is the last one: the tree around the
  // node moves more by the next visit.
  static constexpr double kWorthwhile = 0.01;
  static constexpr std::size_t kBlockLimit = std::size_t{1} << 26;  // entries of the block

  // The plane we are given, unless the best constant is better: pseudolabels may have turned over.
  void begin_at(const View<Rows>& view, const std::uint32_t* slot, const Plane& start,
                const LogisticOptions& options, Team& team) {
    double total = 0, right = 0;
    for (std::size_t i = 0; i < points_; ++i) {
      total += static_cast<double>(c_[i]);
      right += static_cast<double>(c_[i]) * static_cast<double>(t_[i]);
    }
    total_weight_ = total;
    const double share = std::clamp(right / total, 1e-6, 1 - 1e-6);
    const double constant_loss = -(right * std::log(share) + (total - right) * std::log(1 - share));
    if (!start.index.empty()) {
      block_.add(view, slot, start.index, team);
      w_.assign(start.value.begin(), start.value.end());
      bias_ = static_cast<double>(start.bias);
      std::fill(f_.begin(), f_.end(), start.bias);
      apply(w_, f_.data(), team);
      simd().logistic(f_.data(), c_.data(), t_.data(), f_.size(), r_.data(), h_.data(), &sums_);
      if (objective(options) < constant_loss) return;
      block_.reset(points_);
      w_.clear();
    }
    bias_ = std::log(share / (1 - share));
    std::fill(f_.begin(), f_.end(), static_cast<float>(bias_));
    simd().logistic(f_.data(), c_.data(), t_.data(), f_.size(), r_.data(), h_.data(), &sums_);
  }

  double objective(const LogisticOptions& options) const {
    return sums_.loss + penalty(w_, options);
  }
  static double penalty(const std::vector<double>& w, const LogisticOptions& options) {
    double one = 0, two = 0;
    for (double v : w) {
      one += std::fabs(v);
      two += v * v;
    }
    return options.l1 * one + 0.5 * options.l2 * two;
  }

  // y += sum_a v_a x_a over the block, point ranges in parallel.
  void apply(const std::vector<double>& v, float* y, Team& team) const {
    if constexpr (Block::kDense) {
      for_pieces(team, block_.stride(), 2048, [&](std::size_t begin, std::size_t end, int) {
        for (std::size_t a = 0; a < v.size(); ++a)
          if (v[a] != 0) block_.add_scaled(a, v[a], y, begin, end);
      });
    } else {
      for (std::size_t a = 0; a < v.size(); ++a)
        if (v[a] != 0) block_.add_scaled(a, v[a], y);
    }
  }

  // Adds the columns that violate optimality most, and finds the gradient in the block; returns the
  // largest violation seen outside.
  double grow(const View<Rows>& view, const std::uint32_t* slot, const LogisticOptions& options,
              Team& team) {
    const std::size_t d = view.rows->d;
    inside_.assign(d, 0);
    for (std::int32_t j : block_.feature) inside_[static_cast<std::size_t>(j)] = 1;
    std::vector<std::int32_t> chosen;
    double violation = 0;
    const bool all = !Rows::kSparse && d <= kAllColumns;
    if (all) {
      for (std::size_t j = 0; j < d; ++j)
        if (!inside_[j]) chosen.push_back(static_cast<std::int32_t>(j));
    } else {
      gradient_.resize(d, 0.0);
      combine(view, slot, r_.data(), points_, team, gradient_, touched_);
      std::vector<std::pair<double, std::int32_t>> candidates;
      for (std::int32_t j : touched_) {
        const double excess = std::fabs(gradient_[static_cast<std::size_t>(j)]) - options.l1;
        if (inside_[static_cast<std::size_t>(j)] || excess <= 0) continue;
        violation = std::max(violation, excess);
        candidates.emplace_back(-excess, j);
      }
      std::size_t room = std::max<std::size_t>(64, block_.feature.size());
      const std::size_t most = std::max<std::size_t>(64, kBlockLimit / block_.stride());
      room = std::min(room, most - std::min(most, block_.feature.size()));
      if (candidates.size() > room) {
        std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(room),
                         candidates.end());
        candidates.resize(room);
      }
      for (const auto& candidate : candidates) chosen.push_back(candidate.second);
      std::sort(chosen.begin(), chosen.end());
    }
    if (!chosen.empty()) {
      block_.add(view, slot, chosen, team);
      w_.resize(block_.feature.size(), 0.0);
    }
    if (all) {
      gradient(options, team);
      return violation;
    }
    g_.resize(w_.size());
    for (std::size_t a = 0; a < w_.size(); ++a)
      g_[a] = gradient_[static_cast<std::size_t>(block_.feature[a])] + options.l2 * w_[a];
    for (std::int32_t j : touched_) gradient_[static_cast<std::size_t>(j)] = 0;
    return violation;
  }

  // Gradient of the smooth part in the block.
  void gradient(const LogisticOptions& options, Team& team) {
    const std::size_t size = w_.size();
    g_.resize(size);
    for_pieces(team, size, 8, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t a = begin; a < end; ++a)
        g_[a] = block_.dot(a, r_.data()) + options.l2 * w_[a];
    });
  }
  // The largest violation of optimality in the block.
  double violation_inside(const LogisticOptions& options) const {
    double violation = std::fabs(sums_.gradient);
    for (std::size_t a = 0; a < w_.size(); ++a) {
      const double v = w_[a] > 0   ? std::fabs(g_[a] + options.l1)
                       : w_[a] < 0 ? std::fabs(g_[a] - options.l1)
                                   : std::max(0.0, std::fabs(g_[a]) - options.l1);
      violation = std::max(violation, v);
    }
    return violation;
  }

  bool newton_step(const LogisticOptions& options, Team& team) {
    const std::size_t size = w_.size();
    first_.resize(size);
    mean_.resize(size);
    d_.assign(size, 0.0);
    const double curvature = std::max(sums_.curvature, 1e-12);
    const bool to_the_end = options.tolerance > 0;
    if (Block::kDense && size <= kGramColumns)
      descend_gram(options, curvature, to_the_end ? 1000 : 30);
    else
      descend_residuals(options, curvature, to_the_end ? 100 : options.sweeps, team);

    double bias_move = -sums_.gradient / curvature;
    for (std::size_t a = 0; a < size; ++a) bias_move -= mean_[a] * d_[a];
    return line_search(options, bias_move, team);
  }

  void descend_gram(const LogisticOptions& options, double curvature, int sweeps) {
    const std::size_t size = w_.size();
    if (size == 0) return;
    if constexpr (Block::kDense) {
      block_.gram(h_.data(), scratch_, hessian_);
      for (std::size_t a = 0; a < size; ++a) {
        double one, two;
        block_.moments(a, h_.data(), &one, &two);
        mean_[a] = one / curvature;
      }
      const double ridge = options.l2 + 1e-9 * total_weight_;
      inverse_.resize(size);
      for (std::size_t a = 0; a < size; ++a) {
        for (std::size_t b = 0; b <= a; ++b) {
          const double v = hessian_[a * size + b] - mean_[a] * mean_[b] * curvature;
          hessian_[a * size + b] = hessian_[b * size + a] = v;
        }
        hessian_[a * size + a] = std::max(hessian_[a * size + a], 0.0) + ridge;
        inverse_[a] = 1.0 / hessian_[a * size + a];
      }
      slope_.resize(size);
      for (std::size_t a = 0; a < size; ++a) slope_[a] = g_[a] - mean_[a] * sums_.gradient;
      simd().descend(hessian_.data(), inverse_.data(), size, w_.data(), options.l1, sweeps,
                     options.tolerance > 0 ? 1e-12 : 1e-4, slope_.data(), d_.data());
    }
  }

  void descend_residuals(const LogisticOptions& options, double curvature, int sweeps, Team& team) {
    const std::size_t size = w_.size();
    const double ridge = options.l2 + 1e-9 * total_weight_;
    slope_.resize(size);
    diagonal_.resize(size);
    inverse_.resize(size);
    live_.resize(size);
    for_pieces(team, size, 8, [&](std::size_t begin, std::size_t end, int) {
      for (std::size_t a = begin; a < end; ++a) {
        double second;
        block_.moments(a, h_.data(), &first_[a], &second);
        mean_[a] = first_[a] / curvature;
        diagonal_[a] = std::max(second - first_[a] * mean_[a], 0.0) + ridge;
        inverse_[a] = 1.0 / diagonal_[a];
        slope_[a] = g_[a] - mean_[a] * sums_.gradient;
      }
    });
    const bool to_the_end = options.tolerance > 0;
    block_.descend({h_.data(), size, w_.data(), slope_.data(), first_.data(), mean_.data(),
                    diagonal_.data(), inverse_.data(), options.l1, options.l2, sweeps,
                    to_the_end ? 1e-12 : 1e-3, !to_the_end, q_.data(), d_.data(), live_.data()});
  }

  bool line_search(const LogisticOptions& options, double bias_move, Team& team) {
    const std::size_t size = w_.size();
    std::fill(move_.begin(), move_.end(), static_cast<float>(bias_move));
    apply(d_, move_.data(), team);
    const double before = penalty(w_, options);
    double promised = sums_.gradient * bias_move;
    for (std::size_t a = 0; a < size; ++a) promised += (g_[a] - options.l2 * w_[a]) * d_[a];
    goal_.resize(size);
    double length = 1;
    for (int attempt = 0; attempt < 10; ++attempt, length *= 0.5) {
      for (std::size_t a = 0; a < size; ++a) goal_[a] = w_[a] + length * d_[a];
      const double after = penalty(goal_, options);
      const double decrease = length * promised + after - before;
      std::copy(f_.begin(), f_.end(), trial_.begin());
      simd().floats.add_scaled(static_cast<float>(length), move_.data(), trial_.data(),
                               trial_.size());
      LogisticSums sums;
      simd().logistic(trial_.data(), c_.data(), t_.data(), trial_.size(), trial_r_.data(),
                      trial_h_.data(), &sums);
      if (sums.loss + after <= sums_.loss + before + 0.01 * std::min(decrease, 0.0)) {
        w_.swap(goal_);
        bias_ += length * bias_move;
        f_.swap(trial_);
        r_.swap(trial_r_);
        h_.swap(trial_h_);
        sums_ = sums;
        return true;
      }
    }
    return false;
  }

  Plane plane() const {
    std::vector<std::pair<std::int32_t, float>> terms;
    for (std::size_t a = 0; a < w_.size(); ++a)
      if (w_[a] != 0) terms.emplace_back(block_.feature[a], static_cast<float>(w_[a]));
    std::sort(terms.begin(), terms.end());
    Plane result;
    result.bias = static_cast<float>(bias_);
    for (const auto& [j, v] : terms) {
      result.index.push_back(j);
      result.value.push_back(v);
    }
    return result;
  }

  using Block = typename BlockOf<Rows>::type;

  std::size_t points_ = 0;
  Block block_;
  std::vector<double> w_, g_, d_, first_, mean_, diagonal_, inverse_, hessian_, slope_, goal_,
      gradient_;
  std::vector<std::int32_t> touched_;
  std::vector<char> inside_, live_;
  Aligned<float> c_, t_, f_, r_, h_, trial_, trial_r_, trial_h_, q_, move_, scratch_;
  LogisticSums sums_;
  double bias_ = 0, total_weight_ = 0;
};

}  // namespace silva
