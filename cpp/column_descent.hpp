// Coordinate descent on the quadratic model of a node problem, over residuals.
//
//   min over d   slope . d + 1/2 d' H d + l1 |w + d|_1,   from d = 0,
//   H = sum_i h_i (x_i - mean)(x_i - mean)' + ridge
//
// (newGLMNET's subproblem, Yuan, Ho and Lin 2012, with the bias taken out by centring). H is never
// formed: q_i = h_i (x_i . d) follows the moves, and kappa keeps what centring adds to it, so that
// sparse columns stay sparse. A move is written into q while the next column is multiplied with it:
// one pass over the points instead of two.
//
// Compiled for several instruction sets: all functions here have internal linkage.
#pragma once

#include <cstddef>

namespace silva {

struct ColumnDescent {
  // Given: curvature of each point; of each column its coefficient, slope at d = 0, sum of h x,
  // mean by h, diagonal of H, and one over it.
  const float* h;
  std::size_t columns;
  const double *w, *slope, *first, *mean, *diagonal, *inverse;
  double l1, ridge;
  int sweeps;    // at most
  double stop;   // ends when a sweep moves so many times less than the first one
  bool screens;  // a column far from entering is left out after one look
  // Returned: q, and the moves.
  float* q;
  double* d;
  char* live;  // scratch, one a column
};

namespace {

// From `at` to the minimum of  v^2 / (2 inverse) - goal v + l1 |v|: what depends on `goal`, the
// last to be known, is one product and one sum.
inline double coordinate_move(double goal, double at, double l1, double inverse) {
  return goal > l1    ? goal * inverse - (l1 * inverse + at)
         : goal < -l1 ? goal * inverse + (l1 * inverse - at)
                      : -at;
}

// Columns offer dot(a, q) and add(z, b, h, q): q += z h x_b; and both in one pass, add_then_dot.
template <class Columns>
inline void descend_columns(const Columns& columns, const ColumnDescent& model) {
  double kappa = 0, first = 0, z = 0;
  bool moved = false, waits = false;  // something has moved; the last move is not in q yet
  std::size_t last = 0;
  for (std::size_t a = 0; a < model.columns; ++a) {
    model.d[a] = 0;
    model.live[a] = 1;
  }
  for (int sweep = 0; sweep < model.sweeps; ++sweep) {
    double largest = 0;
    for (std::size_t a = 0; a < model.columns; ++a) {
      if (!model.live[a]) continue;
      // What needs no product is ready before it: this loop is one chain of latencies.
      const double at = model.w[a] + model.d[a], h = model.diagonal[a], l1 = model.l1;
      const double known =
          model.slope[a] + model.ridge * model.d[a] + kappa * model.first[a] - h * at;
      const double product = waits   ? columns.add_then_dot(z, last, a, model.h, model.q)
                             : moved ? columns.dot(a, model.q)
                                     : 0.0;
      waits = false;
      const double goal = -(known + product);
      if (at == 0 && model.screens && goal < l1 && goal > -l1) {
        model.live[a] = 0;
        continue;
      }
      const double move = coordinate_move(goal, at, l1, model.inverse[a]);
      if (move == 0) continue;
      largest = move * move * h > largest ? move * move * h : largest;
      model.d[a] += move;
      kappa -= move * model.mean[a];
      z = move;
      last = a;
      moved = waits = true;
    }
    if (sweep == 0) first = largest;
    if (largest <= model.stop * first) break;
  }
  if (waits) columns.add(z, last, model.h, model.q);
}

}  // namespace
}  // namespace silva
