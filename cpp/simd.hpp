// The inner loops, compiled once per instruction set and chosen when running.
//
// simd_kernels.cpp is built several times with different compiler flags; each build fills one
// table. Its headers hold nothing but loops over raw pointers and call no inline library function,
// so the linker can never mix code of one instruction set into another. Every reduction has a fixed
// order, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "column_descent.hpp"

namespace silva {

// A tree with dense hyperplanes as the routing loops read it. A row goes to child[2 * node + 1]
// when weights[node] . row + bias[node] >= 0. A leaf is its own child.
template <class Real>
struct DenseTree {
  const std::int32_t* child;
  const Real* weights;
  const Real* bias;
  std::size_t stride;  // elements between two hyperplanes: the padded width of a row
  int levels;          // decisions on the longest way down
  // Bit k of settled[node]: a row of kind k may stop there. All bits are set at a leaf.
  const std::uint64_t* settled = nullptr;
};

// Loops over rows stored as T, padded to whole vectors with zeros.
template <class T, class Real>
struct RowLoops {
  // x . w over n elements, a multiple of 8 (float) or 16 (bytes).
  Real (*dot)(const T* x, const Real* w, std::size_t n);
  // The node that each row reaches from `root`: a leaf, or where its kind is settled. slot may be
  // null (rows in order), kind may be null (all go down to the leaves).
  void (*route)(const DenseTree<Real>& tree, const T* rows, std::size_t stride,
                const std::uint32_t* slot, std::size_t count, std::int32_t root,
                const std::uint8_t* kind, std::int32_t* reached);
  // Whether w . row + bias >= 0, summed in the same order as when routing.
  void (*sides)(const T* rows, std::size_t stride, const std::uint32_t* slot, std::size_t count,
                const Real* w, Real bias, char* right);
};

// Sums over the points of a node problem, filled by Simd::logistic.
struct LogisticSums {
  double loss = 0;
  double gradient = 0;   // of the bias
  double curvature = 0;  // of the bias
};

// Loops over the columns of a node problem, stored as T. Vectors are padded to a multiple of 16
// with zeros, so n is always the padded length.
template <class T>
struct ColumnLoops {
  // Picks columns of up to 16 rows: out[a * out_stride + k] = row[k][column[a]]. Columns ascend;
  // `width` is the padded width of a row.
  void (*pick)(const T* const* row, std::size_t rows, std::size_t width, const std::int32_t* column,
               std::size_t columns, T* out, std::size_t out_stride);
  double (*dot)(const T* x, const float* v, std::size_t n);
  void (*add_scaled)(float a, const T* x, float* y, std::size_t n);  // y += a x
  // Coordinate descent over columns with n points each, `unit` to a step of T.
  void (*descend)(const T* columns, const float* unit, std::size_t n, const ColumnDescent& model);
  void (*moments)(const T* x, const float* h, std::size_t n, double* first,
                  double* second);  // sums of h x and h x^2
  // Gram matrix sum_i h[i] x_a[i] x_b[i] of `count` columns, lower triangle, row-major, leading
  // dimension `count`; scratch holds 2 * count * 512 floats.
  void (*gram)(const T* columns, std::size_t column_stride, std::size_t count, const float* h,
               std::size_t n, float* scratch, double* out);
};

// Loops of the neighbour search. Points lie in groups of 16, coordinate by coordinate; a query is
// one lane of a group, so its coordinates are 16 elements apart.
template <class Real>
struct NeighbourLoops {
  // Distances of four queries to groups of points, queries x groups x 16. Bit i of `within`
  // (queries x groups) says that lane i is at most limit[query]; other lanes may be unfinished.
  // Returns the coordinates looked at, all groups together.
  std::size_t (*point_distances)(const Real* points, std::size_t groups, std::size_t dims,
                                 const Real* const* query, const Real* limit, Real* distance,
                                 std::uint32_t* within);
  // Distances of a group of 16 queries to a box, over the first `dims` coordinates.
  void (*box_distances)(const Real* queries, std::size_t dims, const Real* low, const Real* high,
                        Real* distance);
};

// Loops over rows in the order of a column; sums are of columns [0, width), a multiple of 8.
struct SweepLoops {
  // Row i of `out` is mass[i] (rows[row[i]] - mean - rest), for i < count or for i in place[0,
  // count) where that is not null; adds mass[i] |rows[row[i]] - mean - rest|^2 to `square`.
  void (*centre)(const float* rows, std::size_t stride, std::size_t width, const std::uint32_t* row,
                 const std::uint32_t* place, std::size_t count, const float* mass,
                 const float* mean, const float* rest, float* out, double* square);
  // norm[s] += |rows order[0], ..., order[end[s] - 1] added up|^2 for ascending ends.
  void (*norms)(const float* rows, std::size_t stride, std::size_t width,
                const std::uint32_t* order, const std::uint32_t* end, std::size_t count,
                double* norm);
  // Row s of `sums` is the sum of rows order[end[s - 1]], ..., order[end[s] - 1].
  void (*segments)(const float* rows, std::size_t stride, std::size_t width,
                   const std::uint32_t* order, const std::uint32_t* end, std::size_t count,
                   float* sums);
  // norm[s] += |rows 0, ..., first[s] - 1 and shares of first[s], ..., last[s] - 1 added up|^2 for
  // ascending `first`; the shares of one s follow those of the one before.
  void (*banded)(const float* sums, std::size_t stride, std::size_t width,
                 const std::uint32_t* first, const std::uint32_t* last, const float* share,
                 std::size_t count, double* norm);
};

struct Simd {
  const char* name;

  RowLoops<float, float> float_rows;
  RowLoops<std::uint8_t, float> byte_rows;
  RowLoops<double, double> double_rows;

  // sum_i r[i] * row(slot[i]) over columns [begin, end): the gradient of a linear model.
  void (*combine_f32)(const float* rows, std::size_t stride, const std::uint32_t* slot,
                      const float* r, std::size_t count, std::size_t begin, std::size_t end,
                      double* out);
  void (*combine_u8)(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* slot,
                     const float* r, std::size_t count, std::size_t begin, std::size_t end,
                     double* out);

  ColumnLoops<float> floats;
  ColumnLoops<std::uint8_t> bytes;

  // Residuals and curvatures of the logistic loss at scores f; padding has weight c = 0.
  void (*logistic)(const float* f, const float* c, const float* t, std::size_t n, float* residual,
                   float* curvature, LogisticSums* sums);

  // Coordinate descent on a quadratic with an L1 penalty,
  //   min over d   slope . d + d' H d / 2 + l1 |w + d|_1,   from d = 0,
  // until a sweep moves `stop` times less than the first one. H is row-major, size x size, given
  // with one over its diagonal; slope is left as the gradient at d.
  void (*descend)(const double* hessian, const double* inverse, std::size_t size, const double* w,
                  double l1, int sweeps, double stop, double* slope, double* d);

  // Sums of squares, and of absolute values.
  NeighbourLoops<float> squared_f32, absolute_f32;
  NeighbourLoops<double> squared_f64, absolute_f64;

  SweepLoops sweeps;

  // What n points of a map (a multiple of 16; padding has no mass) do to a point at `at`: the sum
  // of mass k, then of mass k'(gap^2) gap along each of one to three axes; see pair_sum.hpp.
  void (*repel)(const float* z, std::size_t stride, int axes, const float* mass, const float* at,
                std::size_t n, bool cauchy, double* sums);

  template <class T>
  const auto& rows() const {
    if constexpr (sizeof(T) == 1)
      return byte_rows;
    else if constexpr (sizeof(T) == 4)
      return float_rows;
    else
      return double_rows;
  }
  template <class T>
  const ColumnLoops<T>& columns() const {
    if constexpr (sizeof(T) == 1)
      return bytes;
    else
      return floats;
  }
  template <class Real>
  const NeighbourLoops<Real>& neighbours(bool absolute) const {
    if constexpr (sizeof(Real) == 4)
      return absolute ? absolute_f32 : squared_f32;
    else
      return absolute ? absolute_f64 : squared_f64;
  }
};

// The best table this processor can run.
const Simd& simd();

}  // namespace silva
