// The rows of kernel trees, prepared once for all trees of a forest.
//
// A row is kept three times: its values column by column, in the user's units; a byte a column, the
// bin of the value; and its coordinates, in which impurity is squared distance to the mean, as
// floats row by row, followed by those of its targets.
#pragma once

#include <cmath>
#include <cstring>

#include "parallel.hpp"
#include "rows.hpp"

namespace silva {

struct KernelRows {
  std::size_t n = 0, columns = 0;
  std::size_t coordinate_width = 0, target_width = 0, stride = 0;  // padded
  Aligned<float> source;
  std::vector<std::uint8_t> labelled;
  std::vector<double> weight;
  const double* value = nullptr;            // column by column; the caller's, who keeps them
  std::vector<std::uint8_t> code;           // column by column
  std::vector<std::vector<double>> centre;  // of each bin of a column
  std::vector<double> bandwidth;            // of a column
  std::vector<std::int32_t> varying;        // columns with two bins at least
  bool single = false;                      // the user's values are single precision
  bool fuzzy = false;                       // some bandwidth is not 0

  const float* row(std::size_t i) const { return source.data() + i * stride; }
  const double* column(std::int32_t j) const { return value + static_cast<std::size_t>(j) * n; }
  const std::uint8_t* codes(std::int32_t j) const {
    return code.data() + static_cast<std::size_t>(j) * n;
  }
};

// ---- bins ---------------------------------------------------------------------------------------

struct SortedValue {
  std::uint64_t key;  // orders as the value does
  std::uint32_t row;
};

inline std::uint64_t sort_key(double value) {
  value += 0.0;  // both zeros are one
  std::uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// Least significant digit first; digits that all keys share, common where values are integers, cost
// a look only.
inline void sort_values(const double* value, std::size_t n, std::vector<SortedValue>& sorted,
                        std::vector<SortedValue>& spare) {
  constexpr int kBits = 11, kPasses = 6;
  constexpr std::size_t kDigits = 1 << kBits;
  sorted.resize(n);
  spare.resize(n);
  std::vector<std::uint32_t> count(kPasses * kDigits, 0);
  for (std::size_t i = 0; i < n; ++i) {
    sorted[i] = {sort_key(value[i]), static_cast<std::uint32_t>(i)};
    for (int pass = 0; pass < kPasses; ++pass)
      ++count[pass * kDigits + (sorted[i].key >> (pass * kBits) & (kDigits - 1))];
  }
  for (int pass = 0; pass < kPasses; ++pass) {
    std::uint32_t* place = count.data() + pass * kDigits;
    const auto digit = [&](const SortedValue& v) {
      return v.key >> (pass * kBits) & (kDigits - 1);
    };
    if (n == 0 || place[digit(sorted[0])] == n) continue;
    std::uint32_t before = 0;
    for (std::size_t d = 0; d < kDigits; ++d) {
      const std::uint32_t here = place[d];
      place[d] = before;
      before += here;
    }
    for (const SortedValue& v : sorted) spare[place[digit(v)]++] = v;
    sorted.swap(spare);
  }
}

// How far apart values are where bins are few: evenly near the median, by orders of magnitude far
// from it. In units of the middle half's range.
class Spread {
 public:
  Spread(const double* value, const std::vector<SortedValue>& sorted) {
    const auto at = [&](std::size_t quarter) {
      return value[sorted[(sorted.size() - 1) * quarter / 4].row];
    };
    middle_ = at(2);
    unit_ = at(3) - at(1);
    if (!(unit_ > 0)) unit_ = std::max(at(4) - at(0), 1e-300);
    low_ = position(at(0));
    range_ = std::max(position(at(4)) - low_, 1e-300);
  }
  double share_below(double value) const { return (position(value) - low_) / range_; }

 private:
  double position(double value) const { return std::asinh((value - middle_) / unit_); }
  double middle_, unit_, low_, range_;
};

// A bin for each value or, of more than `most` values, at most that many: three quarters for
// equal masses and a quarter for equal pieces of the spread. By masses alone the last one would
// hold all outliers together with many ordinary rows. None starts nearer than `width` to the start
// of the one before. Returns the centres.
inline std::vector<double> cut_bins(const double* value, const double* weight,
                                    const std::vector<SortedValue>& sorted, std::size_t most,
                                    double width, std::uint8_t* code) {
  constexpr double kByMass = 0.75;
  const std::size_t n = sorted.size();
  const auto is_new = [&](std::size_t i) { return i == 0 || sorted[i].key != sorted[i - 1].key; };
  std::size_t values = 0;
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    values += is_new(i);
    total += weight[i];
  }
  const bool merges = values > most;
  const Spread spread(value, sorted);
  std::vector<double> centre, bin_mass;
  double mass = 0, next = 0, begin = 0;  // next: bins that the values so far are worth
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t row = sorted[i].row;
    if (is_new(i)) {
      const double worth =
          !merges ? 0
                  : static_cast<double>(most) *
                        (kByMass * mass / total + (1 - kByMass) * spread.share_below(value[row]));
      if (i == 0 || (worth >= next && value[row] >= begin + width)) {
        centre.push_back(0);
        bin_mass.push_back(0);
        begin = value[row];
        next = merges ? worth + 1 : 0;
      }
    }
    code[row] = static_cast<std::uint8_t>(centre.size() - 1);
    centre.back() += weight[row] * (value[row] - begin);
    bin_mass.back() += weight[row];
    mass += weight[row];
  }
  // A second look adds the starts: sums of gaps stay exact where a bin holds one value.
  std::vector<double> start(centre.size());
  for (std::size_t i = n; i-- > 0;) start[code[sorted[i].row]] = value[sorted[i].row];
  for (std::size_t b = 0; b < centre.size(); ++b) centre[b] = start[b] + centre[b] / bin_mass[b];
  return centre;
}

inline void bin_columns(KernelRows& rows, std::size_t most, double finest, Team& team) {
  rows.code.resize(rows.n * rows.columns);
  rows.centre.resize(rows.columns);
  team.run(rows.columns, [&](std::size_t j, int) {
    std::vector<SortedValue> sorted, spare;
    const double* value = rows.value + j * rows.n;
    sort_values(value, rows.n, sorted, spare);
    rows.centre[j] = cut_bins(value, rows.weight.data(), sorted, most, finest * rows.bandwidth[j],
                              rows.code.data() + j * rows.n);
  });
  for (std::size_t j = 0; j < rows.columns; ++j)
    if (rows.centre[j].size() > 1) rows.varying.push_back(static_cast<std::int32_t>(j));
}

}  // namespace silva
