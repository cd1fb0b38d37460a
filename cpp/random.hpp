// Random numbers by counter: a stream is a seed and a place (a node), so that threads never share.
#pragma once

#include <cmath>
#include <cstdint>

namespace silva {

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream)
      : state_(mix(seed + 0x9E3779B97F4A7C15ull * (stream + 1))) {}

  std::uint64_t next() {  // splitmix64
    state_ += 0x9E3779B97F4A7C15ull;
    return mix(state_);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(n));
  }
  double normal() {  // Box and Muller
    const double u = 1.0 - uniform(), v = uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

}  // namespace silva
