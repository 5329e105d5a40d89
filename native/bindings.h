// The pieces of the Python module.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <vector>

namespace tercet {

template <typename T, int Dims = 1>
using In = nanobind::ndarray<const T, nanobind::ndim<Dims>, nanobind::c_contig, nanobind::device::cpu,
                             nanobind::ro>;
template <typename T, int Dims = 1>
using Out = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<Dims>>;

// A numpy array that owns what the vector held.
template <typename T>
Out<T> give(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(kept->data(), {kept->size()}, owner);
}

template <typename T>
Out<T, 2> give(std::vector<T> values, size_t rows, size_t columns) {
  auto* kept = new std::vector<T>(std::move(values));
  nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T, 2>(kept->data(), {rows, columns}, owner);
}

void define_packing(nanobind::module_& module);  // module_packing.cpp
void define_sums(nanobind::module_& module);     // module_sums.cpp
void define_exchange(nanobind::module_& module);  // module_exchange.cpp

}  // namespace tercet
