// Arrays on their way between Python and the core: how they come in, how they go out.
#pragma once

#include <nanobind/ndarray.h>

#include <utility>
#include <vector>

namespace silva {

template <class T>
using In = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using In2 =
    nanobind::ndarray<const T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
template <class T>
using Out = nanobind::ndarray<nanobind::numpy, T>;

template <class T>
Out<T> to_numpy(std::vector<T> values, std::vector<std::size_t> shape = {}) {
  if (shape.empty()) shape = {values.size()};
  auto* kept = new std::vector<T>(std::move(values));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(kept->data(), shape.size(), shape.data(), owner);
}
template <class T, class A>
std::vector<T> to_vector(const A& array) {
  return std::vector<T>(array.data(), array.data() + array.size());
}

}  // namespace silva
