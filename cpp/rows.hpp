// The training rows as the optimiser stores them: scaled, immutable, shared by all trees of a fit.
//
// In scaled units column j is (x_j - centre_j) / scale_j. Three storages, one interface:
//   DenseRows<float>         scaled values;
//   DenseRows<std::uint8_t>  codes of columns that sit on a grid of at most 256 steps: a quarter
//                            of the memory traffic, scaled value = unit_j * code;
//   SparseRows               scaled CSR (centre 0).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

#include "parallel.hpp"
#include "simd.hpp"

namespace silva {

// Memory from the start of a cache line, not set to zero unless a value is asked for.
template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
  template <class U>
  void construct(U* p) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
  template <class U>
  bool operator==(const CacheLineAllocator<U>&) const {
    return true;
  }
};
template <class T>
using Aligned = std::vector<T, CacheLineAllocator<T>>;

inline std::size_t round_up(std::size_t n, std::size_t step) {
  return (n + step - 1) / step * step;
}

// A hyperplane in scaled units: right when value . x[index] + bias >= 0. Indices ascend.
struct Plane {
  std::vector<std::int32_t> index;
  std::vector<float> value;
  float bias = -1;

  bool operator==(const Plane&) const = default;
  double l1() const {
    double total = 0;
    for (float v : value) total += std::fabs(v);
    return total;
  }
};

template <class T>
class DenseRows {
 public:
  static constexpr bool kSparse = false;
  static constexpr std::size_t kPad = sizeof(T) == 1 ? 16 : 8;
  using Value = T;

  DenseRows(std::size_t rows, std::size_t columns)
      : n(rows), d(columns), stride(round_up(columns, kPad)), data(rows * stride), unit(columns) {}

  std::size_t n, d, stride;
  Aligned<T> data;
  std::vector<float> unit;  // scaled value = unit * stored value

  const T* row(std::size_t i) const { return data.data() + i * stride; }
};

class SparseRows {
 public:
  static constexpr bool kSparse = true;
  using Value = float;

  std::size_t n = 0, d = 0;
  std::vector<std::int64_t> begin;  // n + 1
  std::vector<std::int32_t> index;
  std::vector<float> value;
};

// ---- preparation --------------------------------------------------------------------------------

struct ColumnStatistics {
  std::vector<double> minimum, maximum, mean, deviation;
};

constexpr std::size_t kStripe = 64;  // columns that a thread takes down all rows at a time

// weight may be null: every row counts once.
template <class Real>
ColumnStatistics column_statistics(const Real* x, std::size_t n, std::size_t d,
                                   const double* weight, Team& team) {
  ColumnStatistics s;
  s.minimum.assign(d, 0);
  s.maximum.assign(d, 0);
  s.mean.assign(d, 0);
  s.deviation.assign(d, 0);
  double total = static_cast<double>(n);
  if (weight) total = std::accumulate(weight, weight + n, 0.0);
  for_pieces(team, d, kStripe, [&](std::size_t begin, std::size_t end, int) {
    Real least[kStripe], most[kStripe];
    std::copy(x + begin, x + end, least);
    std::copy(x + begin, x + end, most);
    for (std::size_t i = 1; i < n; ++i)
      for (std::size_t k = 0; k < end - begin; ++k) {
        const Real v = x[i * d + begin + k];
        least[k] = v < least[k] ? v : least[k];
        most[k] = v > most[k] ? v : most[k];
      }
    std::copy(least, least + (end - begin), &s.minimum[begin]);
    std::copy(most, most + (end - begin), &s.maximum[begin]);
    // Moments of the column taken to [0, 1]: nothing cancels, overflows or vanishes.
    double low[kStripe], inverse[kStripe], one[kStripe] = {}, two[kStripe] = {};
    for (std::size_t j = begin; j < end; ++j) {
      const double range = s.maximum[j] - s.minimum[j];
      low[j - begin] = s.minimum[j];
      inverse[j - begin] = range > 0 ? 1.0 / range : 0.0;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double mass = weight ? weight[i] : 1.0;
      for (std::size_t k = 0; k < end - begin; ++k) {
        const double v = (static_cast<double>(x[i * d + begin + k]) - low[k]) * inverse[k];
        one[k] += mass * v;
        two[k] += mass * v * v;
      }
    }
    for (std::size_t j = begin; j < end; ++j) {
      const double range = s.maximum[j] - s.minimum[j], mean = one[j - begin] / total;
      s.mean[j] = s.minimum[j] + range * mean;
      s.deviation[j] = range * std::sqrt(std::max(0.0, two[j - begin] / total - mean * mean));
    }
  });
  return s;
}

// Grids of a stripe of columns: value = low + code / inverse with codes in 0..255. Steps like 1/255
// are not binary numbers: hence the tolerances.
template <class Real>
class ByteGrids {
 public:
  ByteGrids(const double* minimum, const double* maximum, std::size_t count) : count_(count) {
    for (std::size_t k = 0; k < count; ++k) {
      low_[k] = static_cast<Real>(minimum[k]);
      range_[k] = maximum[k] - minimum[k];
      set_step(k, range_[k]);
    }
  }
  double step(std::size_t k) const { return step_[k]; }

  // Whether a row is on the grids.
  bool hold(const Real* x) const {
    int off = 0;
    for (std::size_t k = 0; k < count_; ++k) {
      const float code = static_cast<float>((x[k] - low_[k]) * inverse_[k]);
      const float rest = code - static_cast<float>(static_cast<std::int32_t>(code + 0.5f));
      off |= (rest > kTolerance) | (rest < -kTolerance);
    }
    return !off;
  }
  // Refines the steps so that the row is on the grids, by Euclid's algorithm; false if a column
  // has more than 255 steps then.
  bool admit(const Real* x) {
    for (std::size_t k = 0; k < count_; ++k) {
      const double smallest = range_[k] / 255.5;
      double a = step_[k], b = static_cast<double>(x[k] - low_[k]);
      while (b > 0.25 * smallest) {  // below: rounding, as no step can be that small
        const double rest = std::fabs(a - std::nearbyint(a / b) * b);
        a = b;
        b = rest;
      }
      if (a < smallest) return false;
      set_step(k, a);
    }
    return true;
  }

 private:
  static constexpr float kTolerance = 5e-5f;  // k/255 in float32 is off by a third of this

  void set_step(std::size_t k, double step) {  // the range is a whole number of steps
    step_[k] = step > 0 ? range_[k] / std::nearbyint(range_[k] / step) : 0.0;
    inverse_[k] = static_cast<Real>(step > 0 ? 1.0 / step_[k] : 0.0);
  }
  std::size_t count_;
  Real low_[kStripe], inverse_[kStripe];
  double range_[kStripe], step_[kStripe];
};

// Grid step of each column, or empty when one column has none.
template <class Real>
std::vector<double> byte_grid(const Real* x, std::size_t n, std::size_t d,
                              const std::vector<double>& minimum,
                              const std::vector<double>& maximum, Team& team) {
  std::vector<double> step(d);
  std::atomic<bool> found{true};
  for_pieces(team, d, kStripe, [&](std::size_t begin, std::size_t end, int) {
    ByteGrids<Real> grids(&minimum[begin], &maximum[begin], end - begin);
    for (std::size_t i = 0; i < n && found; ++i)
      if (!grids.hold(x + i * d + begin) && !grids.admit(x + i * d + begin)) found = false;
    // A step refined late may not fit values seen early: check them all once.
    for (std::size_t i = 0; i < n && found; ++i)
      if (!grids.hold(x + i * d + begin)) found = false;
    for (std::size_t k = 0; k < end - begin; ++k) step[begin + k] = grids.step(k);
  });
  return found ? step : std::vector<double>{};
}

template <class Real>
DenseRows<std::uint8_t> encode_bytes(const Real* x, std::size_t n, std::size_t d,
                                     const std::vector<double>& minimum,
                                     const std::vector<double>& step, const double* scale,
                                     Team& team) {
  DenseRows<std::uint8_t> rows(n, d);
  std::vector<double> inverse(d);
  for (std::size_t j = 0; j < d; ++j) {
    inverse[j] = step[j] > 0 ? 1.0 / step[j] : 0.0;
    rows.unit[j] = static_cast<float>(step[j] > 0 ? step[j] / scale[j] : 0.0);
  }
  for_pieces(team, n, 1024, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      std::uint8_t* out = rows.data.data() + i * rows.stride;
      for (std::size_t j = 0; j < d; ++j)
        out[j] = static_cast<std::uint8_t>(
            (static_cast<double>(x[i * d + j]) - minimum[j]) * inverse[j] + 0.5);
      std::fill(out + d, out + rows.stride, std::uint8_t{0});
    }
  });
  return rows;
}

template <class Real>
DenseRows<float> encode_floats(const Real* x, std::size_t n, std::size_t d, const double* centre,
                               const double* scale, Team& team) {
  DenseRows<float> rows(n, d);
  std::fill(rows.unit.begin(), rows.unit.end(), 1.0f);
  std::vector<double> inverse(d);
  for (std::size_t j = 0; j < d; ++j) inverse[j] = 1.0 / scale[j];
  for_pieces(team, n, 1024, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t i = begin; i < end; ++i) {
      float* out = rows.data.data() + i * rows.stride;
      for (std::size_t j = 0; j < d; ++j)
        out[j] = static_cast<float>((static_cast<double>(x[i * d + j]) - centre[j]) * inverse[j]);
      std::fill(out + d, out + rows.stride, 0.0f);
    }
  });
  return rows;
}

// ---- what the optimiser asks of rows ------------------------------------------------------------

// Rows in the order of the optimiser: position p stands for storage slot[p] of `data`.
template <class Rows>
struct View {
  const Rows* rows;
  const typename Rows::Value* data;  // dense: rows->data or a permuted copy; sparse: unused
};

// sum_k r[k] row(slot[k]) in scaled units. `touched` lists the columns that may be non-zero; `out`
// must be zero on entry and is left to the caller to clear.
template <class T>
void combine(const View<DenseRows<T>>& view, const std::uint32_t* slot, const float* r,
             std::size_t count, Team& team, std::vector<double>& out,
             std::vector<std::int32_t>& touched) {
  const auto& rows = *view.rows;
  touched.resize(rows.d);
  for (std::size_t j = 0; j < rows.d; ++j) touched[j] = static_cast<std::int32_t>(j);
  for_pieces(team, rows.d, 128, [&](std::size_t begin, std::size_t end, int) {
    if constexpr (sizeof(T) == 1)
      simd().combine_u8(view.data, rows.stride, slot, r, count, begin, end, out.data());
    else
      simd().combine_f32(view.data, rows.stride, slot, r, count, begin, end, out.data());
    for (std::size_t j = begin; j < end; ++j) out[j] *= static_cast<double>(rows.unit[j]);
  });
}
inline void combine(const View<SparseRows>& view, const std::uint32_t* slot, const float* r,
                    std::size_t count, Team&, std::vector<double>& out,
                    std::vector<std::int32_t>& touched) {
  const auto& rows = *view.rows;
  touched.clear();
  for (std::size_t k = 0; k < count; ++k)
    for (std::int64_t e = rows.begin[slot[k]]; e < rows.begin[slot[k] + 1]; ++e) {
      const std::int32_t j = rows.index[e];
      if (out[j] == 0) {
        touched.push_back(j);
        out[j] = 1e-300;  // marks the column; far below any rounding
      }
      out[j] += static_cast<double>(r[k]) * static_cast<double>(rows.value[e]);
    }
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
}

// One row written out in scaled units.
template <class T>
void expand(const View<DenseRows<T>>& view, std::size_t slot, float* out) {
  const T* row = view.data + slot * view.rows->stride;
  for (std::size_t j = 0; j < view.rows->d; ++j)
    out[j] = view.rows->unit[j] * static_cast<float>(row[j]);
}
inline void expand(const View<SparseRows>& view, std::size_t slot, float* out) {
  std::fill(out, out + view.rows->d, 0.0f);
  for (std::int64_t e = view.rows->begin[slot]; e < view.rows->begin[slot + 1]; ++e)
    out[view.rows->index[e]] = view.rows->value[e];
}

}  // namespace silva
