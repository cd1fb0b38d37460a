// Loops over the columns of a node problem; see ColumnLoops, logistic and descend in simd.hpp.
#pragma once

#include "lanes.hpp"
#include "simd.hpp"

namespace silva {
namespace {

// Neighbouring columns of 16 rows come out of one transposition.
template <class V, class T>
inline void pick_tiles(const T* const* row, std::size_t rows, std::size_t width,
                       const std::int32_t* column, std::size_t columns, T* out,
                       std::size_t out_stride) {
  for (std::size_t a = 0; a < columns;) {
    const std::int32_t tile = column[a] / 16;
    std::size_t end = a + 1;
    while (end < columns && column[end] / 16 == tile) ++end;
    const auto first = static_cast<std::size_t>(16 * tile);
    if (rows < 16 || end - a < 3 || first + 16 > width) {
      for (; a < end; ++a)
        for (std::size_t k = 0; k < rows; ++k) out[a * out_stride + k] = row[k][column[a]];
      continue;
    }
    V v[16];
    for (int k = 0; k < 16; ++k) v[k] = load<V>(row[k] + first);
    transpose(v);
    for (; a < end; ++a) store(out + a * out_stride, v[column[a] % 16]);
  }
}

template <class T>
void pick(const T* const* row, std::size_t rows, std::size_t width, const std::int32_t* column,
          std::size_t columns, T* out, std::size_t out_stride) {
  if constexpr (sizeof(T) == 1) {
    pick_tiles<U16>(row, rows, width, column, columns, out, out_stride);
  } else {
#ifdef __AVX512F__
    pick_tiles<F16>(row, rows, width, column, columns, out, out_stride);
#else  // no instruction shuffles sixteen floats
    for (std::size_t a = 0; a < columns; ++a)
      for (std::size_t k = 0; k < rows; ++k) out[a * out_stride + k] = row[k][column[a]];
#endif
  }
}

// T is float or byte: the columns of a block as they are stored.
template <class T>
double dot(const T* x, const float* v, std::size_t n) {
  double total = 0;
  for (std::size_t s = 0; s < n; s += kBlock) {
    const std::size_t e = s + kBlock < n ? s + kBlock : n;
    F16 a = {}, b = {}, c = {}, d = {};
    std::size_t i = s;
    for (; i + 64 <= e; i += 64) {
      a += row_lanes<F16>(x + i) * load<F16>(v + i);
      b += row_lanes<F16>(x + i + 16) * load<F16>(v + i + 16);
      c += row_lanes<F16>(x + i + 32) * load<F16>(v + i + 32);
      d += row_lanes<F16>(x + i + 48) * load<F16>(v + i + 48);
    }
    for (; i < e; i += 16) a += row_lanes<F16>(x + i) * load<F16>(v + i);
    total += static_cast<double>(sum((a + b) + (c + d)));
  }
  return total;
}
template <class T>
void add_scaled(float a, const T* x, float* y, std::size_t n) {
  const F16 s = splat(a);
  for (std::size_t i = 0; i < n; i += 16)
    store(y + i, load<F16>(y + i) + s * row_lanes<F16>(x + i));
}
template <class T>
void moments(const T* x, const float* h, std::size_t n, double* first, double* second) {
  double total1 = 0, total2 = 0;
  for (std::size_t s = 0; s < n; s += kBlock) {
    const std::size_t e = s + kBlock < n ? s + kBlock : n;
    F16 one = {}, two = {};
    for (std::size_t i = s; i < e; i += 16) {
      const F16 v = row_lanes<F16>(x + i), w = load<F16>(h + i) * v;
      one += w;
      two += w * v;
    }
    total1 += static_cast<double>(sum(one));
    total2 += static_cast<double>(sum(two));
  }
  *first = total1;
  *second = total2;
}

// The columns of a block as coordinate descent sees them.
template <class T>
struct BlockColumns {
  const T* values;
  const float* unit;
  std::size_t n;

  const T* column(std::size_t a) const { return values + a * n; }
  double scaled(std::size_t a, double total) const { return static_cast<double>(unit[a]) * total; }

  double dot(std::size_t a, const float* q) const {
    return scaled(a, silva::dot<T>(column(a), q, n));
  }
  void add(double z, std::size_t b, const float* h, float* q) const {
    const F16 s = splat(static_cast<float>(scaled(b, z)));
    for (std::size_t i = 0; i < n; i += 16)
      store(q + i, load<F16>(q + i) + s * (load<F16>(h + i) * row_lanes<F16>(column(b) + i)));
  }
  double add_then_dot(double z, std::size_t b, std::size_t a, const float* h, float* q) const {
    const F16 s = splat(static_cast<float>(scaled(b, z)));
    const T *moved = column(b), *x = column(a);
    double total = 0;
    for (std::size_t begin = 0; begin < n; begin += kBlock) {
      const std::size_t end = begin + kBlock < n ? begin + kBlock : n;
      const auto step = [&](std::size_t i) {
        const F16 v = load<F16>(q + i) + s * (load<F16>(h + i) * row_lanes<F16>(moved + i));
        store(q + i, v);
        return v * row_lanes<F16>(x + i);
      };
      F16 even = {}, odd = {};
      std::size_t i = begin;
      for (; i + 32 <= end; i += 32) {
        even += step(i);
        odd += step(i + 16);
      }
      if (i < end) even += step(i);
      total += static_cast<double>(sum(even + odd));
    }
    return scaled(a, total);
  }
};
template <class T>
void descend_block(const T* columns, const float* unit, std::size_t n, const ColumnDescent& model) {
  for (std::size_t i = 0; i < n; i += 16) store(model.q + i, F16{});
  descend_columns(BlockColumns<T>{columns, unit, n}, model);
}

// loss = c (log(1 + e^f) - t f), residual = c (p - t), curvature = c p (1 - p) with a floor.
void logistic(const float* f, const float* c, const float* t, std::size_t n, float* residual,
              float* curvature, LogisticSums* sums) {
  LogisticSums total;
  for (std::size_t s = 0; s < n; s += kBlock) {
    const std::size_t e = s + kBlock < n ? s + kBlock : n;
    F16 loss = {}, gradient = {}, second = {};
    for (std::size_t i = s; i < e; i += 16) {
      const F16 z = load<F16>(f + i), weight = load<F16>(c + i), side = load<F16>(t + i);
      const I16 positive = z > 0.0f;
      const F16 u = exp_nonpositive(choose(positive, -z, z));
      const F16 inverse = 1.0f / (1.0f + u);
      const F16 p = choose(positive, inverse, u * inverse);
      F16 variance = u * inverse * inverse;
      variance = choose(variance < 1e-6f, splat(1e-6f), variance);
      const F16 r = weight * (p - side), h = weight * variance;
      loss += weight * (choose(positive, z, F16{}) - side * z + log1p_unit(u));
      gradient += r;
      second += h;
      store(residual + i, r);
      store(curvature + i, h);
    }
    total.loss += static_cast<double>(sum(loss));
    total.gradient += static_cast<double>(sum(gradient));
    total.curvature += static_cast<double>(sum(second));
  }
  *sums = total;
}

// Tiles of 4 x 4 columns over runs of 512 points; copies of a run, plain and scaled by h, stay in
// the cache.
template <class T>
void gram(const T* columns, std::size_t column_stride, std::size_t count, const float* h,
          std::size_t n, float* scratch, double* out) {
  constexpr std::size_t kRun = 512;
  float* plain = scratch + count * kRun;
  for (std::size_t a = 0; a < count * count; ++a) out[a] = 0;
  for (std::size_t s = 0; s < n; s += kRun) {
    const std::size_t length = s + kRun < n ? kRun : n - s;
    for (std::size_t a = 0; a < count; ++a) {
      const T* x = columns + a * column_stride + s;
      for (std::size_t i = 0; i < length; i += 16) {
        const F16 v = row_lanes<F16>(x + i);
        store(plain + a * kRun + i, v);
        store(scratch + a * kRun + i, v * load<F16>(h + s + i));
      }
    }
    for (std::size_t a = 0; a < count; a += 4)
      for (std::size_t b = 0; b <= a; b += 4) {
        const float* x[4];
        const float* y[4];
        for (std::size_t k = 0; k < 4; ++k) {  // past the end: repeat the last column, not stored
          x[k] = scratch + (a + k < count ? a + k : count - 1) * kRun;
          y[k] = plain + (b + k < count ? b + k : count - 1) * kRun;
        }
        F16 tile[4][4] = {};
        for (std::size_t i = 0; i < length; i += 16) {
          const F16 x0 = load<F16>(x[0] + i), x1 = load<F16>(x[1] + i), x2 = load<F16>(x[2] + i),
                    x3 = load<F16>(x[3] + i);
          for (int k = 0; k < 4; ++k) {
            const F16 v = load<F16>(y[k] + i);
            tile[0][k] += x0 * v;
            tile[1][k] += x1 * v;
            tile[2][k] += x2 * v;
            tile[3][k] += x3 * v;
          }
        }
        for (std::size_t i = 0; i < 4 && a + i < count; ++i)
          for (std::size_t k = 0; k < 4 && b + k <= a + i; ++k)
            out[(a + i) * count + b + k] += static_cast<double>(sum(tile[i][k]));
      }
  }
}

void descend(const double* hessian, const double* inverse, std::size_t size, const double* w,
             double l1, int sweeps, double stop, double* slope, double* d) {
  for (std::size_t a = 0; a < size; ++a) d[a] = 0;
  double first = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    double largest = 0;
    for (std::size_t a = 0; a < size; ++a) {
      const double* row = hessian + a * size;
      const double at = w[a] + d[a], h = row[a], goal = h * at - slope[a];
      const double z = coordinate_move(goal, at, l1, inverse[a]);
      if (z == 0) continue;
      largest = z * z * h > largest ? z * z * h : largest;
      d[a] += z;
      for (std::size_t b = 0; b < size; ++b) slope[b] += z * row[b];
    }
    if (sweep == 0) first = largest;
    if (largest <= stop * first) break;
  }
}

}  // namespace
}  // namespace silva
