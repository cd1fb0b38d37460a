// The door between Python and the core: arrays are typed here, documented in silva/kernels/cpu.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "arrays.hpp"
#include "conjugate_gradients.hpp"
#include "kernel_bindings.hpp"
#include "linear_leaves.hpp"
#include "max_flow.hpp"
#include "neighbours.hpp"
#include "pair_sum.hpp"
#include "route.hpp"
#include "start.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace silva {
namespace {

struct RowStore {
  std::variant<std::shared_ptr<const DenseRows<float>>,
               std::shared_ptr<const DenseRows<std::uint8_t>>, std::shared_ptr<const SparseRows>>
      rows;
  std::vector<double> centre;
  const char* storage;
};

template <class Real>
nb::tuple bind_statistics(In2<Real> x, In<double> weight, int threads) {
  ColumnStatistics s;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    s = column_statistics(x.data(), x.shape(0), x.shape(1), weight.size() ? weight.data() : nullptr,
                          team);
  }
  return nb::make_tuple(to_numpy(std::move(s.minimum)), to_numpy(std::move(s.maximum)),
                        to_numpy(std::move(s.mean)), to_numpy(std::move(s.deviation)));
}

template <class Real>
RowStore* dense_rows(In2<Real> x, In<double> minimum, In<double> maximum, In<double> centre,
                     In<double> scale, int threads) {
  nb::gil_scoped_release release;
  Team team(threads);
  const std::size_t n = x.shape(0), d = x.shape(1);
  const auto low = to_vector<double>(minimum), high = to_vector<double>(maximum);
  const auto step = byte_grid(x.data(), n, d, low, high, team);
  if (!step.empty())
    return new RowStore{std::make_shared<const DenseRows<std::uint8_t>>(
                            encode_bytes(x.data(), n, d, low, step, scale.data(), team)),
                        low, "bytes"};
  return new RowStore{std::make_shared<const DenseRows<float>>(
                          encode_floats(x.data(), n, d, centre.data(), scale.data(), team)),
                      to_vector<double>(centre), "floats"};
}

template <class Real, class Index>
RowStore* sparse_rows(In<Index> begin, In<Index> index, In<Real> value, std::size_t features,
                      In<double> scale) {
  nb::gil_scoped_release release;
  auto rows = std::make_shared<SparseRows>();
  rows->n = begin.size() - 1;
  rows->d = features;
  rows->begin.assign(begin.data(), begin.data() + begin.size());
  rows->index.resize(index.size());
  rows->value.resize(index.size());
  for (std::size_t e = 0; e < index.size(); ++e) {
    rows->index[e] = static_cast<std::int32_t>(index.data()[e]);
    rows->value[e] =
        static_cast<float>(static_cast<double>(value.data()[e]) / scale.data()[index.data()[e]]);
  }
  return new RowStore{std::shared_ptr<const SparseRows>(rows), std::vector<double>(features, 0.0),
                      "sparse"};
}

// Planes cross the door as CSR arrays with a bias.
nb::tuple planes_to_numpy(const std::vector<Plane>& planes) {
  std::vector<std::int32_t> begin{0}, index;
  std::vector<float> value, bias;
  for (const auto& plane : planes) {
    index.insert(index.end(), plane.index.begin(), plane.index.end());
    value.insert(value.end(), plane.value.begin(), plane.value.end());
    begin.push_back(static_cast<std::int32_t>(index.size()));
    bias.push_back(plane.bias);
  }
  return nb::make_tuple(to_numpy(std::move(begin)), to_numpy(std::move(index)),
                        to_numpy(std::move(value)), to_numpy(std::move(bias)));
}
std::vector<Plane> planes_from_numpy(In<std::int32_t> begin, In<std::int32_t> index,
                                     In<float> value, In<float> bias) {
  std::vector<Plane> planes(bias.size());
  for (std::size_t i = 0; i < planes.size(); ++i) {
    planes[i].index.assign(index.data() + begin.data()[i], index.data() + begin.data()[i + 1]);
    planes[i].value.assign(value.data() + begin.data()[i], value.data() + begin.data()[i + 1]);
    planes[i].bias = bias.data()[i];
  }
  return planes;
}

nb::tuple grow_start(const RowStore& store, In<std::int32_t> codes, In2<float> values,
                     In<float> weight, const std::string& direction, int max_depth,
                     std::size_t min_rows, std::uint64_t seed) {
  Start start;
  {
    nb::gil_scoped_release release;
    const Direction kind = direction == "means"  ? Direction::kMeans
                           : direction == "axis" ? Direction::kAxis
                                                 : Direction::kGaussian;
    const StartTargets targets{to_vector<std::int32_t>(codes), to_vector<float>(values),
                               values.shape(1), to_vector<float>(weight)};
    start = std::visit(
        [&](const auto& rows) {
          using Rows = std::remove_cvref_t<decltype(*rows)>;
          return Starter<Rows>(*rows, targets, kind, max_depth, min_rows, seed).grow();
        },
        store.rows);
  }
  return nb::make_tuple(to_numpy(std::move(start.structure.left)),
                        to_numpy(std::move(start.structure.right)), planes_to_numpy(start.planes));
}

TaoOptions tao_options(const std::string& split, double alpha, double l2, int newton_steps,
                       bool monotone) {
  TaoOptions options;
  options.split = split == "axis"    ? SplitKind::kAxis
                  : split == "mixed" ? SplitKind::kMixed
                                     : SplitKind::kOblique;
  options.alpha = alpha;
  options.monotone = monotone;
  options.logistic.l1 = alpha;
  options.logistic.l2 = l2;
  options.logistic.newton_steps = newton_steps;
  return options;
}

template <class MakeLeaves>
SessionBase* make_session(const RowStore& store, In<std::int32_t> left, In<std::int32_t> right,
                          std::vector<Plane> planes, const TaoOptions& options, int threads,
                          const MakeLeaves& make_leaves) {
  Structure structure{to_vector<std::int32_t>(left), to_vector<std::int32_t>(right)};
  return std::visit(
      [&](const auto& rows) -> SessionBase* {
        using Rows = std::remove_cvref_t<decltype(*rows)>;
        std::size_t leaves = 0;
        for (std::size_t i = 0; i < structure.size(); ++i) leaves += structure.is_leaf(i);
        return new Session<Rows>(rows, structure, std::move(planes), make_leaves(*rows, leaves),
                                 options, threads);
      },
      store.rows);
}

SessionBase* class_session(const RowStore& store, In<std::int32_t> left, In<std::int32_t> right,
                           In<std::int32_t> begin, In<std::int32_t> index, In<float> value,
                           In<float> bias, In2<std::int32_t> codes, In<std::int32_t> class_begin,
                           In<float> weight, const std::string& loss, const std::string& split,
                           double alpha, double l2, int newton_steps, bool monotone, int threads) {
  const ClassLoss kind = loss == "log"       ? ClassLoss::kLog
                         : loss == "squared" ? ClassLoss::kSquared
                                             : ClassLoss::kMisclassification;
  return make_session(store, left, right, planes_from_numpy(begin, index, value, bias),
                      tao_options(split, alpha, l2, newton_steps, monotone), threads,
                      [&](const auto&, std::size_t leaves) -> std::unique_ptr<LeafModel> {
                        return std::make_unique<ClassLeaves>(
                            to_vector<std::int32_t>(codes), to_vector<float>(weight),
                            to_vector<std::int32_t>(class_begin), leaves, kind);
                      });
}

// Rows of their own for linear leaves, as they are.
std::shared_ptr<const DenseRows<float>> own_rows(In2<float> basis) {
  const std::size_t n = basis.shape(0), d = basis.shape(1);
  auto rows = std::make_shared<DenseRows<float>>(n, d);
  std::fill(rows->unit.begin(), rows->unit.end(), 1.0f);
  for (std::size_t i = 0; i < n; ++i)
    std::copy_n(basis.data() + i * d, d, rows->data.data() + i * rows->stride);
  return rows;
}

SessionBase* value_session(const RowStore& store, In<std::int32_t> left, In<std::int32_t> right,
                           In<std::int32_t> begin, In<std::int32_t> index, In<float> value,
                           In<float> bias, In2<float> targets, In<float> weight, bool linear,
                           double ridge, In2<float> basis, const std::string& split, double alpha,
                           double l2, int newton_steps, bool monotone, int threads) {
  return make_session(
      store, left, right, planes_from_numpy(begin, index, value, bias),
      tao_options(split, alpha, l2, newton_steps, monotone), threads,
      [&](const auto& rows, std::size_t leaves) -> std::unique_ptr<LeafModel> {
        using Rows = std::remove_cvref_t<decltype(rows)>;
        Targets aims(to_vector<float>(targets), to_vector<float>(weight), targets.shape(1));
        if (linear && basis.shape(1) > 0)
          return std::make_unique<LinearLeaves<DenseRows<float>>>(std::move(aims), own_rows(basis),
                                                                  leaves, ridge);
        if (linear)
          return std::make_unique<LinearLeaves<Rows>>(std::move(aims), rows, leaves, ridge);
        return std::make_unique<MeanLeaves>(std::move(aims), leaves);
      });
}

FittedTree fitted(In<std::int32_t> left, In<std::int32_t> right, In<std::int32_t> begin,
                  In<std::int32_t> index, In<double> coefficient, In<double> threshold,
                  std::size_t features) {
  return {left.size(),  features,     left.data(),        right.data(),
          begin.data(), index.data(), coefficient.data(), threshold.data()};
}

template <class Real>
Out<std::int32_t> bind_route_dense(In2<Real> x, In<std::int32_t> left, In<std::int32_t> right,
                                   In<std::int32_t> begin, In<std::int32_t> index,
                                   In<double> coefficient, In<double> threshold, int threads) {
  std::vector<std::int32_t> leaf(x.shape(0));
  {
    nb::gil_scoped_release release;
    Team team(threads);
    route_dense(fitted(left, right, begin, index, coefficient, threshold, x.shape(1)), x.data(),
                x.shape(0), leaf.data(), team);
  }
  return to_numpy(std::move(leaf));
}

template <class Real, class Index>
Out<std::int32_t> bind_route_sparse(In<Index> row_begin, In<Index> row_index, In<Real> row_value,
                                    std::size_t features, In<std::int32_t> left,
                                    In<std::int32_t> right, In<std::int32_t> begin,
                                    In<std::int32_t> index, In<double> coefficient,
                                    In<double> threshold, int threads) {
  std::vector<std::int32_t> leaf(row_begin.size() - 1);
  {
    nb::gil_scoped_release release;
    Team team(threads);
    const FittedTree tree = fitted(left, right, begin, index, coefficient, threshold, features);
    SparseRouter<Real, Index>(tree, row_begin.data(), row_index.data(), row_value.data())
        .route(leaf.size(), leaf.data(), team);
  }
  return to_numpy(std::move(leaf));
}

// One node problem by itself, on all rows of a store.
nb::tuple node_problem(const RowStore& store, In<float> weight, In<float> side, bool oblique,
                       double l1, double l2, int newton_steps, double tolerance, int threads) {
  Plane plane;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    std::visit(
        [&](const auto& rows) {
          using Rows = std::remove_cvref_t<decltype(*rows)>;
          View<Rows> view{rows.get(), nullptr};
          if constexpr (!Rows::kSparse) view.data = rows->data.data();
          std::vector<std::uint32_t> slot(rows->n);
          for (std::size_t i = 0; i < slot.size(); ++i) slot[i] = static_cast<std::uint32_t>(i);
          if (oblique) {
            LogisticOptions options;
            options.l1 = l1;
            options.l2 = l2;
            options.newton_steps = newton_steps;
            options.tolerance = tolerance;
            plane = LogisticSolver<Rows>().solve(view, slot.data(), slot.size(), weight.data(),
                                                 side.data(), Plane{}, options, team);
          } else {
            std::vector<float> preference(slot.size());
            for (std::size_t i = 0; i < slot.size(); ++i)
              preference[i] = side.data()[i] > 0 ? weight.data()[i] : -weight.data()[i];
            const Preferences all = Preferences::of(preference.data(), preference.size());
            const AxisSplit split =
                best_axis_split(view, slot.data(), preference.data(), slot.size(), all, team);
            plane.bias = all.total > 0 ? 1.0f : -1.0f;
            if (split.feature >= 0 && split.kept - l1 > std::max(0.0, all.total) + all.tie) {
              plane.index = {split.feature};
              plane.value = {split.coefficient};
              plane.bias = split.bias;
            }
          }
        },
        store.rows);
  }
  return planes_to_numpy({plane});
}

nb::tuple bind_solve_labels(In<std::int64_t> begin, In<std::int32_t> index, In<double> weight,
                            In<double> diagonal, In2<double> rhs, In2<double> start,
                            In<double> target, int max_iterations, int threads) {
  std::vector<double> x = to_vector<double>(start);
  Convergence done;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    const LabelGraph graph{begin.data(), index.data(), weight.data(), diagonal.data(),
                           static_cast<std::int32_t>(diagonal.size())};
    done = solve_labels(graph, rhs.data(), x.data(), rhs.shape(1), target.data(), max_iterations,
                        team);
  }
  return nb::make_tuple(to_numpy(std::move(x), {rhs.shape(0), rhs.shape(1)}), done.iterations,
                        to_numpy(std::move(done.residual)));
}

nb::tuple bind_pair_sum(In2<double> z, In<double> mass, bool cauchy, int threads) {
  std::vector<double> gradient(z.size());
  double total = 0;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    total = pair_sum(z.data(), mass.data(), z.shape(0), static_cast<int>(z.shape(1)), cauchy,
                     gradient.data(), team);
  }
  return nb::make_tuple(total, to_numpy(std::move(gradient), {z.shape(0), z.shape(1)}));
}

nb::tuple bind_min_cut(In<std::int64_t> begin, In<std::int32_t> index, In<double> weight,
                       In<double> source, In<double> sink, double tolerance) {
  std::vector<std::int8_t> sides;
  double flow = 0;
  {
    nb::gil_scoped_release release;
    MaxFlow graph(to_vector<std::int64_t>(begin), to_vector<std::int32_t>(index),
                  to_vector<double>(weight), to_vector<double>(source), to_vector<double>(sink),
                  tolerance);
    flow = graph.run();
    sides = graph.sides();
  }
  return nb::make_tuple(to_numpy(std::move(sides)), flow);
}

template <class T>
using Fill2 = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The queries of some leaves; neighbour and distance have a row for every point.
template <class Real>
std::size_t bind_neighbours(
    nb::ndarray<const Real, nb::ndim<3>, nb::c_contig, nb::device::cpu> points, In<std::int32_t> id,
    In<std::int32_t> begin, In2<Real> low, In2<Real> high, In2<Real> centre,
    In<std::uint8_t> wanted, In<std::int32_t> queries, bool absolute, Fill2<std::int32_t> neighbour,
    Fill2<Real> distance, int threads) {
  nb::gil_scoped_release release;
  const PointLeaves<Real> leaves{begin.size() - 1, points.shape(1), low.shape(1), points.data(),
                                 id.data(),        begin.data(),    low.data(),   high.data(),
                                 centre.data(),    wanted.data()};
  Team team(threads);
  std::vector<NeighbourSearch<Real>> search(
      static_cast<std::size_t>(team.size()),
      NeighbourSearch<Real>(leaves, absolute, neighbour.shape(1)));
  team.run(queries.size(), [&](std::size_t k, int worker) {
    search[static_cast<std::size_t>(worker)].search(static_cast<std::size_t>(queries.data()[k]),
                                                    neighbour.data(), distance.data());
  });
  std::size_t looked = 0;
  for (const auto& each : search) looked += each.looked();
  return looked;
}

template <class Real>
void bind_pair_distances(In2<Real> x, In<std::int32_t> row, In2<std::int32_t> candidate,
                         bool absolute, Fill2<double> distance, int threads) {
  nb::gil_scoped_release release;
  Team team(threads);
  pair_distances(x.data(), x.shape(1), row.data(), row.size(), candidate.data(), candidate.shape(1),
                 absolute, distance.data(), team);
}

}  // namespace
}  // namespace silva

NB_MODULE(_core, m) {
  using namespace silva;
  m.def("simd_name", [] { return std::string(simd().name); });

  nb::class_<RowStore>(m, "Rows")
      .def_prop_ro("storage", [](const RowStore& s) { return std::string(s.storage); })
      .def("centre", [](const RowStore& s) { return to_numpy(s.centre); });

  m.def("column_statistics", &bind_statistics<float>, "x"_a.noconvert(), "weight"_a, "threads"_a);
  m.def("column_statistics", &bind_statistics<double>, "x"_a.noconvert(), "weight"_a, "threads"_a);
  m.def("dense_rows", &dense_rows<float>, "x"_a.noconvert(), "minimum"_a, "maximum"_a, "centre"_a,
        "scale"_a, "threads"_a, nb::rv_policy::take_ownership);
  m.def("dense_rows", &dense_rows<double>, "x"_a.noconvert(), "minimum"_a, "maximum"_a, "centre"_a,
        "scale"_a, "threads"_a, nb::rv_policy::take_ownership);

#define SILVA_SPARSE(Real, Index)                                                                \
  m.def("sparse_rows", &sparse_rows<Real, Index>, "begin"_a.noconvert(), "index"_a.noconvert(),  \
        "value"_a.noconvert(), "features"_a, "scale"_a, nb::rv_policy::take_ownership);          \
  m.def("route_sparse", &bind_route_sparse<Real, Index>, "row_begin"_a.noconvert(),              \
        "row_index"_a.noconvert(), "row_value"_a.noconvert(), "features"_a, "left"_a, "right"_a, \
        "begin"_a, "index"_a, "coefficient"_a, "threshold"_a, "threads"_a)
  SILVA_SPARSE(float, std::int32_t);
  SILVA_SPARSE(float, std::int64_t);
  SILVA_SPARSE(double, std::int32_t);
  SILVA_SPARSE(double, std::int64_t);
#undef SILVA_SPARSE

  m.def("route_dense", &bind_route_dense<float>, "x"_a.noconvert(), "left"_a, "right"_a, "begin"_a,
        "index"_a, "coefficient"_a, "threshold"_a, "threads"_a);
  m.def("route_dense", &bind_route_dense<double>, "x"_a.noconvert(), "left"_a, "right"_a, "begin"_a,
        "index"_a, "coefficient"_a, "threshold"_a, "threads"_a);

#define SILVA_NEIGHBOURS(Real)                                                                    \
  m.def("neighbours", &bind_neighbours<Real>, "points"_a.noconvert(), "id"_a, "begin"_a, "low"_a, \
        "high"_a, "centre"_a, "wanted"_a, "queries"_a, "absolute"_a, "neighbour"_a.noconvert(),   \
        "distance"_a.noconvert(), "threads"_a);                                                   \
  m.def("pair_distances", &bind_pair_distances<Real>, "x"_a.noconvert(), "row"_a, "candidate"_a,  \
        "absolute"_a, "distance"_a.noconvert(), "threads"_a)
  SILVA_NEIGHBOURS(float);
  SILVA_NEIGHBOURS(double);
#undef SILVA_NEIGHBOURS

  m.def("grow_start", &grow_start, "rows"_a, "codes"_a, "values"_a, "weight"_a, "direction"_a,
        "max_depth"_a, "min_rows"_a, "seed"_a);
  m.def("node_problem", &node_problem, "rows"_a, "weight"_a, "side"_a, "oblique"_a, "l1"_a, "l2"_a,
        "newton_steps"_a, "tolerance"_a, "threads"_a);

  m.def("solve_labels", &bind_solve_labels, "begin"_a, "index"_a, "weight"_a, "diagonal"_a, "rhs"_a,
        "start"_a, "target"_a, "max_iterations"_a, "threads"_a);
  m.def("pair_sum", &bind_pair_sum, "z"_a, "mass"_a, "cauchy"_a, "threads"_a);
  m.def("min_cut", &bind_min_cut, "begin"_a, "index"_a, "weight"_a, "source"_a, "sink"_a,
        "tolerance"_a);

  nb::class_<SessionBase>(m, "Session")
      .def("route", &SessionBase::route, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "assign", [](SessionBase& s, In<std::int32_t> leaf_node) { s.assign(leaf_node.data()); },
          "leaf_node"_a)
      .def("fit_leaves", &SessionBase::fit_leaves, nb::call_guard<nb::gil_scoped_release>())
      .def("update_level", &SessionBase::update_level, "level"_a, "from_current"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("levels", &SessionBase::levels)
      .def_prop_ro("penalty", &SessionBase::penalty)
      .def_prop_ro("nonzeros", &SessionBase::nonzeros)
      .def("planes", [](const SessionBase& s) { return planes_to_numpy(s.planes()); })
      .def("set_planes",
           [](SessionBase& s, In<std::int32_t> begin, In<std::int32_t> index, In<float> value,
              In<float> bias) { s.set_planes(planes_from_numpy(begin, index, value, bias)); })
      .def("leaf_values", [](const SessionBase& s) {
        const auto& leaves = s.leaves();
        return nb::make_tuple(to_numpy(leaves.values()), to_numpy(leaves.slopes()),
                              to_numpy(leaves.bounds()));
      });
  m.def("class_session", &class_session, "rows"_a, "left"_a, "right"_a, "begin"_a, "index"_a,
        "value"_a, "bias"_a, "codes"_a, "class_begin"_a, "weight"_a, "loss"_a, "split"_a, "alpha"_a,
        "l2"_a, "newton_steps"_a, "monotone"_a, "threads"_a, nb::rv_policy::take_ownership);
  m.def("value_session", &value_session, "rows"_a, "left"_a, "right"_a, "begin"_a, "index"_a,
        "value"_a, "bias"_a, "targets"_a, "weight"_a, "linear"_a, "ridge"_a, "basis"_a, "split"_a,
        "alpha"_a, "l2"_a, "newton_steps"_a, "monotone"_a, "threads"_a,
        nb::rv_policy::take_ownership);
  bind_kernel_trees(m);
}
