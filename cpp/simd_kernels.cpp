// One instruction set's table of inner loops; SILVA_ISA names it. See simd.hpp.
//
// Written with the compilers' vector extension: sixteen float lanes everywhere, which each
// instruction set cuts into its own registers. Lanes are summed in a fixed order.
#include "simd.hpp"

#include "neighbour_loops.hpp"
#include "sweep_loops.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define SILVA_JOIN_(a, b) a##b
#define SILVA_JOIN(a, b) SILVA_JOIN_(a, b)

namespace silva {
namespace {

typedef float F16 __attribute__((vector_size(64)));
typedef std::int32_t I16 __attribute__((vector_size(64)));
typedef float F8 __attribute__((vector_size(32)));
typedef double D8 __attribute__((vector_size(64)));
typedef std::uint8_t U16 __attribute__((vector_size(16)));

constexpr std::size_t kBlock = 4096;  // float sums are folded into doubles this often

template <class V, class T>
inline V load(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
inline void store(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}
inline F16 splat(float a) { return F16{} + a; }

inline float sum(F8 v) {
  typedef float F4 __attribute__((vector_size(16)));
  const F4 q =
      __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const F4 p = q + __builtin_shufflevector(q, q, 2, 3, 0, 1);
  return p[0] + p[1];
}
inline F8 fold(F16 v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
}
inline float sum(F16 v) { return sum(fold(v)); }
inline double sum(D8 v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
// Sixteen bytes as floats; compilers spell the generic conversion lane by lane.
inline F16 widen(const std::uint8_t* p) {
#if defined(__AVX512F__)
  return (F16)_mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  F16 v;
  for (int half = 0; half < 2; ++half) {
    const __m256 part = _mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * half))));
    __builtin_memcpy(reinterpret_cast<char*>(&v) + 32 * half, &part, 32);
  }
  return v;
#else
  return __builtin_convertvector(load<U16>(p), F16);
#endif
}

// ---- rows -------------------------------------------------------------------------------------

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

template <class V>
inline V row_lanes(const float* p) {
  return load<V>(p);
}
template <class V>
inline V row_lanes(const std::uint8_t* p) {
  return widen(p);
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

// Sixteen vectors of sixteen as a matrix, transposed by four perfect shuffles.
template <class V>
inline void transpose(V* v) {
  V u[16];
  for (int round = 0; round < 4; ++round) {
    for (int k = 0; k < 8; ++k) {
      u[2 * k] = __builtin_shufflevector(v[k], v[k + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21,
                                         6, 22, 7, 23);
      u[2 * k + 1] = __builtin_shufflevector(v[k], v[k + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                             13, 29, 14, 30, 15, 31);
    }
    for (int k = 0; k < 16; ++k) v[k] = u[k];
  }
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

// ---- points of a node problem -------------------------------------------------------------------

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

inline F16 choose(I16 mask, F16 yes, F16 no) { return mask ? yes : no; }

// e^x for x <= 0, to a few units in the last place (Cephes' polynomial).
inline F16 exp_nonpositive(F16 x) {
  x = choose(x < -87.0f, splat(-87.0f), x);
  const F16 shifted = x * 1.44269504088896341f - 0.5f;
  const I16 k = __builtin_convertvector(shifted, I16);  // truncates: rounds x / ln 2, as x <= 0
  const F16 n = __builtin_convertvector(k, F16);
  const F16 r = x - n * 0.693359375f + n * 2.12194440e-4f;
  F16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const I16 bits = (k + 127) << 23;
  F16 power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return p * power;
}
// log(1 + u) for u in [0, 1]: 2 atanh(u / (2 + u)).
inline F16 log1p_unit(F16 u) {
  const F16 s = u / (u + 2.0f), z = s * s;
  F16 p = splat(2.0f / 13);
  p = p * z + 2.0f / 11;
  p = p * z + 2.0f / 9;
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  p = p * z + 2.0f;
  return p * s;
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

#include "pair_loops.hpp"

namespace silva {

extern const Simd SILVA_JOIN(simd_, SILVA_ISA);
const Simd SILVA_JOIN(simd_, SILVA_ISA) = {
#define SILVA_QUOTE_(a) #a
#define SILVA_QUOTE(a) SILVA_QUOTE_(a)
    SILVA_QUOTE(SILVA_ISA),
    {whole_row_dot<float, float>, route<float, float>, sides<float, float>},
    {whole_row_dot<std::uint8_t, float>, route<std::uint8_t, float>, sides<std::uint8_t, float>},
    {whole_row_dot<double, double>, route<double, double>, sides<double, double>},
    combine_f32,
    combine_u8,
    {pick<float>, dot<float>, add_scaled<float>, descend_block<float>, moments<float>, gram<float>},
    {pick<std::uint8_t>, dot<std::uint8_t>, add_scaled<std::uint8_t>, descend_block<std::uint8_t>,
     moments<std::uint8_t>, gram<std::uint8_t>},
    logistic,
    descend,
    kNeighbourLoops<float, false>,
    kNeighbourLoops<float, true>,
    kNeighbourLoops<double, false>,
    kNeighbourLoops<double, true>,
    {centre_rows, sweep_norms, segment_sums, banded_norms},
    repel,
};

}  // namespace silva
