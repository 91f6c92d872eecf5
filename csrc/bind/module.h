// bind/module.h: what every binding file needs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace nb = nanobind;

// A contiguous, one-dimensional numpy array of T, borrowed for one call.
template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<T> view(const Array<T>& array) {
  return {array.data(), array.size()};
}

template <typename T>
using Made = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// A numpy array that owns what a container holds; its elements are those of the container, or bytes of a string.
template <typename Values, typename T = typename Values::value_type>
auto made(Values&& values) {
  using Element = std::conditional_t<std::is_same_v<T, char>, std::uint8_t, T>;
  auto* kept = new Values(std::move(values));
  nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<Values*>(data); });
  return Made<Element>(reinterpret_cast<Element*>(kept->data()), {kept->size()}, owner);
}

void register_memory(nb::module_& m);
void register_kernels(nb::module_& m);
void register_text(nb::module_& m);
void register_parse(nb::module_& m);
void register_filter(nb::module_& m);
void register_store(nb::module_& m);
void register_order(nb::module_& m);
void register_fill(nb::module_& m);
void register_chat(nb::module_& m);
void register_rl(nb::module_& m);
void register_chess(nb::module_& m);
