// One instruction set's table of inner loops; SILVA_ISA names it. See simd.hpp.
#include "column_loops.hpp"
#include "neighbour_loops.hpp"
#include "pair_loops.hpp"
#include "row_loops.hpp"
#include "simd.hpp"
#include "sweep_loops.hpp"

#define SILVA_JOIN_(a, b) a##b
#define SILVA_JOIN(a, b) SILVA_JOIN_(a, b)
#define SILVA_QUOTE_(a) #a
#define SILVA_QUOTE(a) SILVA_QUOTE_(a)

namespace silva {

extern const Simd SILVA_JOIN(simd_, SILVA_ISA);
const Simd SILVA_JOIN(simd_, SILVA_ISA) = {
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
