// Loops over rows: dot products, walks down a tree, sums of rows; see RowLoops in simd.hpp.
#pragma once

#include "lanes.hpp"
#include "simd.hpp"

namespace silva {
namespace {

inline float row_dot(const float* x, const float* w, std::size_t n) {
  F16 a = {}, b = {};
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a += load<F16>(x + i) * load<F16>(w + i);
    b += load<F16>(x + i + 16) * load<F16>(w + i + 16);
  }
  for (; i + 16 <= n; i += 16) a += load<F16>(x + i) * load<F16>(w + i);
  const F8 v = fold(a + b);
  return sum(i < n ? v + load<F8>(x + i) * load<F8>(w + i) : v);
}
inline float row_dot(const std::uint8_t* x, const float* w, std::size_t n) {
  F16 a = {}, b = {};
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a += widen(x + i) * load<F16>(w + i);
    b += widen(x + i + 16) * load<F16>(w + i + 16);
  }
  for (; i < n; i += 16) a += widen(x + i) * load<F16>(w + i);
  return sum(a + b);
}
inline double row_dot(const double* x, const double* w, std::size_t n) {
  D8 a = {};
  for (std::size_t i = 0; i < n; i += 8) a += load<D8>(x + i) * load<D8>(w + i);
  return sum(a);
}

template <class T, class Real>
Real whole_row_dot(const T* x, const Real* w, std::size_t n) {
  return row_dot(x, w, n);
}

// sum_k r[k] row(slot[k]) over the columns of `width` vectors from column j on, in registers.
template <int width, class V, class T>
inline void combine_columns(const T* rows, std::size_t stride, const std::uint32_t* slot,
                            const float* r, std::size_t count, std::size_t j, std::size_t end,
                            double* out) {
  constexpr std::size_t kLanes = sizeof(V) / sizeof(float);
  for (std::size_t i = 0; i < count; i += 1024) {
    const std::size_t stop = i + 1024 < count ? i + 1024 : count;
    V sums[width] = {};
    for (std::size_t k = i; k < stop; ++k) {
      const T* x = rows + slot[k] * stride + j;
      __builtin_prefetch(rows + slot[k + 16 < count ? k + 16 : k] * stride + j);
      for (int v = 0; v < width; ++v) sums[v] += r[k] * row_lanes<V>(x + v * kLanes);
    }
    float part[width * kLanes];
    __builtin_memcpy(part, sums, sizeof(part));
    for (std::size_t l = 0; l < width * kLanes && j + l < end; ++l)
      out[j + l] += static_cast<double>(part[l]);
  }
}
// Rows are padded to 8 floats or 16 bytes: the last vector of a row may read its padding.
template <class T>
inline void combine(const T* rows, std::size_t stride, const std::uint32_t* slot, const float* r,
                    std::size_t count, std::size_t begin, std::size_t end, double* out) {
  std::size_t j = begin;
  for (; j + 64 <= end; j += 64) combine_columns<4, F16>(rows, stride, slot, r, count, j, end, out);
  for (; j + 16 <= end; j += 16) combine_columns<1, F16>(rows, stride, slot, r, count, j, end, out);
  if (j >= end) return;
  if constexpr (sizeof(T) == 1) {
    combine_columns<1, F16>(rows, stride, slot, r, count, j, end, out);
  } else {
    for (; j < end; j += 8) combine_columns<1, F8>(rows, stride, slot, r, count, j, end, out);
  }
}
void combine_f32(const float* rows, std::size_t stride, const std::uint32_t* slot, const float* r,
                 std::size_t count, std::size_t begin, std::size_t end, double* out) {
  combine(rows, stride, slot, r, count, begin, end, out);
}
void combine_u8(const std::uint8_t* rows, std::size_t stride, const std::uint32_t* slot,
                const float* r, std::size_t count, std::size_t begin, std::size_t end,
                double* out) {
  combine(rows, stride, slot, r, count, begin, end, out);
}

template <class T>
inline void prefetch(const T* row, std::size_t n) {
  for (std::size_t j = 0; j < n; j += 64 / sizeof(T)) __builtin_prefetch(row + j);
}

// Rows below the nodes they are at. Eight walk down together: one row's chain of load, dot, compare
// is all latency.
template <bool settles, class T, class Real>
inline void walk(const DenseTree<Real>& tree, const T* rows, std::size_t stride,
                 const std::uint32_t* slot, std::size_t count, const std::uint8_t* kind,
                 std::int32_t* reached) {
  constexpr std::size_t kGroup = 8;
  for (std::size_t i = 0; i < count; i += kGroup) {
    const std::size_t size = count - i < kGroup ? count - i : kGroup;
    const T* row[kGroup];
    std::int32_t node[kGroup];
    for (std::size_t g = 0; g < size; ++g) {
      row[g] = rows + (slot ? slot[i + g] : i + g) * stride;
      node[g] = reached[i + g];
    }
    for (int level = 0; level < tree.levels; ++level) {
      bool moved = false;
      for (std::size_t g = 0; g < size; ++g) {
        const std::int32_t at = node[g];
        if (settles ? tree.settled[at] >> kind[i + g] & 1 : tree.child[2 * at] == at) continue;
        const Real score =
            row_dot(row[g], tree.weights + static_cast<std::size_t>(at) * tree.stride,
                    tree.stride) +
            tree.bias[at];
        node[g] = tree.child[2 * at + (score >= 0)];
        moved = true;
      }
      if (!moved) break;
    }
    for (std::size_t g = 0; g < size; ++g) reached[i + g] = node[g];
  }
}

#ifdef __AVX512F__
// Narrow rows walk down sixteen at a time, a lane each: their columns are laid out by a
// transposition, and the planes of a level, at most 32, are looked up by a permutation.
constexpr std::size_t kNarrow = 64;
constexpr std::int32_t kTable = 32;

struct LaneLevel {
  std::int32_t nodes;   // on this level, leaves from above included
  std::size_t columns;  // that any of them reads
  std::uint8_t column[kNarrow];
  float weight[kNarrow][kTable];  // of column[k] in each node
  float bias[kTable];
  std::int32_t left[kTable], right[kTable];  // places on the next level; on the last one, nodes
};

inline F16 look_up(const float* table, I16 place, bool wide) {
  const __m512 low = _mm512_loadu_ps(table);
  if (!wide) return (F16)_mm512_permutexvar_ps((__m512i)place, low);
  return (F16)_mm512_permutex2var_ps(low, (__m512i)place, _mm512_loadu_ps(table + 16));
}
inline I16 look_up(const std::int32_t* table, I16 place, bool wide) {
  const __m512i low = _mm512_loadu_si512(table);
  if (!wide) return (I16)_mm512_permutexvar_epi32((__m512i)place, low);
  return (I16)_mm512_permutex2var_epi32(low, (__m512i)place, _mm512_loadu_si512(table + 16));
}

// Writes the levels below `root` down as tables; returns how many.
inline int lay_out(const DenseTree<float>& tree, std::int32_t root, LaneLevel* levels, int most) {
  std::int32_t node[2 * kTable] = {root}, next[2 * kTable];
  std::int32_t nodes = 1;
  int depth = 0;
  for (; depth < most && nodes <= kTable; ++depth) {
    bool decides = false;
    for (std::int32_t k = 0; k < nodes; ++k) decides |= tree.child[2 * node[k]] != node[k];
    if (!decides) break;
    LaneLevel& level = levels[depth];
    level.nodes = nodes;
    level.columns = 0;
    for (std::size_t j = 0; j < tree.stride; ++j) {
      float* weight = level.weight[level.columns];
      bool read = false;
      for (std::int32_t k = 0; k < nodes; ++k) {
        weight[k] = tree.weights[static_cast<std::size_t>(node[k]) * tree.stride + j];
        read |= weight[k] != 0;
      }
      level.column[level.columns] = static_cast<std::uint8_t>(j);
      level.columns += read;
    }
    std::int32_t places = 0;
    for (std::int32_t k = 0; k < nodes; ++k) {
      level.bias[k] = tree.bias[node[k]];
      level.left[k] = places;
      next[places++] = tree.child[2 * node[k]];
      if (next[places - 1] != node[k]) next[places++] = tree.child[2 * node[k] + 1];
      level.right[k] = places - 1;
    }
    nodes = places;
    for (std::int32_t k = 0; k < nodes; ++k) node[k] = next[k];
  }
  if (depth > 0) {
    LaneLevel& last = levels[depth - 1];
    for (std::int32_t k = 0; k < last.nodes; ++k) {
      last.left[k] = node[last.left[k]];
      last.right[k] = node[last.right[k]];
    }
  }
  return depth;
}

// The columns of sixteen rows.
template <class T>
inline void columns_of(const T* const* row, std::size_t stride, F16* x) {
  for (std::size_t j = 0; j < stride; j += 16) {
    if constexpr (sizeof(T) == 1) {
      U16 v[16];
      for (int k = 0; k < 16; ++k) v[k] = load<U16>(row[k] + j);
      transpose(v);
      for (int k = 0; k < 16; ++k) {
        std::uint8_t bytes[16];
        store(bytes, v[k]);
        x[j + k] = widen(bytes);
      }
    } else {
      F16 v[16];
      if (j + 16 <= stride) {
        for (int k = 0; k < 16; ++k) v[k] = load<F16>(row[k] + j);
        transpose(v);
        for (int k = 0; k < 16; ++k) x[j + k] = v[k];
      } else {  // eight columns: rows k and k + 8 side by side, three shuffles of the halves
        for (int k = 0; k < 8; ++k)
          v[k] = __builtin_shufflevector(load<F8>(row[k] + j), load<F8>(row[k + 8] + j), 0, 1, 2, 3,
                                         4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        F16 u[8];
        for (int round = 0; round < 3; ++round) {
          for (int k = 0; k < 4; ++k) {
            u[2 * k] = __builtin_shufflevector(v[k], v[k + 4], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9,
                                               25, 10, 26, 11, 27);
            u[2 * k + 1] = __builtin_shufflevector(v[k], v[k + 4], 4, 20, 5, 21, 6, 22, 7, 23, 12,
                                                   28, 13, 29, 14, 30, 15, 31);
          }
          for (int k = 0; k < 8; ++k) v[k] = u[k];
        }
        for (int k = 0; k < 8; ++k) x[j + k] = v[k];
      }
    }
  }
}

template <class T>
inline void walk_in_lanes(const LaneLevel* levels, int depth, const T* rows, std::size_t stride,
                          const std::uint32_t* slot, std::size_t count, std::int32_t* reached) {
  for (std::size_t i = 0; i < count; i += 16) {
    const T* row[16];
    for (std::size_t g = 0; g < 16; ++g) {  // past the end: the last row again
      const std::size_t k = i + g < count ? i + g : count - 1;
      row[g] = rows + (slot ? slot[k] : k) * stride;
      const std::size_t later = i + g + 32 < count ? i + g + 32 : count - 1;
      prefetch(rows + (slot ? slot[later] : later) * stride, stride);
    }
    F16 x[kNarrow];
    columns_of(row, stride, x);
    I16 place = {};
    for (int d = 0; d < depth; ++d) {
      const LaneLevel& level = levels[d];
      const bool wide = level.nodes > 16;
      F16 score = {}, other = {};
      std::size_t k = 0;
      for (; k + 2 <= level.columns; k += 2) {
        score += x[level.column[k]] * look_up(level.weight[k], place, wide);
        other += x[level.column[k + 1]] * look_up(level.weight[k + 1], place, wide);
      }
      if (k < level.columns) score += x[level.column[k]] * look_up(level.weight[k], place, wide);
      const I16 right = score + other + look_up(level.bias, place, wide) >= 0.0f;
      place = right ? look_up(level.right, place, wide) : look_up(level.left, place, wide);
    }
    std::int32_t node[16];
    store(node, place);
    for (std::size_t g = 0; g < 16 && i + g < count; ++g) reached[i + g] = node[g];
  }
}
#endif

template <class T, class Real>
void route(const DenseTree<Real>& tree, const T* rows, std::size_t stride,
           const std::uint32_t* slot, std::size_t count, std::int32_t root,
           const std::uint8_t* kind, std::int32_t* reached) {
  for (std::size_t i = 0; i < count; ++i) reached[i] = root;
#ifdef __AVX512F__
  if constexpr (sizeof(Real) == 4) {
    constexpr int kLeast = 3, kMost = 6;  // the layout pays after a few levels
    if (stride <= kNarrow && count >= 16) {
      LaneLevel levels[kMost];
      const int depth = lay_out(tree, root, levels, kMost);
      if (depth >= kLeast) walk_in_lanes(levels, depth, rows, stride, slot, count, reached);
    }
  }
#endif
  if (kind)
    walk<true>(tree, rows, stride, slot, count, kind, reached);
  else
    walk<false>(tree, rows, stride, slot, count, kind, reached);
}

template <class T, class Real>
void sides(const T* rows, std::size_t stride, const std::uint32_t* slot, std::size_t count,
           const Real* w, Real bias, char* right) {
  for (std::size_t i = 0; i < count; ++i)
    right[i] = row_dot(rows + slot[i] * stride, w, stride) + bias >= 0;
}

}  // namespace
}  // namespace silva
