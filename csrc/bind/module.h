// bind/module.h: what every binding file needs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>

namespace nb = nanobind;

// A contiguous, one-dimensional numpy array of T, borrowed for one call.
template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<T> view(const Array<T>& array) {
  return {array.data(), array.size()};
}

void register_compression(nb::module_& m);
void register_store(nb::module_& m);
void register_order(nb::module_& m);
void register_engine(nb::module_& m);
void register_sources(nb::module_& m);
void register_records(nb::module_& m);
