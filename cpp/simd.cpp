#include "simd.hpp"

#include <cstdlib>
#include <cstring>

namespace silva {

extern const Simd simd_baseline;
#ifdef SILVA_X86
extern const Simd simd_avx2;
extern const Simd simd_avx512;
#endif

namespace {

const Simd& choose() {
#ifdef SILVA_X86
  // SILVA_SIMD asks for a lesser table, to test it on a machine that has a better one.
  const char* wanted = std::getenv("SILVA_SIMD");
  const bool only_baseline = wanted && std::strcmp(wanted, "baseline") == 0;
  const bool only_avx2 = wanted && std::strcmp(wanted, "avx2") == 0;
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx512 && !only_baseline && !only_avx2) return simd_avx512;
  if (avx2 && !only_baseline) return simd_avx2;
#endif
  return simd_baseline;
}

}  // namespace

const Simd& simd() {
  static const Simd& table = choose();
  return table;
}

}  // namespace silva
