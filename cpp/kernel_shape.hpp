// The kernel of a kernel tree: how far a row may be from where it was seen, column by column.
//
// Piecewise constant densities, so that distribution functions are piecewise linear (kernel tree
// paper, appendix B): the Gaussian as a histogram of seven pieces between -3 and 3 deviations, each
// with the Gaussian's mass of its interval, renormalised; and the uniform density of the same
// deviation. A bandwidth of 0 is the crisp tree: all mass where the row was seen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace silva {

class KernelShape {
 public:
  static KernelShape gaussian() {
    constexpr std::size_t kPieces = 7;
    std::vector<double> mass(kPieces);
    const auto below = [](double u) { return 0.5 * std::erfc(-u / std::sqrt(2.0)); };
    for (std::size_t k = 0; k < kPieces; ++k)
      mass[k] = below(-3 + 6.0 * static_cast<double>(k + 1) / kPieces) -
                below(-3 + 6.0 * static_cast<double>(k) / kPieces);
    return KernelShape(3, std::move(mass));
  }
  static KernelShape uniform() { return KernelShape(std::sqrt(3.0), {1.0}); }

  double reach() const { return reach_; }  // all mass lies between -reach and reach
  std::size_t pieces() const { return density_.size(); }
  double edge(std::size_t k) const { return -reach_ + static_cast<double>(k) * width_; }
  // By how much the density rises at edge k.
  double rise(std::size_t k) const {
    return (k < pieces() ? density_[k] : 0.0) - (k > 0 ? density_[k - 1] : 0.0);
  }

  // Mass below u, in deviations.
  double below(double u) const {
    if (u <= -reach_) return 0;
    if (u >= reach_) return 1;
    const std::size_t k =
        std::min(static_cast<std::size_t>((u + reach_) / width_), density_.size() - 1);
    return cumulative_[k] + density_[k] * (u - edge(k));
  }
  // Mass below `threshold` of a row seen at x.
  double below(double threshold, double x, double bandwidth) const {
    if (bandwidth == 0) return x < threshold ? 1 : 0;
    return below((threshold - x) / bandwidth);
  }

 private:
  KernelShape(double reach, std::vector<double> mass)
      : reach_(reach), width_(2 * reach / static_cast<double>(mass.size())) {
    double total = 0, sum = 0;
    for (double m : mass) total += m;
    for (double m : mass) {
      cumulative_.push_back(sum);
      density_.push_back(m / total / width_);
      sum += m / total;
    }
  }

  double reach_, width_;
  std::vector<double> density_, cumulative_;
};

// Shares below this part of a row's weight go to the other side of a split, where the rest is.
constexpr double kSmallestShare = 1e-6;

// What part of a row goes left at a threshold inside a node's interval, given the masses below the
// interval's ends and below the threshold; `part` is the part of the row that is in the node.
inline double left_share(double below_low, double below_high, double below, double part) {
  const double inside = below_high - below_low;
  if (!(inside > 0)) return below > below_low ? 1 : 0;
  const double share = std::clamp((below - below_low) / inside, 0.0, 1.0);
  if (std::min(share, 1 - share) * part < kSmallestShare) return share < 0.5 ? 0 : 1;
  return share;
}

}  // namespace silva
