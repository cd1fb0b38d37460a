// Sums of rows along an order, for the growth of kernel trees; see SweepLoops in simd.hpp.
//
// Columns are taken a few vectors at a time, so that the sums stay in registers while the rows go
// by. Widths are multiples of eight.
#pragma once

#include "lanes.hpp"
#include "simd.hpp"

namespace silva {
namespace {

template <class V, int vectors>
inline double sweep_square(const V* sums) {
  V square = sums[0] * sums[0];
  for (int v = 1; v < vectors; ++v) square += sums[v] * sums[v];
  return static_cast<double>(sum(square));
}

// Calls block.template take<V, vectors>(column) for consecutive columns of [0, width).
template <class Block>
inline void over_columns(std::size_t width, const Block& block) {
  std::size_t j = 0;
  for (; j + 64 <= width; j += 64) block.template take<F16, 4>(j);
  for (; j + 16 <= width; j += 16) block.template take<F16, 1>(j);
  for (; j < width; j += 8) block.template take<F8, 1>(j);
}

struct CentreBlock {
  const float* rows;
  std::size_t stride;
  const std::uint32_t* row;
  const std::uint32_t* place;
  std::size_t count;
  const float* mass;
  const float* mean;
  const float* rest;
  float* out;
  double* square;

  template <class V, int vectors>
  void take(std::size_t j) const {
    constexpr std::size_t kLanes = sizeof(V) / sizeof(float);
    V first[vectors], second[vectors], gap[vectors];
    for (int v = 0; v < vectors; ++v) {
      first[v] = load<V>(mean + j + v * kLanes);
      second[v] = load<V>(rest + j + v * kLanes);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = place ? place[k] : k;
      const float* x = rows + row[i] * stride + j;
      for (int v = 0; v < vectors; ++v) {
        gap[v] = (load<V>(x + v * kLanes) - first[v]) - second[v];
        const V scaled = mass[i] * gap[v];
        store(out + i * stride + j + v * kLanes, scaled);
      }
      *square += static_cast<double>(mass[i]) * sweep_square<V, vectors>(gap);
    }
  }
};
void centre_rows(const float* rows, std::size_t stride, std::size_t width, const std::uint32_t* row,
                 const std::uint32_t* place, std::size_t count, const float* mass,
                 const float* mean, const float* rest, float* out, double* square) {
  over_columns(width, CentreBlock{rows, stride, row, place, count, mass, mean, rest, out, square});
}

// Adds the rows of order[i, end) up, columns from j on; fetches what is to come, as far as order
// goes.
template <class V, int vectors>
inline void sweep_add(const float* rows, std::size_t stride, std::size_t j,
                      const std::uint32_t* order, std::size_t i, std::size_t end, std::size_t last,
                      V* sums) {
  constexpr std::size_t kLanes = sizeof(V) / sizeof(float);
  for (; i < end; ++i) {
    const float* x = rows + order[i] * stride + j;
    const float* later = rows + order[i + 8 < last ? i + 8 : i] * stride + j;
    for (int v = 0; v < vectors; ++v) {
      __builtin_prefetch(later + v * kLanes);
      sums[v] += load<V>(x + v * kLanes);
    }
  }
}

struct SweepBlock {
  const float* rows;
  std::size_t stride;
  const std::uint32_t* order;
  const std::uint32_t* end;
  std::size_t count;
  double* norm;

  template <class V, int vectors>
  void take(std::size_t j) const {
    const std::size_t last = count ? end[count - 1] : 0;
    V sums[vectors] = {};
    for (std::size_t s = 0; s < count; ++s) {
      sweep_add<V, vectors>(rows, stride, j, order, s ? end[s - 1] : 0, end[s], last, sums);
      norm[s] += sweep_square<V, vectors>(sums);
    }
  }
};
void sweep_norms(const float* rows, std::size_t stride, std::size_t width,
                 const std::uint32_t* order, const std::uint32_t* end, std::size_t count,
                 double* norm) {
  over_columns(width, SweepBlock{rows, stride, order, end, count, norm});
}

struct SegmentBlock {
  const float* rows;
  std::size_t stride;
  const std::uint32_t* order;
  const std::uint32_t* end;
  std::size_t count;
  float* sums;

  template <class V, int vectors>
  void take(std::size_t j) const {
    const std::size_t last = count ? end[count - 1] : 0;
    for (std::size_t s = 0; s < count; ++s) {
      V segment[vectors] = {};
      sweep_add<V, vectors>(rows, stride, j, order, s ? end[s - 1] : 0, end[s], last, segment);
      __builtin_memcpy(sums + s * stride + j, segment, sizeof(segment));
    }
  }
};
void segment_sums(const float* rows, std::size_t stride, std::size_t width,
                  const std::uint32_t* order, const std::uint32_t* end, std::size_t count,
                  float* sums) {
  over_columns(width, SegmentBlock{rows, stride, order, end, count, sums});
}

struct BandBlock {
  const float* sums;
  std::size_t stride;
  const std::uint32_t* first;
  const std::uint32_t* last;
  const float* share;
  std::size_t count;
  double* norm;

  template <class V, int vectors>
  void take(std::size_t j) const {
    constexpr std::size_t kLanes = sizeof(V) / sizeof(float);
    V whole[vectors] = {};
    std::size_t bin = 0;
    const float* next = share;
    for (std::size_t s = 0; s < count; ++s) {
      for (; bin < first[s]; ++bin)
        for (int v = 0; v < vectors; ++v) whole[v] += load<V>(sums + bin * stride + j + v * kLanes);
      V left[vectors];
      for (int v = 0; v < vectors; ++v) left[v] = whole[v];
      for (std::size_t b = first[s]; b < last[s]; ++b, ++next)
        for (int v = 0; v < vectors; ++v)
          left[v] += *next * load<V>(sums + b * stride + j + v * kLanes);
      norm[s] += sweep_square<V, vectors>(left);
    }
  }
};
void banded_norms(const float* sums, std::size_t stride, std::size_t width,
                  const std::uint32_t* first, const std::uint32_t* last, const float* share,
                  std::size_t count, double* norm) {
  over_columns(width, BandBlock{sums, stride, first, last, share, count, norm});
}

}  // namespace
}  // namespace silva
