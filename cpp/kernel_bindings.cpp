// The door to kernel trees: arrays are typed here, documented in silva/kernel_growth.py and
// silva/membership.py.
#include "kernel_bindings.hpp"

#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.hpp"
#include "kernel_growth.hpp"
#include "membership.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace silva {
namespace {

KernelShape shape_named(bool uniform) {
  return uniform ? KernelShape::uniform() : KernelShape::gaussian();
}

KernelRows* kernel_rows(In2<double> columns, In2<float> coordinates, In2<float> targets,
                        In<std::uint8_t> labelled, In<double> weight, In<double> bandwidth,
                        bool single, std::size_t max_bins, double finest, int threads) {
  nb::gil_scoped_release release;
  Team team(threads);
  auto rows = std::make_unique<KernelRows>();
  rows->n = columns.shape(1);
  rows->columns = columns.shape(0);
  rows->coordinate_width = round_up(coordinates.shape(1), 8);
  rows->target_width = round_up(targets.shape(1), 8);
  rows->stride = std::max<std::size_t>(rows->coordinate_width + rows->target_width, 8);
  rows->target_width = rows->stride - rows->coordinate_width;
  rows->source.assign(rows->n * rows->stride, 0.0f);
  for (std::size_t i = 0; i < rows->n; ++i) {
    float* row = rows->source.data() + i * rows->stride;
    std::copy_n(coordinates.data() + i * coordinates.shape(1), coordinates.shape(1), row);
    std::copy_n(targets.data() + i * targets.shape(1), targets.shape(1),
                row + rows->coordinate_width);
  }
  rows->labelled.assign(labelled.data(), labelled.data() + labelled.size());
  rows->weight.assign(weight.data(), weight.data() + weight.size());
  rows->value = columns.data();
  rows->bandwidth.assign(bandwidth.data(), bandwidth.data() + bandwidth.size());
  for (double h : rows->bandwidth) rows->fuzzy |= h > 0;
  rows->single = single;
  bin_columns(*rows, max_bins, finest, team);
  return rows.release();
}

nb::tuple nodes_to_numpy(GrownNodes&& nodes) {
  return nb::make_tuple(to_numpy(std::move(nodes.left)), to_numpy(std::move(nodes.right)),
                        to_numpy(std::move(nodes.feature)), to_numpy(std::move(nodes.threshold)),
                        to_numpy(std::move(nodes.weight)), to_numpy(std::move(nodes.gain)));
}

// Trees share threads; a single tree has them all.
nb::list grow_kernel_trees(const KernelRows& rows, const GrowthLimits& limits, bool uniform,
                           In<std::uint64_t> seeds, In2<float> counts, int threads) {
  const std::size_t trees = seeds.size();
  std::vector<GrownNodes> grown(trees);
  {
    nb::gil_scoped_release release;
    const KernelShape shape = shape_named(uniform);
    const auto grow = [&](std::size_t t, Team& team) {
      std::vector<double> weight = rows.weight;
      if (counts.shape(0) > 0)
        for (std::size_t i = 0; i < rows.n; ++i)
          weight[i] *= static_cast<double>(counts.data()[t * rows.n + i]);
      grown[t] = Grower(rows, shape, limits, team).grow(weight, seeds.data()[t]);
    };
    Team team(threads);
    if (trees == 1) {
      grow(0, team);
    } else {
      team.run(trees, [&](std::size_t t, int) {
        Team alone(1);
        grow(t, alone);
      });
    }
  }
  nb::list out;
  for (GrownNodes& nodes : grown) out.append(nodes_to_numpy(std::move(nodes)));
  return out;
}

struct TreeArrays {
  In<std::int32_t> left, right, feature;
  In<double> threshold;
  In<std::int32_t> leaf_index;

  AxisTree tree() const {
    return {left.data(), right.data(), feature.data(), threshold.data(), leaf_index.data()};
  }
};

nb::tuple bind_membership(In2<double> x, In<std::int32_t> left, In<std::int32_t> right,
                          In<std::int32_t> feature, In<double> threshold,
                          In<std::int32_t> leaf_index, In<double> bandwidth, bool uniform,
                          int threads) {
  const TreeArrays arrays{left, right, feature, threshold, leaf_index};
  Memberships found;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    found = memberships(arrays.tree(), shape_named(uniform), bandwidth.data(), x.data(), x.shape(0),
                        x.shape(1), team);
  }
  return nb::make_tuple(to_numpy(std::move(found.begin)), to_numpy(std::move(found.leaf)),
                        to_numpy(std::move(found.part)));
}

Out<double> bind_blend(In2<double> x, In<std::int32_t> left, In<std::int32_t> right,
                       In<std::int32_t> feature, In<double> threshold, In<std::int32_t> leaf_index,
                       In<double> bandwidth, bool uniform, In2<double> value, int threads) {
  const TreeArrays arrays{left, right, feature, threshold, leaf_index};
  std::vector<double> answer;
  {
    nb::gil_scoped_release release;
    Team team(threads);
    answer = blend(arrays.tree(), shape_named(uniform), bandwidth.data(), x.data(), x.shape(0),
                   x.shape(1), value.data(), value.shape(1), team);
  }
  return to_numpy(std::move(answer), {x.shape(0), value.shape(1)});
}

}  // namespace

void bind_kernel_trees(nb::module_& m) {
  nb::class_<KernelRows>(m, "KernelRows").def("bins", [](const KernelRows& rows) {
    std::vector<std::int32_t> bins;
    for (const auto& centre : rows.centre) bins.push_back(static_cast<std::int32_t>(centre.size()));
    return to_numpy(std::move(bins));
  });
  nb::class_<GrowthLimits>(m, "GrowthLimits")
      .def(
          "__init__",
          [](GrowthLimits* self, double supervision, double ccp_alpha, double min_weight_leaf,
             std::size_t min_rows_leaf, std::size_t min_labelled_leaf, bool stop_pure,
             std::size_t max_depth, std::size_t max_leaf_nodes, std::size_t max_features,
             std::size_t max_tries, bool random_thresholds, bool exact,
             std::size_t max_candidates) {
            new (self) GrowthLimits{supervision,       ccp_alpha, min_weight_leaf,   min_rows_leaf,
                                    min_labelled_leaf, stop_pure, max_depth,         max_leaf_nodes,
                                    max_features,      max_tries, random_thresholds, exact,
                                    max_candidates};
          },
          nb::kw_only(), "supervision"_a, "ccp_alpha"_a, "min_weight_leaf"_a, "min_rows_leaf"_a,
          "min_labelled_leaf"_a, "stop_pure"_a, "max_depth"_a, "max_leaf_nodes"_a, "max_features"_a,
          "max_tries"_a, "random_thresholds"_a, "exact"_a, "max_candidates"_a);
  m.def("kernel_rows", &kernel_rows, "columns"_a.noconvert(), "coordinates"_a, "targets"_a,
        "labelled"_a, "weight"_a, "bandwidth"_a, "single"_a, "max_bins"_a, "finest"_a, "threads"_a,
        nb::rv_policy::take_ownership, nb::keep_alive<0, 1>());
  m.def("grow_kernel_trees", &grow_kernel_trees, "rows"_a, "limits"_a, "uniform"_a, "seeds"_a,
        "counts"_a, "threads"_a);
  m.def("membership", &bind_membership, "x"_a, "left"_a, "right"_a, "feature"_a, "threshold"_a,
        "leaf_index"_a, "bandwidth"_a, "uniform"_a, "threads"_a);
  m.def("blend_leaves", &bind_blend, "x"_a, "left"_a, "right"_a, "feature"_a, "threshold"_a,
        "leaf_index"_a, "bandwidth"_a, "uniform"_a, "value"_a, "threads"_a);
}

}  // namespace silva
