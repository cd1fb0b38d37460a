// What kernel_bindings.cpp adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace silva {

void bind_kernel_trees(nanobind::module_& m);

}  // namespace silva
