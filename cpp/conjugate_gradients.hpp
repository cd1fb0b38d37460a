// Conjugate gradients for the label problem, all outputs together.
//
// Solves A X = B with A = diag(diagonal) - W for a symmetric sparse W: LapTAO paper, eq. 6, where
// W is gamma times the graph and diagonal is anchor + mu + row sums of W.
//
// Preconditioner: symmetric Gauss-Seidel inside fixed blocks of consecutive rows. With D the
// diagonal, L the strict lower triangle inside the blocks and R what lies between blocks,
// A = L + D + L' + R and M = (D + L) D^-1 (D + L'). Eisenstat's trick (SIAM J. Sci. Stat. Comput.
// 2, 1981) makes M free: in the variables u = (D + L)^-1 (B - A X), which have the units of X,
//
//   (D + L)^-1 A t = t + s,   t = (D + L')^-1 D p,   s = (D + L)^-1 (D (p - t) + R t),
//
// so that one product with A is a sweep up and a sweep down over the rows, and reads W once.
// One block takes half the iterations of a diagonal preconditioner, sixteen of a good order 60 %.
//
// The work is moving memory: three passes an iteration, a block of a pass is one task. A sum over
// the rows is made block by block, so the result is the same for any number of threads.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "parallel.hpp"

namespace silva {

// W by rows with sorted indices and no diagonal, and the diagonal of A.
struct LabelGraph {
  const std::int64_t* begin;
  const std::int32_t* index;
  const double* weight;
  const double* diagonal;
  std::int32_t n;
};

struct Convergence {
  int iterations = 0;
  std::vector<double> residual;  // sqrt(sum_i d_i u_i^2) of each column
};

// `width` columns at once, known to the compiler: the innermost loops are straight vector code.
template <int width>
class LabelSolver {
 public:
  // B and X are the first columns of rows of length `stride`; X holds the start.
  LabelSolver(const LabelGraph& graph, const double* b, double* x, std::size_t stride, Team& team)
      : g_(graph), b_(b), x_(x), stride_(stride), team_(team) {
    constexpr std::int32_t kBlocks = 16, kFewestRows = 2048;
    block_ = g_.n / kBlocks + 1 > kFewestRows ? g_.n / kBlocks + 1 : kFewestRows;
    for (auto* rows : {&p_, &t_, &s_, &u_})
      rows->reset(new double[static_cast<std::size_t>(g_.n) * width]);
  }

  // X becomes the answer. A column is done, and rests, when its residual is at most its target.
  Convergence solve(const double* target, int max_iterations) {
    Convergence done;
    Row step{}, turn{}, rho = start();
    for (;; ++done.iterations) {
      bool all = true;
      std::array<bool, width> rests;
      for (int k = 0; k < width; ++k) all &= rests[k] = !(std::sqrt(rho[k]) > target[k]);
      if (all || done.iterations == max_iterations) break;
      sweep_up(step, turn);
      const Row curvature = sweep_down();
      for (int k = 0; k < width; ++k)
        step[k] = rests[k] || !(curvature[k] > 0) ? 0 : rho[k] / curvature[k];
      const Row before = std::exchange(rho, advance(step));
      for (int k = 0; k < width; ++k) turn[k] = rests[k] ? 0 : rho[k] / before[k];
    }
    for (std::int32_t i = 0; i < g_.n; ++i)
      for (int k = 0; k < width; ++k) x(i)[k] += step[k] * row(t_, i)[k];
    for (double r : rho) done.residual.push_back(std::sqrt(r));
    return done;
  }

 private:
  using Row = std::array<double, width>;
  using Rows = std::unique_ptr<double[]>;

  static double* row(const Rows& rows, std::int32_t i) {
    return rows.get() + static_cast<std::size_t>(i) * width;
  }
  double* x(std::int32_t i) const { return x_ + static_cast<std::size_t>(i) * stride_; }
  const double* b(std::int32_t i) const { return b_ + static_cast<std::size_t>(i) * stride_; }

  // task(first, last, sum) for each block; returns the sums added up in the order of the blocks.
  template <class Task>
  Row over_blocks(const Task& task) {
    const auto n = static_cast<std::size_t>(g_.n), block = static_cast<std::size_t>(block_);
    std::vector<Row> sums((n + block - 1) / block, Row{});
    for_pieces(team_, n, block, [&](std::size_t first, std::size_t last, int) {
      task(static_cast<std::int32_t>(first), static_cast<std::int32_t>(last), sums[first / block]);
    });
    Row total{};
    for (const Row& sum : sums)
      for (int k = 0; k < width; ++k) total[k] += sum[k];
    return total;
  }

  static void add(double w, const double* v, Row& sum) {
    for (int k = 0; k < width; ++k) sum[k] += w * v[k];
  }

  // u = (D + L)^-1 (B - A X), p = t = 0; returns sum d u^2.
  Row start() {
    return over_blocks([&](std::int32_t first, std::int32_t last, Row& total) {
      for (std::int32_t i = first; i < last; ++i) {
        Row sum{};
        for (std::int64_t e = g_.begin[i]; e < g_.begin[i + 1]; ++e) {
          const std::int32_t j = g_.index[e];
          add(g_.weight[e], x(j), sum);
          if (first <= j && j < i) add(g_.weight[e], row(u_, j), sum);
        }
        const double d = g_.diagonal[i];
        for (int k = 0; k < width; ++k) {
          const double u = (b(i)[k] + sum[k]) / d - x(i)[k];
          row(u_, i)[k] = u;
          row(p_, i)[k] = row(t_, i)[k] = 0;
          total[k] += d * u * u;
        }
      }
    });
  }

  // X += step t with the old t, then p = u + turn p, then t = (D + L')^-1 D p.
  void sweep_up(const Row& step, const Row& turn) {
    over_blocks([&](std::int32_t first, std::int32_t last, Row&) {
      for (std::int32_t i = last; i-- > first;) {
        Row sum{};
        std::int64_t e = g_.begin[i + 1];
        while (e > g_.begin[i] && g_.index[e - 1] >= last) --e;
        for (; e > g_.begin[i] && g_.index[e - 1] > i; --e)
          add(g_.weight[e - 1], row(t_, g_.index[e - 1]), sum);
        const double c = 1 / g_.diagonal[i];
        double *x = this->x(i), *p = row(p_, i), *t = row(t_, i);
        const double* u = row(u_, i);
        for (int k = 0; k < width; ++k) {
          x[k] += step[k] * t[k];
          p[k] = u[k] + turn[k] * p[k];
          t[k] = p[k] + c * sum[k];
        }
      }
    });
  }

  // s = (D + L)^-1 (D (p - t) + R t); returns sum d p (t + s).
  Row sweep_down() {
    return over_blocks([&](std::int32_t first, std::int32_t last, Row& total) {
      for (std::int32_t i = first; i < last; ++i) {
        Row inside{}, between{};
        std::int64_t e = g_.begin[i];
        const std::int64_t end = g_.begin[i + 1];
        for (; e < end && g_.index[e] < first; ++e)
          add(g_.weight[e], row(t_, g_.index[e]), between);
        for (; e < end && g_.index[e] < i; ++e) add(g_.weight[e], row(s_, g_.index[e]), inside);
        while (e < end && g_.index[e] < last) ++e;
        for (; e < end; ++e) add(g_.weight[e], row(t_, g_.index[e]), between);
        const double d = g_.diagonal[i], c = 1 / d;
        const double *p = row(p_, i), *t = row(t_, i);
        double* s = row(s_, i);
        for (int k = 0; k < width; ++k) {
          s[k] = p[k] - t[k] + c * (inside[k] - between[k]);
          total[k] += d * p[k] * (t[k] + s[k]);
        }
      }
    });
  }

  // u -= step (t + s); returns sum d u^2.
  Row advance(const Row& step) {
    return over_blocks([&](std::int32_t first, std::int32_t last, Row& total) {
      for (std::int32_t i = first; i < last; ++i) {
        const double d = g_.diagonal[i];
        const double *t = row(t_, i), *s = row(s_, i);
        double* u = row(u_, i);
        for (int k = 0; k < width; ++k) {
          u[k] -= step[k] * (t[k] + s[k]);
          total[k] += d * u[k] * u[k];
        }
      }
    });
  }

  LabelGraph g_;
  const double* b_;
  double* x_;
  std::size_t stride_;
  Team& team_;
  std::int32_t block_;  // rows of a block
  Rows p_, t_, s_, u_;  // `width` numbers a row
};

// All columns, in panels of nearly equal width.
inline Convergence solve_labels(const LabelGraph& graph, const double* b, double* x,
                                std::size_t columns, const double* target, int max_iterations,
                                Team& team) {
  constexpr std::size_t kWidest = 10;
  Convergence all;
  const std::size_t panels = (columns + kWidest - 1) / kWidest;
  for (std::size_t k = 0, c = 0; k < panels; ++k) {
    const std::size_t width = (columns - c) / (panels - k);
    const auto solve_panel = [&]<std::size_t w>(std::integral_constant<std::size_t, w>) {
      if (width != w + 1) return;
      LabelSolver<w + 1> solver(graph, b + c, x + c, columns, team);
      const Convergence one = solver.solve(target + c, max_iterations);
      if (one.iterations > all.iterations) all.iterations = one.iterations;
      all.residual.insert(all.residual.end(), one.residual.begin(), one.residual.end());
    };
    [&]<std::size_t... w>(std::index_sequence<w...>) {
      (solve_panel(std::integral_constant<std::size_t, w>{}), ...);
    }(std::make_index_sequence<kWidest>{});
    c += width;
  }
  return all;
}

}  // namespace silva
