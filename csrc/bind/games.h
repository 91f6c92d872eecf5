// bind/games.h: frames and what else the bindings of millstream.games share.
#pragma once

#include <nanobind/stl/tuple.h>

#include <tuple>

#include "bind/module.h"
#include "core/frames.h"

using Bytes = Array<const std::uint8_t>;
using MadeBytes = Made<std::uint8_t>;
// Bytes of the fields, ends, moves, probabilities.
using Columns = std::tuple<Bytes, Array<const std::uint32_t>, Array<const std::uint16_t>, Array<const float>>;

// Bytes as records of a type that fits their size and address.
template <typename T, typename Byte>
auto records(const Array<Byte>& bytes) {
  using Record = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  if (bytes.size() % sizeof(T) != 0) throw std::invalid_argument("games: no whole number of records");
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(T) != 0) throw std::invalid_argument("games: crooked records");
  return std::span<Record>(reinterpret_cast<Record*>(bytes.data()), bytes.size() / sizeof(T));
}

inline millstream::FrameColumns columns_of(const Columns& arrays) {
  const auto& [fields, ends, moves, probabilities] = arrays;
  const auto is_crooked = [](const auto& array) { return reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() != 0; };
  if (is_crooked(ends) || is_crooked(moves) || is_crooked(probabilities)) throw std::invalid_argument("games: crooked columns");
  const millstream::FrameColumns columns{records<millstream::GameFrame>(fields), view(ends), view(moves), view(probabilities)};
  columns.check();
  return columns;
}

// Records as bytes that own them.
template <typename T>
MadeBytes made_bytes(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* data) noexcept { delete static_cast<std::vector<T>*>(data); });
  return {reinterpret_cast<std::uint8_t*>(kept->data()), {kept->size() * sizeof(T)}, owner};
}
