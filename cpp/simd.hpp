// The inner loops, compiled once per instruction set and chosen when running.
//
// simd_kernels.cpp is built several times with different compiler flags; each build fills one
// table. It holds nothing but loops over raw pointers and calls no inline library function, so the
// linker can never mix code of one instruction set into another. Every reduction has a fixed
// order, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

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
  double (*dot)(const T* x, const float* v, std::size_t n);
  void (*add_scaled)(float a, const T* x, float* y, std::size_t n);  // y += a x
  void (*add_weighted)(float a, const float* h, const T* x, float* y,
                       std::size_t n);  // y += a h x
  void (*moments)(const T* x, const float* h, std::size_t n, double* first,
                  double* second);  // sums of h x and h x^2
  // Gram matrix sum_i h[i] x_a[i] x_b[i] of `count` columns, lower triangle, row-major, leading
  // dimension `count`; scratch holds 2 * count * 512 floats.
  void (*gram)(const T* columns, std::size_t column_stride, std::size_t count, const float* h,
               std::size_t n, float* scratch, double* out);
};

struct Simd {
  const char* name;

  // x . w over n elements; n is a multiple of 8 (float) or 16 (bytes).
  float (*dot_f32)(const float* x, const float* w, std::size_t n);
  float (*dot_u8)(const std::uint8_t* x, const float* w, std::size_t n);

  // sum_i r[i] * row(slot[i]) over columns [begin, end): the gradient of a linear model.
  void (*combine_f32)(const float* rows, std::size_t stride, const std::uint32_t* slot,
                      const float* r, std::size_t count, std::size_t begin, std::size_t end,
                      double* out);
  void (*combine_u8)(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* slot,
                     const float* r, std::size_t count, std::size_t begin, std::size_t end,
                     double* out);

  // Leaf node of each row. slot may be null (rows in order); start may be null (all at `root`).
  void (*route_f32)(const DenseTree<float>& tree, const float* rows, std::size_t stride,
                    const std::uint32_t* slot, std::size_t count, const std::int32_t* start,
                    std::int32_t root, std::int32_t* leaf);
  void (*route_u8)(const DenseTree<float>& tree, const std::uint8_t* rows, std::size_t stride,
                   const std::uint32_t* slot, std::size_t count, const std::int32_t* start,
                   std::int32_t root, std::int32_t* leaf);
  void (*route_f64)(const DenseTree<double>& tree, const double* rows, std::size_t stride,
                    const std::uint32_t* slot, std::size_t count, const std::int32_t* start,
                    std::int32_t root, std::int32_t* leaf);

  ColumnLoops<float> floats;
  ColumnLoops<std::uint8_t> bytes;

  // Residuals and curvatures of the logistic loss at scores f; padding has weight c = 0.
  void (*logistic)(const float* f, const float* c, const float* t, std::size_t n, float* residual,
                   float* curvature, LogisticSums* sums);

  template <class T>
  const ColumnLoops<T>& columns() const {
    if constexpr (sizeof(T) == 1)
      return bytes;
    else
      return floats;
  }
};

// The best table this processor can run.
const Simd& simd();

}  // namespace silva
